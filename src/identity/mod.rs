//! Who asks: the tenant of a request, out of its head.
//!
//! Pure: a head in, a tenant or a refusal out. A public route has no identity: nothing that a client sends there is looked at.

use mayfly_net::http::Head;
use mayfly_shards::Tenant;

use crate::api::Failure;
use crate::api::fault::Fault;
use crate::api::route::Access;

/// The header that names the tenant.
const TENANT_HEADER: &str = "x-queen-tenant";

/// What a request's identity is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Source {
    /// From nothing: every request is the default tenant's.
    #[default]
    Default,
    /// From `x-queen-tenant`, which is there and a UUID.
    Header,
}

/// How one core identifies requests.
#[derive(Debug)]
pub struct Identities {
    source: Source,
}

impl Identities {
    /// Identities taken from `source`.
    #[must_use]
    pub fn new(source: Source) -> Self {
        Self { source }
    }

    /// The tenant whose request has this head, on a route with this access.
    ///
    /// # Errors
    /// Why it is nobody's.
    #[inline]
    pub fn identify(&mut self, access: Access, head: &Head<'_>) -> Result<Tenant, Failure> {
        if self.source == Source::Default || access == Access::Public {
            return Ok(Tenant::DEFAULT);
        }
        Ok(named_tenant(head)?.ok_or(Fault::Missing(TENANT_HEADER))?)
    }
}

/// The tenant that a head names. Named twice it is nobody's: a proxy may have meant the one and the client the other.
fn named_tenant(head: &Head<'_>) -> Result<Option<Tenant>, Fault> {
    let mut names = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(TENANT_HEADER.as_bytes()));
    let Some((_, value)) = names.next() else { return Ok(None) };
    if names.next().is_some() {
        return Err(Fault::Twice(TENANT_HEADER));
    }
    Tenant::parse(value).map(Some).ok_or(Fault::NotUuid(TENANT_HEADER))
}
