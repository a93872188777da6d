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

/// How the groups begin that are nobody's but one subscriber's.
const PRIVATE_PREFIX: &str = "subscriber:";

/// A private group: one subscriber's, which named none. It begins at the end of every partition, and goes when its subscriber left.
///
/// Its name is all that tells it: `subscriber:<16 lower hex digits>:<lower hex number>`, and `:<partition>` behind it when it reads
/// that one alone. Whoever mints such names sees to it that clients cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateGroup<'a> {
    /// All that it reads; None: every partition.
    pub partition: Option<&'a str>,
}

impl<'a> PrivateGroup<'a> {
    /// What a group's name says; None: it is anybody's.
    #[must_use]
    pub fn of(group: &'a str) -> Option<Self> {
        let (incarnation, rest) = group.strip_prefix(PRIVATE_PREFIX)?.split_once(':')?;
        let (number, partition) = rest.split_once(':').map_or((rest, None), |(number, partition)| (number, Some(partition)));
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let is_one = incarnation.len() == 16 && is_hex(incarnation) && is_hex(number) && number.len() <= 16 && partition != Some("");
        is_one.then_some(Self { partition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_groups_name_tells_it_and_what_it_reads() {
        let of = |name| PrivateGroup::of(name).map(|group| group.partition);
        assert_eq!(of("subscriber:00000000000000ff:1a"), Some(None));
        assert_eq!(of("subscriber:00000000000000ff:1a:p:q"), Some(Some("p:q")));
        for name in [
            "subscriber",
            "subscriber:",
            "subscriber:ff:1",
            "subscriber:00000000000000ff",
            "subscriber:00000000000000ff:",
            "subscriber:00000000000000FF:1",
            "subscriber:00000000000000ff:1:",
            "subscriber:00000000000000ff:g",
            "Subscriber:00000000000000ff:1",
        ] {
            assert_eq!(PrivateGroup::of(name), None, "{name}");
        }
    }
}
