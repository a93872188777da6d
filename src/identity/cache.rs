//! Tokens that were checked and hold, by their bytes: one core's, bounded.
//!
//! Only accepted tokens come in, so whoever has none can neither fill the cache nor push anything out of it. Tokens are compared whole, not
//! by their hash. Two generations: what is used moves to the young one, and when that is full the old one is dropped.

use std::collections::HashMap;

use super::token::Grantee;

/// Tokens and bytes of one generation at most; the cache holds twice that.
const GENERATION_TOKENS_MAX: usize = 2_048;
const GENERATION_BYTES_MAX: usize = 2 << 20;

type Generation = HashMap<Box<[u8]>, Grantee, ahash::RandomState>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: Generation,
    young_bytes: usize,
    old: Generation,
}

impl Cache {
    /// What was kept of a token.
    #[inline]
    pub(super) fn find(&mut self, token: &[u8]) -> Option<Grantee> {
        if let Some(found) = self.young.get(token) {
            return Some(*found);
        }
        let (token, found) = self.old.remove_entry(token)?;
        self.put(token, found);
        Some(found)
    }

    /// Keeps a token that holds.
    pub(super) fn keep(&mut self, token: &[u8], grantee: Grantee) {
        self.put(token.into(), grantee);
    }

    fn put(&mut self, token: Box<[u8]>, grantee: Grantee) {
        if self.young.len() >= GENERATION_TOKENS_MAX || self.young_bytes + token.len() > GENERATION_BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += token.len();
        self.young.insert(token, grantee);
    }

    /// Forgets a token that does not hold any more.
    pub(super) fn forget(&mut self, token: &[u8]) {
        if let Some((token, _)) = self.young.remove_entry(token) {
            self.young_bytes -= token.len();
        }
    }

    /// Forgets all tokens of keys that are gone.
    pub(super) fn keep_those_of(&mut self, has_key: impl Fn(u64) -> bool) {
        self.young.retain(|_, grantee| has_key(grantee.key));
        self.young_bytes = self.young.keys().map(|token| token.len()).sum();
        self.old.retain(|_, grantee| has_key(grantee.key));
    }
}

#[cfg(test)]
mod tests {
    use mayfly_shards::Tenant;

    use super::*;

    fn grantee(key: u64) -> Grantee {
        Grantee { tenant: Tenant::DEFAULT, rights: Default::default(), from: 0, until: 0, key }
    }

    fn held(cache: &Cache) -> (usize, usize) {
        let bytes = |generation: &Generation| generation.keys().map(|token| token.len()).sum::<usize>();
        assert_eq!(cache.young_bytes, bytes(&cache.young));
        (cache.young.len() + cache.old.len(), bytes(&cache.young) + bytes(&cache.old))
    }

    #[test]
    fn it_is_bounded_and_what_is_used_stays() {
        let mut cache = Cache::default();
        cache.keep(b"used", grantee(7));
        for index in 0..20_000_u32 {
            cache.keep(&index.to_le_bytes(), grantee(1));
            if index % 1_000 == 0 {
                assert_eq!(cache.find(b"used").map(|found| found.key), Some(7), "{index}");
            }
        }
        assert!(held(&cache).0 <= 2 * GENERATION_TOKENS_MAX);
        assert_eq!(cache.find(&0_u32.to_le_bytes()), None, "not used, so dropped");
        for index in 0..1_000_u32 {
            cache.keep(&[&index.to_le_bytes()[..], &[0; 16_000]].concat(), grantee(1));
        }
        assert!(held(&cache).1 <= 2 * GENERATION_BYTES_MAX);
    }

    #[test]
    fn tokens_of_a_key_that_is_gone_go_with_it() {
        let mut cache = Cache::default();
        for index in 0..4_000_u32 {
            cache.keep(&index.to_le_bytes(), grantee(u64::from(index % 2)));
        }
        cache.keep_those_of(|key| key == 1);
        assert_eq!(held(&cache).0, 2_000);
        assert_eq!((cache.find(&2_u32.to_le_bytes()), cache.find(&3_u32.to_le_bytes())), (None, Some(grantee(1))));
        cache.forget(&3_u32.to_le_bytes());
        assert_eq!(cache.find(&3_u32.to_le_bytes()), None);
        held(&cache);
    }
}
