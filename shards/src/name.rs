//! Names: tenants, queues, and the two names that stand for "none given".

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The partition of a push that names none.
pub const DEFAULT_PARTITION: &str = "Default";

/// The group of a pop that names none: one shared cursor.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// Whose queues: the UUID as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tenant(pub u128);

impl Tenant {
    /// 00000000-0000-0000-0000-000000000001: every request's tenant while tenancy is off.
    pub const DEFAULT: Self = Self(1);

    /// The tenant that a UUID names, in the one text form of RFC 9562: five groups of hex digits, in any case. None: it is no such text.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != UUID_BYTES {
            return None;
        }
        let mut number = 0;
        for (at, byte) in text.iter().enumerate() {
            match (char::from(*byte).to_digit(16), UUID_HYPHENS.contains(&at)) {
                (Some(digit), false) => number = (number << 4) | u128::from(digit),
                (None, true) if *byte == b'-' => {}
                _ => return None,
            }
        }
        Some(Self(number))
    }
}

/// Bytes of a UUID's text, and where its hyphens stand.
const UUID_BYTES: usize = 36;
const UUID_HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl fmt::Display for Tenant {
    /// The UUID, in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = [(96, 8), (80, 4), (64, 4), (48, 4), (0, 12)];
        for (index, (shift, digits)) in groups.into_iter().enumerate() {
            let mask = (1_u128 << (4 * digits)) - 1;
            let hyphen = if index == 0 { "" } else { "-" };
            write!(f, "{hyphen}{:0digits$x}", (self.0 >> shift) & mask)?;
        }
        Ok(())
    }
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
    fn a_tenant_is_the_text_of_a_uuid_and_nothing_else() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(Tenant::parse(text.as_bytes()), Some(Tenant(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)));
        assert_eq!(Tenant::parse(text.to_uppercase().as_bytes()), Tenant::parse(text.as_bytes()));
        assert_eq!(Tenant::parse(b"00000000-0000-0000-0000-000000000001"), Some(Tenant::DEFAULT));
        for number in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            assert_eq!(Tenant::parse(Tenant(number).to_string().as_bytes()), Some(Tenant(number)));
        }
        for text in [
            "",
            "1",
            "0123456789abcdef0123456789abcdef",
            "{01234567-89ab-cdef-0123-456789abcdef}",
            "urn:uuid:01234567-89ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcde",
            "01234567-89ab-cdef-0123-456789abcdeg",
            "01234567-89ab-cdef-01234-56789abcdef",
            "01234567 89ab cdef 0123 456789abcdef",
            "+1234567-89ab-cdef-0123-456789abcdef",
            "-1234567-89ab-cdef-0123-456789abcdef",
        ] {
            assert_eq!(Tenant::parse(text.as_bytes()), None, "{text}");
        }
    }

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
