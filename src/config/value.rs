//! Reading one typed text: each function says what a text means, or `None` when it cannot be read as such.
//!
//! Pure. What is expected of a setting, in words, stands beside it in the table of `settings.rs`.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::logging::{Format, Level};

/// Most CPUs one list may name: the kernel's own bound of a fixed CPU set.
const CPUS_MAX: usize = 1024;
/// Longest time a setting may name: a hundred years, far below where arithmetic on nanoseconds ends.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;

/// A whole number in decimal digits, within `range`.
pub(super) fn whole(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits_only && range.contains(number))
}

/// Bytes: a whole number, alone or with a unit (`KiB`, `MiB`, `GiB`, `TiB` of 1024; `kB`, `MB`, `GB`, `TB` of 1000; `B`; letter case does not matter).
pub(super) fn bytes(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits_len);
    let factor: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|count| range.contains(count))
}

/// Seconds, whole or with a decimal fraction (`2`, `1.5`), kept to the millisecond; more than nothing but less than one is unreadable,
/// because zero often means "never".
pub(super) fn seconds(text: &str) -> Option<Duration> {
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let secs = text.parse::<f64>().ok().filter(|secs| *secs <= SECONDS_MAX)?;
    // The bounds above keep the product far inside u64.
    let millis = (secs * 1000.0).round() as u64;
    (secs == 0.0 || millis > 0).then(|| Duration::from_millis(millis))
}

/// A path; whether something is there shows when it is opened.
pub(super) fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty() && !text.contains(char::is_control)).then(|| text.into())
}

/// `on` or `off`, and the words that mean them.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// CPU numbers and ranges as `taskset -c` takes them (`0-3,5`): sorted, each once.
pub(super) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for item in text.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let range = 0..=CPUS_MAX as u64 - 1;
        let (first, last) = (whole(first.trim(), range.clone())?, whole(last.trim(), range)?);
        if first > last {
            return None;
        }
        cpus.extend(first as usize..=last as usize);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// An IP address and a port: `127.0.0.1:6632`, `[::]:6632`.
pub(super) fn socket_address(text: &str) -> Option<SocketAddr> {
    text.parse().ok()
}

/// An IP address, a version 6 one with or without brackets.
pub(super) fn ip_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

/// A TCP port; 0 lets the system choose a free one.
pub(super) fn port(text: &str) -> Option<u16> {
    whole(text, 0..=u64::from(u16::MAX)).and_then(|number| number.try_into().ok())
}

/// The least level that is logged.
pub(super) fn log_level(text: &str) -> Option<Level> {
    Some(match text.to_ascii_lowercase().as_str() {
        "off" => Level::Off,
        "error" => Level::Error,
        "warn" => Level::Warn,
        "info" => Level::Info,
        "debug" => Level::Debug,
        "trace" => Level::Trace,
        _ => return None,
    })
}

/// The shape of a log line.
pub(super) fn log_format(text: &str) -> Option<Format> {
    match text.to_ascii_lowercase().as_str() {
        "text" => Some(Format::Text),
        "json" => Some(Format::Json),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_digits_within_the_range() {
        for (text, means) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("11", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("", None),
            ("1e1", None),
            (" 1", None),
        ] {
            assert_eq!(whole(text, 0..=10), means, "{text:?}");
        }
    }

    #[test]
    fn bytes_take_units_of_1024_and_of_1000() {
        let table = [
            ("1000000", Some(1_000_000)),
            ("64MiB", Some(64 << 20)),
            ("64 mib", Some(64 << 20)),
            ("1kB", Some(1000)),
            ("2GiB", Some(2 << 30)),
            ("7B", Some(7)),
            ("64M", None),
            ("1.5MiB", None),
            ("MiB", None),
            ("-1", None),
            ("", None),
            ("99999999999TiB", None),
            ("99999999999999999999", None),
        ];
        for (text, means) in table {
            assert_eq!(bytes(text, 0..=u64::MAX), means, "{text:?}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        let table = [
            ("0", Some(0)),
            ("300", Some(300_000)),
            ("1.5", Some(1_500)),
            ("0.0004", None),
            (".25", Some(250)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("-1", None),
            ("1e3", None),
            ("inf", None),
            ("NaN", None),
            ("5s", None),
            ("99999999999999", None),
        ];
        for (text, millis) in table {
            assert_eq!(seconds(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn cpu_lists_are_sorted_sets() {
        let table: [(&str, Option<&[usize]>); 10] = [
            ("0", Some(&[0])),
            ("0-3,5", Some(&[0, 1, 2, 3, 5])),
            ("5,0-1, 1", Some(&[0, 1, 5])),
            ("3-1", None),
            ("", None),
            ("1,", None),
            ("a", None),
            ("-1", None),
            ("1024", None),
            ("0-99999999999", None),
        ];
        for (text, means) in table {
            assert_eq!(cpu_list(text).as_deref(), means, "{text:?}");
        }
    }

    #[test]
    fn addresses_are_numbers_not_names() {
        assert!(socket_address("127.0.0.1:6632").is_some() && socket_address("[::]:6632").is_some());
        assert!(
            socket_address("localhost:6632").is_none()
                && socket_address("127.0.0.1").is_none()
                && socket_address("1.2.3.4:65536").is_none()
        );
        assert_eq!(ip_address("[::1]"), ip_address("::1"));
        assert_eq!((port("80"), port("65536"), port("tcp://1.2.3.4:80")), (Some(80), None, None));
    }
}
