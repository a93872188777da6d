//! `completions` and `man`: what a shell and a reader of manuals want to know of this command line, made from it.

use std::io;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::asking::Ended;

pub(super) fn completions_command() -> Command {
    Command::new("completions")
        .about("Print completions for a shell")
        .long_about("Print completions for a shell, for example: mayfly completions bash > /etc/bash_completion.d/mayfly")
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)))
}

pub(super) fn man_command() -> Command {
    Command::new("man")
        .about("Print a manual page")
        .long_about("Print the manual page of mayfly, or of one of its commands, for example: mayfly man push | man -l -")
        .arg(Arg::new("command").value_name("COMMAND").help("One command's page"))
}

/// Prints completions.
pub(super) fn completions(typed: &ArgMatches, mut all: Command) -> Result<(), Ended> {
    let Some(shell) = typed.get_one::<Shell>("shell").copied() else { return Ok(()) };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut all, "mayfly", &mut out);
    Ok(io::Write::write_all(&mut io::stdout().lock(), &out)?)
}

/// Prints a page.
pub(super) fn man(typed: &ArgMatches, mut all: Command) -> Result<(), Ended> {
    all.build();
    let page = match typed.get_one::<String>("command") {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).cloned();
            found.ok_or_else(|| format!("no command is called {name}; see mayfly --help"))?.display_name(format!("mayfly-{name}"))
        }
    };
    let mut out = Vec::new();
    clap_mangen::Man::new(page).render(&mut out)?;
    Ok(io::Write::write_all(&mut io::stdout().lock(), &out)?)
}
