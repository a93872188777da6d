//! The route of the grants: its body, its parameter, its answers.
//!
//! Numbers and the switch are read as strictly as a declaration's; null means that it was not given, which for a bound is none.

use mayfly_net::http::query::pairs;
use mayfly_shards::{Tenant, Usage};

use super::answer::append_number;
use super::declaration::read_number;
use super::fault::Fault;
use super::json::Scanner;
use super::request::{object, set_once, skip, wrong_type};
use crate::control::change::Grant;

/// The one kind of queue there is.
const KIND: &[u8] = b"ephemeral";

/// A grant, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRequest {
    /// Whose.
    pub tenant: Tenant,
    /// What it may use from now on, in place of what it was granted before.
    pub grant: Grant,
}

/// Reads a grant.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn read(body: &[u8]) -> Result<QuotaRequest, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut tenant, mut kind, mut enabled) = (None, None, None);
    let (mut bytes, mut queues, mut rate, mut parked) = (None, None, None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"tenant" => set_once(&mut tenant, "tenant", || read_tenant(scanner)),
        b"kind" => set_once(&mut kind, "kind", || read_kind(scanner)),
        b"enabled" => set_once(&mut enabled, "enabled", || read_switch(scanner, "enabled")),
        b"maxBytes" => set_once(&mut bytes, "maxBytes", || read_number(scanner, "maxBytes")),
        b"maxQueues" => set_once(&mut queues, "maxQueues", || read_number(scanner, "maxQueues")),
        b"maxMessagesPerSecond" => set_once(&mut rate, "maxMessagesPerSecond", || read_number(scanner, "maxMessagesPerSecond")),
        b"maxParked" => set_once(&mut parked, "maxParked", || read_number(scanner, "maxParked")),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    let grant = Grant {
        is_enabled: enabled.flatten().unwrap_or(true),
        bytes_max: bytes.flatten(),
        queues_max: queues.flatten(),
        messages_per_second_max: rate.flatten(),
        parked_max: parked.flatten(),
    };
    Ok(QuotaRequest { tenant: tenant.ok_or(Fault::Missing("tenant"))?, grant })
}

fn read_tenant(scanner: &mut Scanner<'_>) -> Result<Tenant, Fault> {
    if scanner.token() != b'"' {
        return wrong_type(scanner, "tenant", "a string");
    }
    Tenant::parse(&scanner.string()?.word()).ok_or(Fault::NotUuid("tenant"))
}

fn read_kind(scanner: &mut Scanner<'_>) -> Result<(), Fault> {
    let expected = "\"ephemeral\"";
    if scanner.token() == b'n' {
        return skip(scanner);
    }
    if scanner.token() != b'"' {
        return wrong_type(scanner, "kind", expected);
    }
    if *scanner.string()?.word() == *KIND { Ok(()) } else { Err(Fault::WrongType { field: "kind", expected }) }
}

fn read_switch(scanner: &mut Scanner<'_>, field: &'static str) -> Result<Option<bool>, Fault> {
    match scanner.value()? {
        b"null" => Ok(None),
        b"true" => Ok(Some(true)),
        b"false" => Ok(Some(false)),
        _ => Err(Fault::WrongType { field, expected: "true or false" }),
    }
}

/// Whose grant is asked for; None: everybody's.
///
/// # Errors
/// The parameter is no UUID.
pub fn asked_tenant(query: &[u8]) -> Result<Option<Tenant>, Fault> {
    let Some(pair) = pairs(query).filter(|pair| *pair.key() == *b"tenant").last() else { return Ok(None) };
    let value = pair.value().map_err(|_| Fault::NotUuid("tenant"))?;
    Tenant::parse(value.as_bytes()).map(Some).ok_or(Fault::NotUuid("tenant"))
}

/// A grant's echo.
pub fn granted(out: &mut Vec<u8>, tenant: Tenant, grant: &Grant) {
    append_grant(out, tenant, grant);
    out.push(b'}');
}

/// A grant with what its tenant uses.
pub fn used(out: &mut Vec<u8>, tenant: Tenant, grant: &Grant, usage: &Usage) {
    append_grant(out, tenant, grant);
    let Usage { pushed, delivered, bytes, queues, parked } = *usage;
    for (key, number) in [("pushed", pushed), ("delivered", delivered), ("bytes", bytes), ("queues", queues), ("parked", parked)] {
        append_key(out, key);
        append_number(out, number);
    }
    out.push(b'}');
}

/// Every grant, each with what its tenant uses.
pub fn all(out: &mut Vec<u8>, grants: &[(Tenant, Grant, Usage)]) {
    out.extend_from_slice(b"{\"grants\":[");
    for (index, (tenant, grant, usage)) in grants.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        used(out, *tenant, grant, usage);
    }
    out.extend_from_slice(b"],\"count\":");
    append_number(out, grants.len() as u64);
    out.push(b'}');
}

fn append_grant(out: &mut Vec<u8>, tenant: Tenant, grant: &Grant) {
    out.extend_from_slice(format!("{{\"tenant\":\"{tenant}\",\"kind\":\"ephemeral\",\"enabled\":{}", grant.is_enabled).as_bytes());
    let bounds = [
        ("maxBytes", grant.bytes_max),
        ("maxQueues", grant.queues_max),
        ("maxMessagesPerSecond", grant.messages_per_second_max),
        ("maxParked", grant.parked_max),
    ];
    for (key, bound) in bounds {
        append_key(out, key);
        match bound {
            Some(bound) => append_number(out, bound),
            None => out.extend_from_slice(b"null"),
        }
    }
}

fn append_key(out: &mut Vec<u8>, key: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = r#""tenant":"0123abcd-89ab-cdef-0123-456789abcdef""#;

    fn read_with(rest: &str) -> Result<QuotaRequest, Fault> {
        read(format!("{{{TENANT}{rest}}}").as_bytes())
    }

    #[test]
    fn a_grant_is_echoed_as_it_was_meant() {
        let request = read_with(r#","kind":"ephemeral","enabled":false,"maxBytes":7,"maxQueues":0,"maxParked":null,"other":[1]"#).unwrap();
        let mut out = Vec::new();
        granted(&mut out, request.tenant, &request.grant);
        let expected = format!(
            r#"{{{TENANT},"kind":"ephemeral","enabled":false,"maxBytes":7,"maxQueues":0,"maxMessagesPerSecond":null,"maxParked":null}}"#
        );
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        assert_eq!(read(&out), Ok(request), "and may be sent back");
        assert!(read_with("").unwrap().grant.is_enabled);
    }

    #[test]
    fn types_are_strict() {
        for (rest, field) in [
            (r#","enabled":1"#, "enabled"),
            (r#","enabled":"true""#, "enabled"),
            (r#","maxBytes":-1"#, "maxBytes"),
            (r#","maxBytes":1.5"#, "maxBytes"),
            (r#","maxQueues":"1""#, "maxQueues"),
            (r#","maxMessagesPerSecond":true"#, "maxMessagesPerSecond"),
            (r#","maxParked":[]"#, "maxParked"),
            (r#","kind":"durable""#, "kind"),
            (r#","kind":7"#, "kind"),
        ] {
            assert!(matches!(read_with(rest), Err(Fault::WrongType { field: of, .. }) if of == field), "{rest}");
        }
        assert_eq!(read_with(r#","maxBytes":1,"maxBytes":1"#), Err(Fault::Twice("maxBytes")));
        assert_eq!(read(b"{}"), Err(Fault::Missing("tenant")));
        assert_eq!(read(br#"{"tenant":"x"}"#), Err(Fault::NotUuid("tenant")));
        assert!(matches!(read(br#"{"tenant":null}"#), Err(Fault::WrongType { field: "tenant", .. })));
        assert!(read(b"[]").is_err() && read(b"").is_err());
    }

    #[test]
    fn the_last_tenant_asked_for_counts() {
        assert_eq!(asked_tenant(b"a=b"), Ok(None));
        assert_eq!(asked_tenant(b"tenant=x&tenant=00000000-0000-0000-0000-000000000007"), Ok(Some(Tenant(7))));
        assert_eq!(asked_tenant(b"tenant="), Err(Fault::NotUuid("tenant")));
    }
}
