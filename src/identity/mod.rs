//! Who asks: the tenant of a request and what its bearer may do, out of its head alone.
//!
//! - [`settings`]: what tokens must be like, as typed.
//! - [`keys`] and [`published`]: what they are checked with, and the thread that fetches what a URL publishes.
//! - [`token`]: what one token says. [`cache`]: those that were checked.
//!
//! Invariants: a public route has no identity, and nothing that a client sends there is looked at; every other route is refused unless a
//! rule here allows it; a token is never kept beyond its end or its key's, and is never written to a log.

mod cache;
mod keys;
mod published;
pub mod settings;
pub mod token;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mayfly_net::http::{Head, query};
use mayfly_shards::Tenant;

use self::cache::Cache;
pub use self::keys::KeyError;
use self::keys::Keys;
use self::published::KeyRing;
pub use self::settings::{Contradiction, TokenSettings};
use self::token::{Grantee, Rules, TokenFault, kid_of};
use crate::api::Failure;
use crate::api::fault::Fault;
use crate::api::route::{Access, Endpoint, Route};

/// The header that names the tenant.
const TENANT_HEADER: &str = "x-queen-tenant";
/// The query parameter that a browser's event stream may give its token in.
const TOKEN_PARAMETER: &str = "access_token";

/// What a request's identity is taken from, as configured.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Source {
    /// From nothing: every request is the default tenant's.
    #[default]
    Default,
    /// From `x-queen-tenant`, which is there and a UUID.
    Header,
    /// From a token.
    Token(Box<TokenSettings>),
}

/// Why a token that holds does not suffice: all of these are 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// Its roles do not allow the route.
    Role,
    /// The request names another tenant.
    OtherTenant,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Role => "the token's roles do not allow this",
            Self::OtherTenant => "x-queen-tenant names another tenant than the token",
        })
    }
}

/// What all cores of a node identify requests by.
#[derive(Clone, Debug)]
pub enum Authority {
    /// See [`Source::Default`].
    Default,
    /// See [`Source::Header`].
    Header,
    /// See [`Source::Token`].
    Token(Arc<TokenAuthority>),
}

/// Rules, keys, and paths that need no token.
#[derive(Debug)]
pub struct TokenAuthority {
    rules: Rules,
    ring: Arc<KeyRing>,
    publishes: bool,
    skip_paths: Vec<String>,
}

impl Authority {
    /// Reads the keys, and begins to fetch those that a URL publishes.
    ///
    /// # Errors
    /// A key cannot be read, or the settings contradict each other.
    pub fn open(source: &Source) -> Result<Self, Unusable> {
        let settings = match source {
            Source::Default => return Ok(Self::Default),
            Source::Header => return Ok(Self::Header),
            Source::Token(settings) => settings,
        };
        let algorithms = settings.accepted().map_err(Unusable::Contradiction)?;
        let ring = Arc::new(KeyRing::new(Keys::of(settings).map_err(Unusable::Key)?));
        if let Some(url) = &settings.jwks_url {
            published::follow(Arc::clone(&ring), url.clone(), settings.jwks_refresh);
        }
        Ok(Self::Token(Arc::new(TokenAuthority {
            rules: Rules::new(settings, algorithms),
            ring,
            publishes: settings.jwks_url.is_some(),
            skip_paths: settings.skip_paths.clone(),
        })))
    }
}

/// Why tokens cannot be checked as the settings ask for.
#[derive(Debug)]
pub enum Unusable {
    /// The settings contradict each other.
    Contradiction(Contradiction),
    /// A key cannot be used.
    Key(KeyError),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction(contradiction) => contradiction.fmt(f),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unusable {}

/// How one core identifies requests.
#[derive(Debug)]
pub enum Identities {
    /// Every request is the default tenant's.
    Default,
    /// By the header.
    Header,
    /// By tokens.
    Token(Box<Bearers>),
}

impl Identities {
    /// Of one core.
    #[must_use]
    pub fn new(authority: &Authority) -> Self {
        match authority {
            Authority::Default => Self::Default,
            Authority::Header => Self::Header,
            Authority::Token(authority) => Self::Token(Box::new(Bearers::new(Arc::clone(authority)))),
        }
    }

    /// Whether there is nothing to tell.
    #[inline]
    #[must_use]
    pub fn are_default(&self) -> bool {
        matches!(self, Self::Default)
    }

    /// The tenant whose request has this head.
    ///
    /// # Errors
    /// Why it is nobody's, or not allowed.
    pub fn identify(&mut self, endpoint: &Endpoint, head: &Head<'_>) -> Result<Tenant, Failure> {
        match (self, endpoint.access) {
            (Self::Default, _) | (_, Access::Public) => Ok(Tenant::DEFAULT),
            // What these routes do is the node's; a tenant that they mean stands in their body.
            (Self::Header, Access::Admin) => Ok(Tenant::DEFAULT),
            (Self::Header, _) => Ok(Claims::of(head).tenant()?.ok_or(Fault::Missing(TENANT_HEADER))?),
            (Self::Token(bearers), _) => bearers.identify(endpoint, head, seconds_now()),
        }
    }
}

/// Streams, which outlive their request's head but not its token.
impl Identities {
    /// The token by which a stream was allowed, to be asked about again; None: by none.
    #[must_use]
    pub fn token_of(&self, head: &Head<'_>) -> Option<Arc<[u8]>> {
        let Self::Token(bearers) = self else { return None };
        if bearers.authority.skips(head.path) {
            return None;
        }
        match Claims::of(head).token() {
            Ok(Some(token)) => Some(token.into()),
            Ok(None) => parameter(head).ok().map(|token| token.into_bytes().into()),
            Err(_) => None,
        }
    }

    /// How long a token holds from now on, as far as it says; its key may go before.
    ///
    /// # Errors
    /// It holds no more.
    pub fn holds_for(&mut self, token: &[u8]) -> Result<Duration, Failure> {
        let Self::Token(bearers) = self else { return Ok(Duration::MAX) };
        let until = bearers.grantee(token, seconds_now())?.until;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Duration::from_secs(until.unsigned_abs()).saturating_sub(since))
    }
}

/// Wall-clock time, which is what tokens speak of.
fn seconds_now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// What the header lines of a request say about who asks.
#[derive(Debug, Default)]
struct Claims<'a> {
    authorization: Option<&'a [u8]>,
    tenant: Option<&'a [u8]>,
    has_two_authorizations: bool,
    has_two_tenants: bool,
}

impl<'a> Claims<'a> {
    fn of(head: &Head<'a>) -> Self {
        let mut claims = Self::default();
        for (name, value) in head.fields() {
            match name.len() {
                13 if name.eq_ignore_ascii_case(b"authorization") => {
                    claims.has_two_authorizations |= claims.authorization.replace(value).is_some();
                }
                14 if name.eq_ignore_ascii_case(TENANT_HEADER.as_bytes()) => {
                    claims.has_two_tenants |= claims.tenant.replace(value).is_some();
                }
                _ => {}
            }
        }
        claims
    }

    /// The tenant that is named. Named twice it is nobody's: a proxy may have meant the one and the client the other.
    fn tenant(&self) -> Result<Option<Tenant>, Fault> {
        if self.has_two_tenants {
            return Err(Fault::Twice(TENANT_HEADER));
        }
        let Some(value) = self.tenant else { return Ok(None) };
        Tenant::parse(value).map(Some).ok_or(Fault::NotUuid(TENANT_HEADER))
    }

    /// The token of the header; None: there is no header.
    fn token(&self) -> Result<Option<&'a [u8]>, TokenFault> {
        if self.has_two_authorizations {
            return Err(TokenFault::NotBearer);
        }
        let Some(value) = self.authorization else { return Ok(None) };
        let (scheme, token) = value.split_at_checked(7).ok_or(TokenFault::NotBearer)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(TokenFault::NotBearer);
        }
        Ok(Some(token.trim_ascii_start()))
    }
}

/// One core's checked tokens.
#[derive(Debug)]
pub struct Bearers {
    authority: Arc<TokenAuthority>,
    version: u64,
    keys: Arc<Keys>,
    cache: Cache,
}

impl Bearers {
    fn new(authority: Arc<TokenAuthority>) -> Self {
        let (version, keys) = (authority.ring.version(), authority.ring.keys());
        Self { authority, version, keys, cache: Cache::default() }
    }

    fn identify(&mut self, endpoint: &Endpoint, head: &Head<'_>, now: i64) -> Result<Tenant, Failure> {
        let claims = Claims::of(head);
        let tenant = if self.authority.skips(head.path) {
            Tenant::DEFAULT
        } else {
            let grantee = match claims.token()? {
                Some(token) => self.grantee(token, now)?,
                None if endpoint.route == Route::Subscribe => self.grantee(parameter(head)?.as_bytes(), now)?,
                None => return Err(TokenFault::Missing.into()),
            };
            if !grantee.rights.allow(endpoint.access) {
                return Err(Forbidden::Role.into());
            }
            grantee.tenant
        };
        match claims.tenant()? {
            Some(named) if named != tenant => Err(Forbidden::OtherTenant.into()),
            _ => Ok(tenant),
        }
    }

    fn grantee(&mut self, token: &[u8], now: i64) -> Result<Grantee, TokenFault> {
        self.follow_keys();
        if let Some(grantee) = self.cache.find(token) {
            if let Some(fault) = grantee.fault_at(now) {
                self.cache.forget(token);
                return Err(fault);
            }
            return Ok(grantee);
        }
        let checked = self.authority.rules.check(token, &self.keys, now);
        match &checked {
            Ok(grantee) => self.cache.keep(token, *grantee),
            // A key that was configured may be tried for one that is not known yet.
            Err(TokenFault::UnknownKey | TokenFault::Signature) if self.names_unknown_key(token) => self.authority.ring.ask(),
            Err(_) => {}
        }
        checked
    }

    /// Whether a token names a key that is not published yet, as far as is known.
    fn names_unknown_key(&self, token: &[u8]) -> bool {
        self.authority.publishes && kid_of(token).is_none_or(|kid| !self.keys.are_named(&kid))
    }

    /// Takes new keys, and forgets what those checked that are gone.
    #[inline]
    fn follow_keys(&mut self) {
        let version = self.authority.ring.version();
        if version != self.version {
            // Read first: keys that come in between are taken by the next request.
            self.version = version;
            self.keys = self.authority.ring.keys();
            self.cache.keep_those_of(|key| self.keys.has(key));
        }
    }
}

impl TokenAuthority {
    /// Whether a path needs no token: it is one of those named, or below one that ends in a slash.
    fn skips(&self, path: &[u8]) -> bool {
        self.skip_paths.iter().any(|skipped| {
            let skipped = skipped.as_bytes();
            path == skipped || (skipped.len() > 1 && skipped.ends_with(b"/") && path.starts_with(skipped))
        })
    }
}

/// The token of the query.
fn parameter(head: &Head<'_>) -> Result<String, TokenFault> {
    match query::last(head.query.unwrap_or_default(), TOKEN_PARAMETER) {
        Ok(Some(token)) => Ok(token.into_owned()),
        Ok(None) => Err(TokenFault::Missing),
        Err(_) => Err(TokenFault::Malformed),
    }
}

impl From<TokenFault> for Failure {
    fn from(fault: TokenFault) -> Self {
        Self::Unauthorized(fault)
    }
}

impl From<Forbidden> for Failure {
    fn from(forbidden: Forbidden) -> Self {
        Self::Forbidden(forbidden)
    }
}

#[cfg(test)]
mod tests;
