//! Points in wall-clock time as ISO 8601 text in UTC, with milliseconds: `2026-11-30T11:25:47.071Z`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Appends a point in time. Before 1970 it reads as 1970, after 9999 as the end of 9999.
pub(super) fn append(out: &mut Vec<u8>, at: SystemTime) {
    /// 9999-12-31T23:59:59.999Z.
    const MILLIS_MAX: u128 = 253_402_300_799_999;
    let millis = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis().min(MILLIS_MAX)) as u64;
    let (days, of_day) = (millis / 86_400_000, millis % 86_400_000);
    let (year, month, day) = civil(days);
    let parts = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (of_day / 3_600_000, 2, b':'),
        (of_day / 60_000 % 60, 2, b':'),
        (of_day / 1000 % 60, 2, b'.'),
        (of_day % 1000, 3, b'Z'),
    ];
    for (number, digit_count, behind) in parts {
        append_padded(out, number, digit_count);
        out.push(behind);
    }
}

fn append_padded(out: &mut Vec<u8>, number: u64, digit_count: u32) {
    for power in (0..digit_count).rev() {
        out.push(b'0' + (number / 10_u64.pow(power) % 10) as u8);
    }
}

/// Days since 1970-01-01 → year, month, day in the Gregorian calendar, by eras of 400 years that begin on the first of March
/// (Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
