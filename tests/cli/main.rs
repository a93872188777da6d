//! The command line against a real node: what it prints for people and for machines, and with which code it ends.

#[path = "../process/mod.rs"]
mod process;
#[path = "../tokens/mod.rs"]
mod tokens;

mod queues;
mod shells;
mod whom;
mod work;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Output, Stdio};

use process::mayfly;

/// What a command printed, and how it ended.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Done {
    /// The output of a command that did what it was asked, without a word more.
    #[track_caller]
    fn out(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{self:?}");
        self.out
    }

    /// Asserts the code, and that one line says why.
    #[track_caller]
    fn assert_ended(&self, code: i32, why: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.starts_with("mayfly: ") && self.err.contains(why) && self.err.lines().count() == 1, "{self:?}");
    }

    fn json(self) -> serde_json::Value {
        let out = self.out();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

/// Runs a command against a node, with this as its standard input.
fn run_with(address: SocketAddr, arguments: &[&str], input: &str) -> Done {
    let mut command = mayfly();
    command.args(arguments).env("MAYFLY_URL", format!("http://{address}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("runs");
    let mut stdin = child.stdin.take().expect("piped");
    std::thread::scope(|scope| {
        // A command that reads nothing closes it.
        scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
        child.wait_with_output().expect("ends").into()
    })
}

fn run(address: SocketAddr, arguments: &[&str]) -> Done {
    run_with(address, arguments, "")
}
