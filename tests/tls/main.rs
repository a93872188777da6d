//! A node that speaks TLS: all that it does in plain, it does in it; how connections begin and end; its certificate.

mod certificates;
mod ends;
#[path = "../process/mod.rs"]
mod process;
mod secure;
mod traffic;
