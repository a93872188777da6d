//! One request and one answer, byte for byte the same for every server that is compared, so that only the moving of bytes differs.

use std::net::SocketAddr;

/// What the load generator sends.
pub const REQUEST: &[u8] =
    b"GET /api/v1/pop/bench HTTP/1.1\r\nhost: 127.0.0.1\r\nuser-agent: fixed-load\r\naccept: application/json\r\n\r\n";

/// What the servers answer.
pub const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\n\r\n{\"messages\":[],\"queue\":\"bench\",\"n\":0}";

/// Counts the ends of requests in `input`; `matched` (0 to 3) carries how much of an end the input before it closed with.
pub fn count_requests(input: &[u8], matched: &mut usize) -> usize {
    const END: &[u8; 4] = b"\r\n\r\n";
    let mut count = 0;
    for &byte in input {
        *matched = if byte == END[*matched] { *matched + 1 } else { usize::from(byte == b'\r') };
        if *matched == END.len() {
            *matched = 0;
            count += 1;
        }
    }
    count
}

/// The address to serve or to load: the first argument, else 127.0.0.1:7700.
#[must_use]
pub fn address() -> SocketAddr {
    std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or_else(|| ([127, 0, 0, 1], 7700).into())
}
