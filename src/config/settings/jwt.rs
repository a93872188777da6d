//! The settings of tokens, which are a table of their own.

use std::path::PathBuf;

use jsonwebtoken::Algorithm;

use super::{Setting, put, value};
use crate::identity::settings::{ALGORITHMS, Secret};

const ON_OFF: &str = "on or off";
const TEXT: &str = "text of 1 to 1024 bytes without control characters";
const NAMES: &str = "names with commas between them, without control characters";

/// Every setting of tokens, in the order of the help.
pub const JWT_SETTINGS: &[Setting] = &[
    Setting {
        flag: "jwt-enabled",
        published: Some("JWT_ENABLED"),
        value_name: "on|off",
        default: "off",
        help: "Ask for a token (JWT) on every route that is not public",
        expected: ON_OFF,
        set: |settings, text| put(&mut settings.jwt.is_enabled, value::switch(text)),
    },
    Setting {
        flag: "jwt-algorithm",
        published: Some("JWT_ALGORITHM"),
        value_name: "LIST",
        default: "HS256",
        help: "Algorithms that are accepted, and no others; auto: all that have a key",
        expected: "auto, or some of HS256, HS384, HS512, RS256, RS384, RS512, EdDSA with commas between them",
        set: |settings, text| put(&mut settings.jwt.algorithms, algorithms(text)),
    },
    Setting {
        flag: "jwt-secret",
        published: Some("JWT_SECRET"),
        value_name: "SECRET",
        default: "none: HS needs one",
        help: "Secret of HS algorithms. Every user of the host can see flags: prefer the variable, or --jwt-secret-file",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.secret, plain(text).map(|text| Some(Secret(text)))),
    },
    Setting {
        flag: "jwt-secret-file",
        published: None,
        value_name: "FILE",
        default: "none: HS needs one",
        help: "File that holds the secret of HS algorithms; line ends at its end do not count",
        expected: "a path",
        set: |settings, text| put(&mut settings.jwt.secret_file, plain(text).map(|text| Some(PathBuf::from(text)))),
    },
    Setting {
        flag: "jwt-public-key",
        published: Some("JWT_PUBLIC_KEY"),
        value_name: "PEM",
        default: "none: RS and EdDSA need one",
        help: "Public key of RS algorithms or EdDSA: PEM text, or the path of a file that holds it",
        expected: "PEM text that begins with -----BEGIN, or the path of a file",
        set: |settings, text| put(&mut settings.jwt.public_key, public_key(text).map(Some)),
    },
    Setting {
        flag: "jwt-jwks-url",
        published: Some("JWT_JWKS_URL"),
        value_name: "URL",
        default: "none: RS and EdDSA need one",
        help: "Where the issuer publishes its keys (JWKS): fetched at start, every --jwt-jwks-refresh-s, and when a token names an unknown one",
        expected: "a URL that begins with http:// or https://",
        set: |settings, text| put(&mut settings.jwt.jwks_url, url(text).map(Some)),
    },
    Setting {
        flag: "jwt-jwks-refresh-s",
        published: Some("JWT_JWKS_REFRESH_INTERVAL"),
        value_name: "SECONDS",
        default: "300",
        help: "How often published keys are fetched anew; when that fails, those known stay",
        expected: "seconds from 1 on, a fraction allowed",
        set: |settings, text| put(&mut settings.jwt.jwks_refresh, value::seconds(text).filter(|span| span.as_secs() >= 1)),
    },
    Setting {
        flag: "jwt-issuer",
        published: Some("JWT_ISSUER"),
        value_name: "TEXT",
        default: "any issuer",
        help: "The iss that a token must have",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.issuer, plain(text).map(Some)),
    },
    Setting {
        flag: "jwt-audience",
        published: Some("JWT_AUDIENCE"),
        value_name: "TEXT",
        default: "any audience",
        help: "The aud that a token must have, alone or among others",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.audience, plain(text).map(Some)),
    },
    Setting {
        flag: "jwt-clock-skew",
        published: Some("JWT_CLOCK_SKEW"),
        value_name: "SECONDS",
        default: "30",
        help: "How much the issuer's clock may differ: exp and nbf are stretched by it",
        expected: "whole seconds from 0 to 3600",
        set: |settings, text| put(&mut settings.jwt.clock_skew, value::whole(text, 0..=3600).map(std::time::Duration::from_secs)),
    },
    Setting {
        flag: "jwt-skip-paths",
        published: Some("JWT_SKIP_PATHS"),
        value_name: "LIST",
        default: "the public routes alone",
        help: "Paths served without a token, as the default tenant, beside the public ones; one that ends in / means all below it",
        expected: "paths that begin with / with commas between them",
        set: |settings, text| put(&mut settings.jwt.skip_paths, names(text).filter(|all| all.iter().all(|path| path.starts_with('/')))),
    },
    Setting {
        flag: "jwt-roles-claim",
        published: Some("JWT_ROLES_CLAIM"),
        value_name: "LIST",
        default: "role,roles",
        help: "Claims that hold roles, each a text or a list of texts; a dot leads into an object (realm_access.roles)",
        expected: NAMES,
        set: |settings, text| put(&mut settings.jwt.roles_claims, names(text)),
    },
    Setting {
        flag: "jwt-role-admin",
        published: Some("JWT_ROLE_ADMIN"),
        value_name: "ROLE",
        default: "admin",
        help: "Name of the role that may do everything, on the node's own routes too",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.role_names.admin, plain(text)),
    },
    Setting {
        flag: "jwt-role-read-write",
        published: Some("JWT_ROLE_READ_WRITE"),
        value_name: "ROLE",
        default: "read-write",
        help: "Name of the role that may do everything in its tenant",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.role_names.read_write, plain(text)),
    },
    Setting {
        flag: "jwt-role-read-only",
        published: Some("JWT_ROLE_READ_ONLY"),
        value_name: "ROLE",
        default: "read-only",
        help: "Name of the role that may list queues and read their depth",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.role_names.read_only, plain(text)),
    },
    Setting {
        flag: "jwt-role-write-only",
        published: Some("JWT_ROLE_WRITE_ONLY"),
        value_name: "ROLE",
        default: "write-only",
        help: "Name of the role that may push",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.role_names.write_only, plain(text)),
    },
    Setting {
        flag: "jwt-tenant-claim",
        published: Some("JWT_TENANT_CLAIM"),
        value_name: "NAME",
        default: "tenant",
        help: "Claim that holds the tenant, a UUID; a token without it is the default tenant's; a dot leads into an object",
        expected: TEXT,
        set: |settings, text| put(&mut settings.jwt.tenant_claim, plain(text)),
    },
];

fn plain(text: &str) -> Option<String> {
    ((1..=1024).contains(&text.len()) && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

fn names(text: &str) -> Option<Vec<String>> {
    plain(text)?.split(',').map(|name| plain(name.trim())).collect()
}

/// No names: all that have a key.
fn algorithms(text: &str) -> Option<Vec<Algorithm>> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(Vec::new());
    }
    let named = |name: &str| ALGORITHMS.into_iter().find(|algorithm| format!("{algorithm:?}").eq_ignore_ascii_case(name.trim()));
    text.split(',').map(named).collect()
}

fn public_key(text: &str) -> Option<String> {
    if text.trim_start().starts_with("-----BEGIN") { Some(text.to_owned()) } else { plain(text) }
}

fn url(text: &str) -> Option<String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))?;
    let has_host = rest.bytes().next().is_some_and(|byte| byte != b'/');
    (has_host && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}
