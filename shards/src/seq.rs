//! Message numbers of one incarnation, which also say on which shard a message was pushed and whether it is a call's request.
//!
//! `seq = 2 * (count * shards + shard) + is_call`: a shard's numbers grow with every message of any of its rings, no two shards give the
//! same, and a call's request is told by its number alone. So no message carries a word for an inbox that most have not: the inbox of a
//! call is known by its request's seq.

use crate::placement::ShardIndex;

/// The inbox that no call has.
pub const NO_INBOX: u64 = 0;

/// The `count`-th number of a shard, counted from 1.
pub(crate) fn nth(count: u64, shard: ShardIndex, shard_count: u16, is_call: bool) -> u64 {
    2 * (count * u64::from(shard_count.max(1)) + u64::from(shard.0)) + u64::from(is_call)
}

/// The inbox that answers to a message go to, if it is a call's request.
#[must_use]
pub const fn inbox_of(seq: u64) -> Option<u64> {
    if seq % 2 == 1 { Some(seq) } else { None }
}

/// The shard that keeps an inbox, if the number can be one's.
#[must_use]
pub const fn inbox_shard(inbox: u64, shard_count: u16) -> Option<ShardIndex> {
    if inbox.is_multiple_of(2) {
        return None;
    }
    let shards = if shard_count == 0 { 1 } else { shard_count as u64 };
    Some(ShardIndex((inbox / 2 % shards) as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_is_a_requests_number_and_leads_back_to_its_shard() {
        for (count, shard) in [(1, 0), (1, 3), (2, 0), (77, 2)] {
            let shard = ShardIndex(shard);
            assert_eq!(inbox_of(nth(count, shard, 4, false)), None);
            let inbox = inbox_of(nth(count, shard, 4, true)).unwrap();
            assert_eq!(inbox_shard(inbox, 4), Some(shard));
        }
        assert!(nth(1, ShardIndex(3), 4, true) < nth(2, ShardIndex(0), 4, false));
        assert_eq!(inbox_shard(NO_INBOX, 4), None);
    }
}
