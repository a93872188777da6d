//! A node that speaks TLS: all that it does in plain, it does in it; how connections begin and end; its certificate.

#[path = "../process/mod.rs"]
mod process;
mod certificates;
mod ends;
mod secure;
mod traffic;
