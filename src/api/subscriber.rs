//! Names of the private groups of subscribers that named none: `subscriber:<incarnation>:<number>`, and `:<partition>` behind it when
//! the subscriber reads that one alone. Minted for one subscription; a name of this shape is refused where a client names a group.

use mayfly_shards::PrivateGroup;

use super::fault::Fault;
use super::id::Incarnation;

/// The private group of this number, which is used once.
#[must_use]
pub fn private_group(incarnation: &Incarnation, number: u64, partition: Option<&str>) -> String {
    let mut name = format!("subscriber:{:016x}:{number:x}", incarnation.number);
    if let Some(partition) = partition {
        name.push(':');
        name.push_str(partition);
    }
    name
}

/// Refuses a group that only a subscriber of the node may have.
pub(super) fn check_group(name: &str, field: &'static str) -> Result<(), Fault> {
    if PrivateGroup::of(name).is_some() { Err(Fault::GroupReserved(field)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minted_name_is_a_private_groups_and_no_clients() {
        let incarnation = Incarnation::new(0xab);
        for partition in [None, Some("p"), Some("a:b")] {
            for number in [0, 0x1f, u64::MAX] {
                let name = private_group(&incarnation, number, partition);
                assert_eq!(PrivateGroup::of(&name), Some(PrivateGroup { partition }), "{name}");
                assert_eq!(check_group(&name, "group"), Err(Fault::GroupReserved("group")));
            }
        }
        assert_eq!(check_group("subscriber:1", "group"), Ok(()));
    }
}
