//! Monotonic time as one number: nanoseconds since an origin that is chosen once for the process.
//!
//! Copies of one [`Clock`] agree on every core, so deadlines may travel between cores. The number never goes on the wire.

use std::time::Instant;

/// A monotonic clock with a fixed origin. Copies share the origin.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the origin.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        // 584 years fit into 64 bits of nanoseconds.
        self.origin.elapsed().as_nanos() as u64
    }
}
