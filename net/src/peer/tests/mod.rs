//! Tests of what is pure here. Sockets are in `net/tests`.

mod frames;
mod handshakes;
