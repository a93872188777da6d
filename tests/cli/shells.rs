//! What shells and readers of manuals are told.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::Done;
use crate::process::mayfly;

const COMMANDS: [&str; 15] = [
    "serve",
    "push",
    "pop",
    "ack",
    "call",
    "tail",
    "queues",
    "depth",
    "top",
    "configure",
    "reset",
    "delete",
    "bench",
    "cluster",
    "completions",
];

fn printed(arguments: &[&str]) -> String {
    Done::from(mayfly().args(arguments).output().expect("runs")).out()
}

#[test]
fn completions_name_every_command_and_bash_reads_them() {
    for shell in ["bash", "zsh", "fish"] {
        let text = printed(&["completions", shell]);
        for command in COMMANDS {
            assert!(text.contains(command), "{shell}: {command}");
        }
        // What is not installed cannot be asked; bash is everywhere.
        let Ok(mut child) = Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
            assert_ne!(shell, "bash", "bash runs");
            continue;
        };
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("read");
        let read = child.wait_with_output().expect("ends");
        assert!(read.status.success(), "{shell}: {}", String::from_utf8_lossy(&read.stderr));
    }
}

#[test]
fn every_command_has_a_manual_page_and_a_help_with_an_example_or_its_flags() {
    let page = printed(&["man"]);
    assert!(page.contains(".TH mayfly 1"), "{page}");
    for command in COMMANDS {
        assert!(page.contains(&format!("mayfly\\-{command}(1)")), "{command}");
        let of_command = printed(&["man", command]);
        assert!(of_command.contains(&format!(".TH mayfly-{command} 1")), "{of_command}");
        assert!(printed(&[command, "--help"]).contains("Usage: mayfly "), "{command}");
    }
    let unknown = Done::from(mayfly().args(["man", "nothing"]).output().expect("runs"));
    unknown.assert_ended(1, "no command is called nothing");
}
