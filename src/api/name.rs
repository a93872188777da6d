//! Names of queues, partitions and groups: 1 to 512 bytes of UTF-8, no byte below 0x20 and no 0x7f; anything else is legal.

use mayfly_shards::NAME_BYTES_MAX;

use super::fault::Fault;

/// Checks a name that is known to be UTF-8.
///
/// # Errors
/// Which rule it breaks.
pub(super) fn check(name: &str, field: &'static str) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Fault::NameEmpty(field));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Fault::NameTooLong(field));
    }
    if name.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return Err(Fault::NameControl(field));
    }
    Ok(())
}
