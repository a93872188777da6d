//! Names: tenants, queues, and the two names that stand for "none given".

use std::sync::Arc;

/// The partition of a push that names none.
pub const DEFAULT_PARTITION: &str = "Default";

/// The group of a pop that names none: one shared cursor.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// Whose queues: the UUID as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(pub u128);

impl Tenant {
    /// 00000000-0000-0000-0000-000000000001: every request's tenant while tenancy is off.
    pub const DEFAULT: Self = Self(1);
}

/// A queue of a tenant, owned: what letters between cores carry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    /// Whose queue it is.
    pub tenant: Tenant,
    /// Its name, 1 to 512 bytes.
    pub name: Arc<str>,
}
