//! Points in wall-clock time as ISO 8601 text in UTC, with milliseconds: `2026-11-30T11:25:47.071Z`.

use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Appends a point in time. Before 1970 it reads as 1970, after 9999 as the end of 9999.
pub(super) fn append(out: &mut Vec<u8>, at: SystemTime) {
    /// 9999-12-31T23:59:59.999Z.
    const MAX: Duration = Duration::from_millis(253_402_300_799_999);
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default().min(MAX);
    // Writing into a Vec cannot fail, nor can a time within these bounds.
    let _ = write!(out, "{}", humantime::format_rfc3339_millis(UNIX_EPOCH + since));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(millis: u64) -> String {
        let mut out = Vec::new();
        append(&mut out, UNIX_EPOCH + Duration::from_millis(millis));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_points_are_spelled_so() {
        for (millis, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_796_037_947_071, "2026-11-30T11:25:47.071Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text(millis), expected);
        }
    }

    #[test]
    fn a_clock_before_1970_reads_as_1970() {
        let mut out = Vec::new();
        append(&mut out, UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(out, b"1970-01-01T00:00:00.000Z");
    }
}
