//! What waits for one peer: the newest messages, bounded in count and bytes.

use std::collections::VecDeque;
use std::time::Instant;

use super::Limits;
use crate::peer::frame::{HEAD_BYTES, open};

#[derive(Debug, Default)]
pub(super) struct Queue {
    messages: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds one, and drops the oldest until there is room: how many.
    pub(super) fn push(&mut self, body: Vec<u8>, now: Instant, limits: &Limits) -> usize {
        let mut dropped = 0;
        let is_full =
            |queue: &Self| queue.messages.len() >= limits.queue_messages_max.max(1) || queue.bytes + body.len() > limits.queue_bytes_max;
        while !self.messages.is_empty() && is_full(self) {
            self.pop();
            dropped += 1;
        }
        self.bytes += body.len();
        self.messages.push_back((now, body));
        dropped
    }

    /// Drops what waited too long: how many.
    pub(super) fn drop_stale(&mut self, limits: &Limits) -> usize {
        let mut dropped = 0;
        while self.messages.front().is_some_and(|(since, _)| since.elapsed() > limits.stale) {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    /// Moves messages, as frames, until `out` has `wanted` bytes or more.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>, wanted: usize) {
        while out.len() < wanted
            && let Some(body) = self.pop()
        {
            out.reserve(HEAD_BYTES + body.len());
            let frame = open(out);
            out.extend_from_slice(&body);
            // It is short enough: looked at before it was queued.
            let _ = frame.finish(out);
        }
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let (_, body) = self.messages.pop_front()?;
        self.bytes -= body.len();
        Some(body)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_stay() {
        let limits = Limits { queue_messages_max: 3, queue_bytes_max: 10, stale: Duration::ZERO, ..Limits::default() };
        let mut queue = Queue::default();
        let now = Instant::now();
        let dropped: Vec<usize> = [1, 2, 3, 4, 9, 50, 1].iter().map(|count| queue.push(vec![*count as u8; *count], now, &limits)).collect();
        // Too many, too large together, one that is too large by itself, and it goes as any other.
        assert_eq!(dropped, [0, 0, 0, 1, 3, 1, 1]);
        let mut out = Vec::new();
        queue.fill(&mut out, 1);
        assert_eq!(out, [1, 0, 0, 0, 1]);
        assert_eq!((queue.len(), queue.bytes), (0, 0));
        queue.push(vec![1], now, &limits);
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!((queue.drop_stale(&limits), queue.len()), (1, 0));
    }
}
