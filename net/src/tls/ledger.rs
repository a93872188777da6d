//! Which plain bytes the socket took with the ciphertext that it took.

/// A record that was sealed, by its place in the ciphertext of one send.
#[derive(Clone, Copy, Debug)]
struct Sealed {
    begins_at: usize,
    ends_at: usize,
    plain_bytes: usize,
}

/// The records of one send that the socket has not taken whole, in order.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sealed: Vec<Sealed>,
    /// Those in front that were taken.
    taken_count: usize,
    /// Ciphertext taken.
    taken: usize,
}

/// Room that an idle connection keeps.
const KEPT_RECORDS: usize = 4;

impl Ledger {
    /// A record was appended to the send.
    pub(super) fn note(&mut self, begins_at: usize, ends_at: usize, plain_bytes: usize) {
        self.sealed.push(Sealed { begins_at, ends_at, plain_bytes });
    }

    /// The socket took everything up to `taken` of the send: how many plain bytes that completes.
    pub(super) fn take(&mut self, taken: usize) -> usize {
        self.taken = taken;
        let mut plain_bytes = 0;
        while let Some(sealed) = self.sealed.get(self.taken_count).filter(|sealed| sealed.ends_at <= taken) {
            plain_bytes += sealed.plain_bytes;
            self.taken_count += 1;
        }
        plain_bytes
    }

    /// Plain bytes of the record that the socket took a part of.
    pub(super) fn begun_bytes(&self) -> usize {
        let next = self.sealed.get(self.taken_count);
        next.filter(|sealed| sealed.begins_at < self.taken).map_or(0, |sealed| sealed.plain_bytes)
    }

    /// The send is over; the next begins at its offset 0.
    pub(super) fn clear(&mut self) {
        self.sealed.clear();
        self.sealed.shrink_to(KEPT_RECORDS);
        (self.taken_count, self.taken) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_taken_with_the_last_and_begun_with_the_first_byte_of_their_record() {
        let mut ledger = Ledger::default();
        // A ticket of 100 bytes in front, records of 10 and 20 plain bytes, an alert of 24 behind.
        ledger.note(100, 132, 10);
        ledger.note(132, 174, 20);
        let mut taken_bytes = 0;
        for taken in 0..=198 {
            taken_bytes += ledger.take(taken);
            let (expected_taken, expected_begun) = match taken {
                0..=100 => (0, 0),
                101..=131 => (0, 10),
                132 => (10, 0),
                133..=173 => (10, 20),
                _ => (30, 0),
            };
            assert_eq!((taken_bytes, ledger.begun_bytes()), (expected_taken, expected_begun), "{taken} taken");
        }
        ledger.clear();
        assert_eq!((ledger.take(0), ledger.begun_bytes()), (0, 0));
    }
}
