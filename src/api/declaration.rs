//! configure's body → what was declared, and what is declared → the options in force.
//!
//! The list of options is closed, windowBuffer's too. A number is a JSON integer token without a sign; null means that it was not given.
//! What was sent is echoed as it was spelled, so it is kept as text beside what it means.

use std::borrow::Cow;

use mayfly_shards::{BATCH_MAX, Options, Policy, WindowBuffer};

use super::fault::Fault;
use super::json::{Scanner, Text};
use super::request::{object, required_queue, set_once, skip, wrong_type};
use super::{inbox, name};

/// A configure call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigureRequest<'a> {
    /// Valid name.
    pub queue: Cow<'a, str>,
    /// The options as spelled, one JSON object: `{}` when absent or null.
    pub options_text: &'a [u8],
    /// What they say.
    pub declared: DeclaredOptions,
}

/// Options as a client declared them; None: not given. Numbers too large for their type stand as its largest: every ceiling is lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredOptions {
    /// Payload bytes; 0: the default.
    pub max_bytes: Option<u64>,
    /// Messages; 0: the default.
    pub max_length: Option<u64>,
    /// What a push past a bound meets.
    pub policy: Option<Policy>,
    /// Seconds; 0: off.
    pub ttl_seconds: Option<u64>,
    /// Seconds; 0: the default.
    pub lease_seconds: Option<u64>,
    /// Attempts.
    pub retry_limit: Option<u64>,
    /// Milliseconds.
    pub window_ms: Option<u64>,
    /// Messages.
    pub window_count: Option<u64>,
}

/// The node's defaults, which for the two bounds are the ceilings as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDefaults {
    /// `QUEEN_EPHEMERAL_QUEUE_MAX_BYTES`.
    pub queue_max_bytes: u64,
    /// `QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH`.
    pub queue_max_length: u32,
    /// `QUEEN_EPHEMERAL_LEASE_S`, 1 to [`LEASE_SECONDS_MAX`].
    pub lease_seconds: u32,
    /// `QUEEN_EPHEMERAL_RETRY_LIMIT`.
    pub retry_limit: u32,
}

/// Longest lease: a day.
pub const LEASE_SECONDS_MAX: u32 = 86_400;
/// Most attempts.
pub const RETRY_LIMIT_MAX: u32 = 1_000;
/// Longest gathering of a waiting pop.
pub const WINDOW_MS_MAX: u32 = 60_000;
/// Most messages a waiting pop gathers.
pub const WINDOW_COUNT_MAX: u32 = BATCH_MAX;

impl DeclaredOptions {
    /// Reads an options object, nothing before or after it but white space.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(text: &[u8]) -> Result<Self, Fault> {
        let mut scanner = Scanner::new(text);
        let declared = read_options(&mut scanner)?;
        scanner.finish()?;
        Ok(declared)
    }

    /// What is given, spelled in the one way that this node spells it: a JSON object that reads as these options again.
    #[must_use]
    pub fn plain_text(&self) -> String {
        let number = |key: &str, number: Option<u64>| number.map(|number| format!("\"{key}\":{number}"));
        let policy = self.policy.map(|policy| match policy {
            Policy::Reject => r#""policy":"reject""#.to_owned(),
            Policy::DropOldest => r#""policy":"dropOldest""#.to_owned(),
        });
        let window: Vec<_> = [number("ms", self.window_ms), number("count", self.window_count)].into_iter().flatten().collect();
        let window = (!window.is_empty()).then(|| format!("\"windowBuffer\":{{{}}}", window.join(",")));
        let given = [
            number("maxBytes", self.max_bytes),
            number("maxLength", self.max_length),
            policy,
            number("ttlSeconds", self.ttl_seconds),
            number("leaseSeconds", self.lease_seconds),
            number("retryLimit", self.retry_limit),
            window,
        ];
        format!("{{{}}}", given.into_iter().flatten().collect::<Vec<_>>().join(","))
    }

    /// The options in force: defaults filled in, values clamped.
    #[must_use]
    pub fn in_force(&self, defaults: &OptionDefaults) -> Options {
        Options {
            max_bytes: self
                .max_bytes
                .filter(|&bytes| bytes > 0)
                .map_or(defaults.queue_max_bytes, |bytes| bytes.min(defaults.queue_max_bytes)),
            max_length: self
                .max_length
                .filter(|&count| count > 0)
                .map_or(defaults.queue_max_length, |n| at_most(n, defaults.queue_max_length)),
            policy: self.policy.unwrap_or(Policy::Reject),
            ttl_seconds: self.ttl_seconds.unwrap_or(0),
            lease_seconds: self
                .lease_seconds
                .filter(|&secs| secs > 0)
                .map_or(defaults.lease_seconds, |secs| at_most(secs, LEASE_SECONDS_MAX)),
            retry_limit: self.retry_limit.map_or(defaults.retry_limit, |limit| at_most(limit, RETRY_LIMIT_MAX)),
            window: WindowBuffer {
                ms: self.window_ms.map_or(0, |ms| at_most(ms, WINDOW_MS_MAX)),
                count: self.window_count.map_or(0, |count| at_most(count, WINDOW_COUNT_MAX)),
            },
        }
    }
}

fn at_most(number: u64, ceiling: u32) -> u32 {
    u32::try_from(number).map_or(ceiling, |number| number.min(ceiling))
}

/// Whether a queue of this name can be declared.
///
/// # Errors
/// Which rule the name breaks.
pub fn check_queue(name: &str) -> Result<(), Fault> {
    name::check(name, "queue")?;
    if inbox::is_inbox(name) { Err(Fault::NameReserved("queue")) } else { Ok(()) }
}

/// How long options may be spelled: they are kept as they are, by every node, in memory and on disk.
pub const OPTIONS_BYTES_MAX: usize = 4_096;

/// Reads a configure call.
///
/// # Errors
/// The first thing that is wrong with the body.
pub fn configure(body: &[u8]) -> Result<ConfigureRequest<'_>, Fault> {
    let mut scanner = Scanner::new(body);
    let (mut queue, mut options) = (None, None);
    object(&mut scanner, "the body", |scanner, key| match &*key.word() {
        b"queue" => set_once(&mut queue, "queue", || required_queue(scanner, "queue")),
        b"options" => set_once(&mut options, "options", || read_spelled_options(scanner)),
        _ => skip(scanner),
    })?;
    scanner.finish()?;
    let (options_text, declared) = options.flatten().unwrap_or((b"{}", DeclaredOptions::default()));
    Ok(ConfigureRequest { queue: queue.ok_or(Fault::Missing("queue"))?, options_text, declared })
}

fn read_spelled_options<'a>(scanner: &mut Scanner<'a>) -> Result<Option<(&'a [u8], DeclaredOptions)>, Fault> {
    let text = scanner.value()?;
    if text == b"null" {
        return Ok(None);
    }
    if text.len() > OPTIONS_BYTES_MAX {
        return Err(Fault::OptionsTooLong);
    }
    // A second scan of what is a few dozen bytes keeps its spelling and its meaning apart.
    Ok(Some((text, DeclaredOptions::read(text)?)))
}

fn read_options(scanner: &mut Scanner<'_>) -> Result<DeclaredOptions, Fault> {
    let mut seen = SeenOptions::default();
    object(scanner, "options", |scanner, key| match &*key.word() {
        b"maxBytes" => set_once(&mut seen.max_bytes, "options.maxBytes", || read_number(scanner, "options.maxBytes")),
        b"maxLength" => set_once(&mut seen.max_length, "options.maxLength", || read_number(scanner, "options.maxLength")),
        b"policy" => set_once(&mut seen.policy, "options.policy", || read_policy(scanner)),
        b"ttlSeconds" => set_once(&mut seen.ttl_seconds, "options.ttlSeconds", || read_number(scanner, "options.ttlSeconds")),
        b"leaseSeconds" => set_once(&mut seen.lease_seconds, "options.leaseSeconds", || read_number(scanner, "options.leaseSeconds")),
        b"retryLimit" => set_once(&mut seen.retry_limit, "options.retryLimit", || read_number(scanner, "options.retryLimit")),
        b"windowBuffer" => set_once(&mut seen.window, "options.windowBuffer", || read_window(scanner)),
        _ => Err(unknown_option("options", key)),
    })?;
    let (window_ms, window_count) = seen.window.unwrap_or_default();
    Ok(DeclaredOptions {
        max_bytes: seen.max_bytes.flatten(),
        max_length: seen.max_length.flatten(),
        policy: seen.policy,
        ttl_seconds: seen.ttl_seconds.flatten(),
        lease_seconds: seen.lease_seconds.flatten(),
        retry_limit: seen.retry_limit.flatten(),
        window_ms,
        window_count,
    })
}

/// Which options were seen: a number that is null was seen, and not given.
#[derive(Default)]
struct SeenOptions {
    max_bytes: Option<Option<u64>>,
    max_length: Option<Option<u64>>,
    policy: Option<Policy>,
    ttl_seconds: Option<Option<u64>>,
    lease_seconds: Option<Option<u64>>,
    retry_limit: Option<Option<u64>>,
    window: Option<(Option<u64>, Option<u64>)>,
}

/// windowBuffer's ms and count.
fn read_window(scanner: &mut Scanner<'_>) -> Result<(Option<u64>, Option<u64>), Fault> {
    let (mut ms, mut count) = (None, None);
    object(scanner, "options.windowBuffer", |scanner, key| match &*key.word() {
        b"ms" => set_once(&mut ms, "options.windowBuffer.ms", || read_number(scanner, "options.windowBuffer.ms")),
        b"count" => set_once(&mut count, "options.windowBuffer.count", || read_number(scanner, "options.windowBuffer.count")),
        _ => Err(unknown_option("options.windowBuffer", key)),
    })?;
    Ok((ms.flatten(), count.flatten()))
}

fn read_policy(scanner: &mut Scanner<'_>) -> Result<Policy, Fault> {
    if scanner.token() != b'"' {
        return wrong_type(scanner, "options.policy", "\"reject\" or \"dropOldest\"");
    }
    match &*scanner.string()?.word() {
        b"reject" => Ok(Policy::Reject),
        b"dropOldest" => Ok(Policy::DropOldest),
        _ => Err(Fault::UnknownPolicy),
    }
}

/// A non-negative integer as JSON spells one, or None for null; -0 is refused like every sign.
pub(super) fn read_number(scanner: &mut Scanner<'_>, field: &'static str) -> Result<Option<u64>, Fault> {
    let text = scanner.value()?;
    if text == b"null" {
        return Ok(None);
    }
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(Fault::WrongType { field, expected: "a non-negative integer" });
    }
    Ok(Some(text.iter().fold(0, |number: u64, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))))
}

fn unknown_option(within: &'static str, key: Text<'_>) -> Fault {
    /// Characters of the key that the error shows.
    const SHOWN_CHARS_MAX: usize = 64;
    let key = String::from_utf8_lossy(&key.word()).chars().take(SHOWN_CHARS_MAX).collect();
    Fault::UnknownOption { within, key }
}

#[cfg(test)]
mod tests;
