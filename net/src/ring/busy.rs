//! How busy a core is: the share of the last window that it did not wait in, asleep or polling.
//!
//! A sleep ends after 100 ms at the latest, so that what was said last is never much older than a window.

/// How long a window is, at least.
const WINDOW_NS: u64 = 100_000_000;

/// The measure of one core.
#[derive(Default)]
pub(super) struct Busy {
    window_began_at: u64,
    waited_ns: u64,
    waits_since: Option<u64>,
    permille: u32,
}

impl Busy {
    /// The core has nothing to do from now on.
    pub(super) fn waits(&mut self, now: u64) {
        self.waits_since.get_or_insert(now);
    }

    /// The core works. The thousandths of the window that it worked, when one has ended.
    pub(super) fn works(&mut self, now: u64) -> Option<u32> {
        if let Some(since) = self.waits_since.take() {
            self.waited_ns += now.saturating_sub(since);
        }
        let window_ns = now.saturating_sub(self.window_began_at);
        if window_ns < WINDOW_NS {
            return None;
        }
        self.permille = (window_ns.saturating_sub(self.waited_ns) * 1_000 / window_ns) as u32;
        (self.window_began_at, self.waited_ns) = (now, 0);
        Some(self.permille)
    }

    /// The thousandths of the last window that the core worked.
    pub(super) fn permille(&self) -> u32 {
        self.permille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_is_not_work() {
        let mut busy = Busy::default();
        busy.works(WINDOW_NS);
        busy.waits(WINDOW_NS + 10);
        busy.waits(WINDOW_NS + 20);
        assert_eq!(busy.works(WINDOW_NS + 10 + WINDOW_NS / 4), None);
        assert_eq!(busy.works(2 * WINDOW_NS), Some(750));
        assert_eq!((busy.works(3 * WINDOW_NS), busy.permille()), (Some(1_000), 1_000));
        busy.waits(3 * WINDOW_NS);
        assert_eq!(busy.works(5 * WINDOW_NS), Some(0));
    }
}
