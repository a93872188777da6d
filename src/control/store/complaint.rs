//! One line for one trouble: said when it is new, and again only after a minute.

use std::time::{Duration, Instant};

/// How often the same trouble is said.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What was last complained of.
#[derive(Debug, Default)]
pub(super) struct Complaint {
    last: Option<(String, Instant)>,
}

impl Complaint {
    /// Whether to say this now.
    pub(super) fn is_due(&mut self, line: &str, now: Instant) -> bool {
        let is_due = self.last.as_ref().is_none_or(|(said, at)| said != line || now.duration_since(*at) >= AGAIN_AFTER);
        if is_due {
            self.last = Some((line.to_owned(), now));
        }
        is_due
    }

    /// Whether there was anything since the last time of asking.
    pub(super) fn is_over(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_said_once_a_minute_and_a_new_one_at_once() {
        let (mut complaint, start) = (Complaint::default(), Instant::now());
        let said: Vec<_> = [("a", 0), ("a", 59), ("b", 59), ("b", 118), ("b", 119), ("a", 119)]
            .into_iter()
            .map(|(line, secs)| complaint.is_due(line, start + Duration::from_secs(secs)))
            .collect();
        assert_eq!(said, [true, false, true, false, true, true]);
        assert!(complaint.is_over() && !complaint.is_over() && complaint.is_due("a", start));
    }
}
