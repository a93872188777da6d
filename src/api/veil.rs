//! What keeps a tenant from counting the messages of others.
//!
//! The numbers of messages grow with every message of a core, whoever pushes it: a tenant that compares two of its own ids would see how
//! much the others push. On a node of several tenants ids therefore carry the number enciphered, under a key of the node's start: as
//! unique as the number is, and telling nothing else. A node of one tenant has nothing to hide and spares itself the work.

use std::fmt;
use std::sync::Arc;

use blowfish::Blowfish;
use blowfish::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};

/// See the module.
#[derive(Clone, Default)]
pub struct Veil {
    cipher: Option<Arc<Blowfish>>,
}

impl Veil {
    /// Under this key.
    #[must_use]
    pub fn new(key: u128) -> Self {
        let cipher = Blowfish::new_from_slice(&key.to_be_bytes()).unwrap_or_else(|_| unreachable!("sixteen bytes are a key of it"));
        Self { cipher: Some(Arc::new(cipher)) }
    }

    /// What stands in ids for a number.
    #[inline]
    pub(super) fn cover(&self, number: u64) -> u64 {
        let Some(cipher) = &self.cipher else { return number };
        let mut block = number.to_be_bytes().into();
        cipher.encrypt_block(&mut block);
        u64::from_be_bytes(block.into())
    }

    /// The number for which this stands in ids.
    #[inline]
    pub(super) fn uncover(&self, covered: u64) -> u64 {
        let Some(cipher) = &self.cipher else { return covered };
        let mut block = covered.to_be_bytes().into();
        cipher.decrypt_block(&mut block);
        u64::from_be_bytes(block.into())
    }
}

impl fmt::Debug for Veil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cipher.is_some() { "Veil(..)" } else { "Veil" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_covered_number_leads_back_and_tells_nothing_of_its_neighbours() {
        let (veil, other) = (Veil::new(7), Veil::new(8));
        for number in [0, 1, 2, 1 << 40, u64::MAX] {
            let covered = veil.cover(number);
            assert_eq!(veil.uncover(covered), number);
            assert_ne!(covered, other.cover(number), "another start has another key");
        }
        let steps: std::collections::HashSet<u64> = (0..1_000).map(|n| veil.cover(n + 1).wrapping_sub(veil.cover(n))).collect();
        assert_eq!(steps.len(), 1_000, "no two steps are alike");
    }

    #[test]
    fn without_a_key_a_number_is_itself() {
        assert_eq!((Veil::default().cover(7), Veil::default().uncover(7)), (7, 7));
    }
}
