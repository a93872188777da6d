//! The `date` header's value. Rendering it costs more than parsing a request, so the caller renders it once a second.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that the form can write: 9999-12-31T23:59:59Z.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// An IMF-fixdate (RFC 9110 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateText([u8; 29]);

impl DateText {
    /// The text of `at`, to the second. A time before 1970 or after 9999 is written as the nearest one that has a text.
    #[must_use]
    pub fn new(at: SystemTime) -> Self {
        let since_epoch = at.duration_since(UNIX_EPOCH).unwrap_or_default().min(LAST_SECOND);
        let mut text = [b' '; 29];
        // 29 bytes is the form's fixed width, so the write fits.
        let written = write!(&mut text[..], "{}", httpdate::HttpDate::from(UNIX_EPOCH + since_epoch));
        debug_assert!(written.is_ok());
        Self(text)
    }

    /// The 29 bytes of the header's value.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_text() {
        let table = [
            (UNIX_EPOCH + Duration::from_millis(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT"),
            (UNIX_EPOCH - Duration::from_secs(1), "Thu, 01 Jan 1970 00:00:00 GMT"),
            (UNIX_EPOCH + LAST_SECOND + Duration::from_secs(1), "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (at, wanted) in table {
            assert_eq!(std::str::from_utf8(DateText::new(at).as_bytes()), Ok(wanted));
        }
    }
}
