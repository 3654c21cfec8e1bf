//! The `bellwether` command: from words to a verb, from its result to an exit code.

mod applied;
mod by_hand;
mod cmd;
mod colour;
mod daemon;
mod elsewhere;
mod failure;
mod files;
mod job;
mod join;
mod kubernetes;
mod options;
mod outlook;
mod printer;
mod runs;
mod session;
mod traces;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

/// Training allocates and frees a tensor per operation; this allocator makes it faster by a tenth or more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let printer = printer::Printer::new(colour::When::default());
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(failure) => {
            printer.error(&failure);
            return failure.exit_code();
        }
    };
    let printer = printer::Printer::new(arguments.colour);
    match cmd::dispatch(arguments, &printer) {
        Ok(code) => code,
        Err(failure) => {
            printer.error(&failure);
            failure.exit_code()
        }
    }
}

/// Reads the command line; ends this process where clap has an answer of its own, as to `--help`.
fn parse() -> Result<cmd::Arguments, failure::Failure> {
    let command = cmd::verbs::grouped(cmd::Arguments::command());
    let parsed = command.try_get_matches().and_then(|matches| cmd::Arguments::from_arg_matches(&matches));
    let first = std::env::args().nth(1);
    parsed.map_err(|error| match cmd::verbs::unknown(&error, first.as_deref()) {
        Some(error) => error.into(),
        None => error.exit(),
    })
}
