//! A client in memory against a session: whatever the pieces in which bytes come, both read what the other wrote.

mod files;
mod handshakes;
mod properties;
mod support;
