//! The statuses that the broker answers with, each with its status line rendered.

/// Declares the enum and, for each status, its number, its status line, and the whole of a JSON answer's head up to the length.
macro_rules! statuses {
    ($($name:ident = $code:literal $reason:literal),+ $(,)?) => {
        /// A status of a final answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Status {
            $(#[doc = concat!($code, " ", $reason)] $name = $code,)+
        }

        impl Status {
            /// Every status, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The status line with its line end.
            pub(super) const fn line(self) -> &'static str {
                match self { $(Self::$name => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\n"),)+ }
            }

            /// Status line and content type of a JSON answer.
            pub(super) const fn json_head(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("HTTP/1.1 ", $code, " ", $reason, "\r\ncontent-type: application/json\r\n"),)+
                }
            }
        }
    };
}

statuses! {
    Ok = 200 "OK",
    Created = 201 "Created",
    BadRequest = 400 "Bad Request",
    Unauthorized = 401 "Unauthorized",
    Forbidden = 403 "Forbidden",
    NotFound = 404 "Not Found",
    MethodNotAllowed = 405 "Method Not Allowed",
    RequestTimeout = 408 "Request Timeout",
    Conflict = 409 "Conflict",
    PayloadTooLarge = 413 "Content Too Large",
    UriTooLong = 414 "URI Too Long",
    TooManyRequests = 429 "Too Many Requests",
    HeadersTooLarge = 431 "Request Header Fields Too Large",
    InternalError = 500 "Internal Server Error",
    NotImplemented = 501 "Not Implemented",
    ServiceUnavailable = 503 "Service Unavailable",
    GatewayTimeout = 504 "Gateway Timeout",
    VersionNotSupported = 505 "HTTP Version Not Supported",
}

impl Status {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }
}
