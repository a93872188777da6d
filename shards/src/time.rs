//! Points and spans of monotonic time. The caller reads the clock; nothing here does.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// A point in monotonic time: nanoseconds since an origin that the caller chose once for the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(pub u64);

impl Time {
    /// Later than every deadline: "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// The span since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Whole seconds, rounded up, at least one: the unit of `Retry-After`.
    #[must_use]
    pub const fn as_retry_after_secs(self) -> u64 {
        let secs = self.0.div_ceil(1_000_000_000);
        if secs == 0 { 1 } else { secs }
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}
