//! The program.

use std::process::ExitCode;

use bellwether_operator::pod::{self, PodCommand};
use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Operator {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A program inside a pod
    #[command(subcommand)]
    Pod(PodCommand),
}

fn main() -> ExitCode {
    match Operator::parse().command {
        Command::Pod(command) => pod::run(&command),
    }
}
