//! The `bellwether` command: from words to a verb, from its result to an exit code.

mod by_hand;
mod cmd;
mod failure;
mod files;
mod job;
mod models;
mod options;
mod printer;
mod render;
mod runs;
mod session;
mod traces;

use std::process::ExitCode;

use clap::Parser;

/// Training allocates and frees a tensor per operation; this allocator makes it faster by a tenth or more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = cmd::Arguments::parse();
    // Bits depend on the number of threads in a kernel: one, in every process, whoever started it.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    let printer = printer::Printer::new();
    match cmd::dispatch(arguments, &printer) {
        Ok(code) => code,
        Err(failure) => {
            printer.error(&failure);
            failure.exit_code()
        }
    }
}
