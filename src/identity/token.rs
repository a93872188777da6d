//! What one token says: whether it holds, until when, for which tenant, and with which rights.
//!
//! Pure: the time is an argument. Signature and form are the library's; what is accepted beyond them is decided here.

use std::fmt;

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use mayfly_shards::Tenant;
use serde_json::Value;

use super::keys::Keys;
use super::settings::{RoleNames, TokenSettings};
use crate::api::route::Access;

/// Bytes of the longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Why a token is not accepted: all of these are 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// There is none.
    Missing,
    /// Two headers give one, or the header is of another scheme.
    NotBearer,
    /// It is no signed token.
    Malformed,
    /// Its algorithm is not accepted.
    Algorithm,
    /// No key is known by its name, or fits it.
    UnknownKey,
    /// The signature is not that of its key.
    Signature,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It is of another issuer, or says none.
    Issuer,
    /// It is for another audience, or says none.
    Audience,
    /// A claim that matters cannot be read.
    Claim,
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "a token is required: Authorization: Bearer <token>",
            Self::NotBearer => "the Authorization header must be given once, as Bearer <token>",
            Self::Malformed => "the token is not a signed JWT that can be read",
            Self::Algorithm => "the token's algorithm is not accepted",
            Self::UnknownKey => "the token's key is not known",
            Self::Signature => "the token's signature is not valid",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::Issuer => "the token's issuer is not accepted",
            Self::Audience => "the token is not for this audience",
            Self::Claim => "a claim of the token cannot be read (exp, nbf, or its tenant, which must be a UUID)",
        })
    }
}

/// What the bearer may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    may_read: bool,
    may_write: bool,
    is_admin: bool,
}

impl Rights {
    /// Whether they suffice for a route.
    #[must_use]
    pub fn allow(self, access: Access) -> bool {
        match access {
            Access::Public => true,
            Access::ReadOnly => self.may_read,
            Access::WriteOnly => self.may_write,
            Access::ReadWrite => self.may_read && self.may_write,
            Access::Admin => self.is_admin,
        }
    }

    fn add(&mut self, role: &str, names: &RoleNames) {
        let is_admin = role == names.admin;
        let is_both = is_admin || role == names.read_write;
        self.is_admin |= is_admin;
        self.may_read |= is_both || role == names.read_only;
        self.may_write |= is_both || role == names.write_only;
    }
}

/// An accepted token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grantee {
    /// Whose requests its bearer makes.
    pub tenant: Tenant,
    /// What they may be.
    pub rights: Rights,
    /// The first second, since 1970, when it holds.
    pub(super) from: i64,
    /// The first second when it does not any more.
    pub(super) until: i64,
    /// The number of its key.
    pub(super) key: u64,
}

impl Grantee {
    /// Why it does not hold at this time.
    pub(super) fn fault_at(&self, now: i64) -> Option<TokenFault> {
        if now >= self.until {
            return Some(TokenFault::Expired);
        }
        (now < self.from).then_some(TokenFault::NotYetValid)
    }
}

/// What every token must be like.
#[derive(Debug)]
pub struct Rules {
    algorithms: Vec<Algorithm>,
    validation: Validation,
    skew_s: i64,
    roles_claims: Vec<String>,
    role_names: RoleNames,
    tenant_claim: String,
}

impl Rules {
    /// Those of the settings, whose `algorithms` are accepted.
    pub(super) fn new(settings: &TokenSettings, algorithms: Vec<Algorithm>) -> Self {
        let mut validation = Validation::default();
        validation.required_spec_claims.clear();
        // Times are compared here, as a token is asked for again and again.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = settings.audience.is_some();
        if let Some(issuer) = &settings.issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".to_owned());
        }
        if let Some(audience) = &settings.audience {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".to_owned());
        }
        Self {
            algorithms,
            validation,
            skew_s: i64::try_from(settings.clock_skew.as_secs()).unwrap_or(i64::MAX),
            roles_claims: settings.roles_claims.clone(),
            role_names: settings.role_names.clone(),
            tenant_claim: settings.tenant_claim.clone(),
        }
    }

    /// What a token says at this time (seconds since 1970).
    pub(super) fn check(&self, token: &[u8], keys: &Keys, now: i64) -> Result<Grantee, TokenFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::Malformed);
        }
        // An algorithm that nobody knows, such as none, is none that can be read.
        let header = decode_header(token).map_err(|_| TokenFault::Malformed)?;
        if !self.algorithms.contains(&header.alg) {
            return Err(TokenFault::Algorithm);
        }
        let validation = Validation { algorithms: vec![header.alg], ..self.validation.clone() };
        let mut fault = TokenFault::UnknownKey;
        for key in keys.candidates(header.alg, header.kid.as_deref()) {
            match decode::<Value>(token, &key.decoding, &validation) {
                Ok(data) => return self.read(&data.claims, key.number, now),
                Err(error) => fault = fault_of(&error),
            }
            if fault != TokenFault::Signature {
                break;
            }
        }
        Err(fault)
    }

    fn read(&self, claims: &Value, key: u64, now: i64) -> Result<Grantee, TokenFault> {
        let until = time(claims, "exp")?.map_or(i64::MAX, |exp| exp.saturating_add(self.skew_s));
        let from = time(claims, "nbf")?.map_or(i64::MIN, |nbf| nbf.saturating_sub(self.skew_s));
        let tenant = match claim(claims, &self.tenant_claim) {
            None | Some(Value::Null) => Tenant::DEFAULT,
            Some(Value::String(text)) => Tenant::parse(text.as_bytes()).ok_or(TokenFault::Claim)?,
            Some(_) => return Err(TokenFault::Claim),
        };
        let grantee = Grantee { tenant, rights: self.rights(claims), from, until, key };
        match grantee.fault_at(now) {
            Some(fault) => Err(fault),
            None => Ok(grantee),
        }
    }

    /// The roles of all claims that hold some, as text or as a list of texts, add up.
    fn rights(&self, claims: &Value) -> Rights {
        let mut rights = Rights::default();
        for name in &self.roles_claims {
            let roles = match claim(claims, name) {
                Some(Value::Array(roles)) => roles.as_slice(),
                Some(role) => std::slice::from_ref(role),
                None => &[],
            };
            roles.iter().filter_map(Value::as_str).for_each(|role| rights.add(role, &self.role_names));
        }
        rights
    }
}

/// A claim by its whole name, else by a path of names with dots between them.
fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| name.split('.').try_fold(claims, |within, name| within.get(name)))
}

/// A time, in whole seconds; a fraction is dropped.
fn time(claims: &Value, name: &str) -> Result<Option<i64>, TokenFault> {
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds.floor() as i64));
            whole.map(Some).ok_or(TokenFault::Claim)
        }
        Some(_) => Err(TokenFault::Claim),
    }
}

/// The key that a token names.
pub(super) fn kid_of(token: &[u8]) -> Option<String> {
    decode_header(token).ok()?.kid
}

fn fault_of(error: &Error) -> TokenFault {
    match error.kind() {
        ErrorKind::InvalidIssuer => TokenFault::Issuer,
        ErrorKind::InvalidAudience => TokenFault::Audience,
        ErrorKind::MissingRequiredClaim(name) | ErrorKind::InvalidClaimFormat(name) if name == "iss" => TokenFault::Issuer,
        ErrorKind::MissingRequiredClaim(name) | ErrorKind::InvalidClaimFormat(name) if name == "aud" => TokenFault::Audience,
        ErrorKind::InvalidToken | ErrorKind::Base64(_) | ErrorKind::Json(_) | ErrorKind::Utf8(_) => TokenFault::Malformed,
        _ => TokenFault::Signature,
    }
}
