//! Why a request could not be read: facts, each with the field at fault. All of them are 400 `ephemeral_bad_request`.

use std::fmt;

use mayfly_shards::{CALL_ITEMS_MAX, NAME_BYTES_MAX};

use super::declaration::OPTIONS_BYTES_MAX;
use super::json::Malformed;

/// Why a body or a parameter could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The body is not one JSON document in UTF-8, from this byte on.
    NotJson {
        /// Offset in bytes, from 0.
        at: usize,
    },
    /// A required field is not there.
    Missing(&'static str),
    /// A field is of another type than it must be.
    WrongType {
        /// Which.
        field: &'static str,
        /// What it must be, with its article.
        expected: &'static str,
    },
    /// A known key occurs twice in one object.
    Twice(&'static str),
    /// More than `CALL_ITEMS_MAX` items.
    TooManyItems(&'static str),
    /// A name of no bytes.
    NameEmpty(&'static str),
    /// A name of more than `NAME_BYTES_MAX` bytes.
    NameTooLong(&'static str),
    /// A name with a byte below 0x20 or 0x7f.
    NameControl(&'static str),
    /// The name of a reply inbox where a queue's must be.
    NameReserved(&'static str),
    /// The name of a subscriber's private group where a group that anybody may name must be.
    GroupReserved(&'static str),
    /// A tenant that is no UUID.
    NotUuid(&'static str),
    /// Text that is no Unicode: invalid UTF-8, or half a surrogate pair.
    NotUnicode(&'static str),
    /// A key that the closed list of options does not have.
    UnknownOption {
        /// The object it stands in.
        within: &'static str,
        /// The key, cut to a length that can be shown.
        key: String,
    },
    /// A policy that is none of the two.
    UnknownPolicy,
    /// A declaration's options are spelled longer than they may be.
    OptionsTooLong,
}

/// The seven options, as the error of an unknown one lists them.
const OPTION_NAMES: &str = "maxBytes, maxLength, policy, ttlSeconds, leaseSeconds, retryLimit, windowBuffer";

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::NotJson { at: malformed.at }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson { at } => write!(f, "the body is not valid JSON in UTF-8 (byte {at})"),
            Self::Missing(field) => write!(f, "{field} is required"),
            Self::WrongType { field, expected } => write!(f, "{field} must be {expected}"),
            Self::Twice(field) => write!(f, "{field} is given twice"),
            Self::TooManyItems(field) => write!(f, "{field} has more than {CALL_ITEMS_MAX} items"),
            Self::NameEmpty(field) => write!(f, "{field} must not be empty"),
            Self::NameTooLong(field) => write!(f, "{field} is longer than {NAME_BYTES_MAX} bytes of UTF-8"),
            Self::NameControl(field) => write!(f, "{field} must not contain control characters"),
            Self::NameReserved(field) => write!(f, "{field} is the name of a reply inbox, which can only be pushed to"),
            Self::GroupReserved(field) => write!(f, "{field} is the name of a subscriber's private group"),
            Self::NotUuid(field) => write!(f, "{field} must be a UUID such as 00000000-0000-0000-0000-000000000001"),
            Self::NotUnicode(field) => write!(f, "{field} is not valid Unicode text"),
            Self::UnknownOption { within, key } => {
                write!(f, "{within} has no key \"{key}\"; the options are {OPTION_NAMES}, and windowBuffer's keys are ms and count")
            }
            Self::OptionsTooLong => write!(f, "options may take {OPTIONS_BYTES_MAX} bytes"),
            Self::UnknownPolicy => f.write_str("options.policy must be \"reject\" or \"dropOldest\""),
        }
    }
}

impl std::error::Error for Fault {}
