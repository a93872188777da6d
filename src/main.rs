//! The binary: everything is in the library.

use std::process::ExitCode;

/// Settings: `.cargo/config.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    mayfly::cli::run()
}
