//! The command line: what can be typed, its help, and the exit codes.
//!
//! A usage error (an unknown flag, a missing command) is clap's, exit 2. What a known setting holds is read by [`crate::config`], so that
//! flags and environment are read by one rule and a bad one is a single line, exit 1.

mod asking;
mod bench;
mod cluster;
mod queues;
mod sending;
mod serve;
mod shell;
mod taking;
mod top;

use std::process::ExitCode;

use clap::builder::OsStringValueParser;
use clap::{Arg, Command};

use self::asking::Ended;
use crate::config::settings::{Setting, settings};

/// The node could not start, or had to stop: one line on standard error says why.
const EXIT_REFUSED: u8 = 1;

const ABOUT: &str = "A broker for ephemeral queues: messages live in memory and nowhere else";

const LONG_ABOUT: &str = "\
Mayfly is a broker for ephemeral queues: messages live in memory and nowhere else, a push is a memory write and a wake-up, and a \
consumer parked on a long poll has the message as soon as it crossed the network. It speaks plain HTTP and JSON, the QueenMQ ephemeral \
wire, so `curl` and QueenMQ's published clients work as they are.

Start a node:      mayfly serve --listen 127.0.0.1:6632
Push a message:    mayfly push jobs '{\"n\":1}'
Wait for one:      mayfly pop jobs --wait --ack
Call a service:    mayfly call prices '{\"symbol\":\"X\"}'
Follow a queue:    mayfly tail news
See all queues:    mayfly top
Measure it:        mayfly bench rpc";

const SERVE_LONG_ABOUT: &str = "\
Start a node. It needs no other service. What queues hold ends with it; what was declared stays in its data folder.

Every flag is also read from the environment, as MAYFLY_ and the flag's name (--spin-us is MAYFLY_SPIN_US) and, where the published \
QueenMQ broker has a name for it, from that one. The flag wins, then MAYFLY_…, then the published name; an empty variable counts as \
unset. A setting that cannot be read stops the start with one line that names it.";

const EXIT_CODES: &str = "\
Exit codes:
  0  done; of `serve`: the node was stopped (SIGTERM, SIGINT)
  1  refused, or failed: one line says why; of `serve`: it could not start, or had to stop
  2  the command line was not understood
  3  there is nothing: no message, no such queue, no reply
  4  the node cannot be reached";

/// Runs the command that was typed.
#[must_use]
pub fn run() -> ExitCode {
    let matches = match command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version come this way too, with code 0. A closed output is nothing to report.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_REFUSED));
        }
    };
    let outcome = match matches.subcommand() {
        Some(("serve", typed)) => serve::run(typed).map_err(Ended::Failed),
        Some(("bench", typed)) => bench::run(typed).map_err(Ended::Failed),
        Some(("cluster", typed)) => cluster::run(typed),
        Some(("push", typed)) => sending::push(typed),
        Some(("call", typed)) => sending::call(typed),
        Some(("pop", typed)) => taking::pop(typed),
        Some(("ack", typed)) => taking::ack(typed),
        Some(("tail", typed)) => taking::tail(typed),
        Some(("queues", typed)) => queues::queues(typed),
        Some(("depth", typed)) => queues::depth(typed),
        Some(("configure", typed)) => queues::configure(typed),
        Some(("reset", typed)) => queues::reset(typed),
        Some(("delete", typed)) => queues::delete(typed),
        Some(("top", typed)) => top::run(typed),
        Some(("completions", typed)) => shell::completions(typed, command()),
        Some(("man", typed)) => shell::man(typed, command()),
        // `subcommand_required` leaves no other way here.
        _ => Err(Ended::Failed("no such command; expected one of `mayfly --help`".to_owned())),
    };
    match outcome {
        Ok(()) | Err(Ended::Unheard) => ExitCode::SUCCESS,
        Err(ended) => {
            eprintln!("mayfly: {ended}");
            ExitCode::from(ended.code())
        }
    }
}

/// The whole command line.
fn command() -> Command {
    Command::new("mayfly")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(serve_command())
        .subcommands([
            sending::push_command(),
            taking::pop_command(),
            taking::ack_command(),
            sending::call_command(),
            taking::tail_command(),
        ])
        .subcommands([queues::queues_command(), queues::depth_command(), top::command()])
        .subcommands([queues::configure_command(), queues::reset_command(), queues::delete_command()])
        .subcommands([bench::command(), cluster::command(), shell::completions_command(), shell::man_command()])
}

fn serve_command() -> Command {
    Command::new("serve").about("Start a node").long_about(SERVE_LONG_ABOUT).after_help(EXIT_CODES).args(settings().map(flag))
}

/// One setting as a flag: any text is taken here and read in the second stage.
fn flag(setting: &'static Setting) -> Arg {
    let published = setting.published.map(|name| format!(", {name}")).unwrap_or_default();
    let help = format!("{} [default: {}] [env: {}{published}]", setting.help, setting.default, setting.environment_name());
    Arg::new(setting.flag)
        .long(setting.flag)
        .value_name(setting.value_name)
        .value_parser(OsStringValueParser::new())
        .allow_negative_numbers(true)
        .help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_help_names_every_setting_its_variables_and_the_exit_codes() {
        let help = serve_command().render_long_help().to_string().replace("\n          ", " ");
        for setting in settings() {
            assert!(help.contains(&format!("--{} <{}>", setting.flag, setting.value_name)), "{}", setting.flag);
            assert!(help.contains(&setting.environment_name()), "{}", setting.flag);
            assert!(setting.published.is_none_or(|name| help.contains(name)), "{}", setting.flag);
        }
        assert!(help.contains("Exit codes:"));
    }

    #[test]
    fn a_negative_number_reaches_the_second_stage_and_an_unknown_flag_does_not() {
        assert!(command().try_get_matches_from(["mayfly", "serve", "--rate", "-1"]).is_ok());
        let unknown = command().try_get_matches_from(["mayfly", "serve", "--no-such-flag"]);
        assert!(unknown.is_err_and(|error| error.exit_code() == 2));
    }
}
