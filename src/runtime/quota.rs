//! Grants: who may use the family, and the route that says so.

use mayfly_net::http::Status;
use mayfly_shards::{Refusal, Tenant};

use super::core::Core;
use super::intake::Asking;
use super::session::Asked;
use crate::api::{Failure, quota};
use crate::control::Change;

impl Core {
    /// Whether a request of the family may go on, once its shape is known to be right.
    ///
    /// # Errors
    /// Its tenant has no grant where one is required, or a disabled one.
    pub(super) fn check_grant(&mut self, tenant: Tenant) -> Result<(), Failure> {
        if self.shard.admits(tenant) { Ok(()) } else { Err(Refusal::NotGranted.into()) }
    }

    /// Proposes a grant; its echo says that it holds.
    pub(super) fn set_quota(&mut self, asking: Asking<'_>, body: &[u8]) -> Result<(), Failure> {
        let quota::QuotaRequest { tenant, grant } = quota::read(body)?;
        self.propose(asking, Asked::Quota { tenant, grant }, Change::Grant { tenant, grant: Some(grant), version: None })
    }

    /// One tenant's grant and usage, or those of all that have a grant.
    pub(super) fn quota(&mut self, asking: Asking<'_>, params: &[u8]) -> Result<(), Failure> {
        let mut answer = Vec::new();
        match quota::asked_tenant(params)? {
            Some(tenant) => quota::used(&mut answer, tenant, &self.grants.in_force(tenant), &self.budget.usage(tenant)),
            None => {
                let all: Vec<_> = self.grants.all().into_iter().map(|(tenant, grant)| (tenant, grant, self.budget.usage(tenant))).collect();
                quota::all(&mut answer, &all);
            }
        }
        self.say(asking, Status::Ok, &answer)
    }
}
