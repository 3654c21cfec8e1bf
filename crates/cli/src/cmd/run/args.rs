//! The arguments of `bellwether run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_core::ParseError;
use bellwether_core::job::{CheckpointUrl, WorkerRange};
use bellwether_core::units::Seconds;
use bellwether_session::machines::ProviderKind;
use bellwether_session::script::Output;
use bellwether_workloads::{Flip, Pace};
use clap::{Args, Parser};

use super::revocations::RevocationArguments;
use super::steer::SteerArguments;
use crate::elsewhere::ElsewhereArguments;
use crate::failure::Failure;
use crate::job::ScriptArguments;
use crate::options::{Format, StateArguments, assignment, provider};

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The job file, or a Python script that declares its job
    #[arg(required_unless_present_any = ["resume", "led_by"], value_name = "JOB.toml|SCRIPT.py")]
    pub(crate) job: Option<PathBuf>,
    /// Number of workers, or a range within which it may be chosen
    #[arg(long, value_name = "N|MIN..MAX")]
    pub(crate) workers: Option<WorkerRange>,
    /// Train as this plan says: its number of workers, its protocols and servers, its order of transmission
    #[arg(long, value_name = "PLAN.json")]
    pub(crate) plan: Option<PathBuf>,
    /// Obtain the plan's machines from this provider, start workers as they come, replace those that are lost, keep the
    /// plan's deadline and budget, and give everything back
    #[arg(long, value_name = "here|slurm|kubernetes|skypilot", value_parser = provider)]
    pub(crate) provision: Option<ProviderKind>,
    /// Change the number of workers at these steps, exactly
    #[arg(long, value_name = "STEP:N,…", value_delimiter = ',', value_parser = resize)]
    pub(crate) resize: Vec<(u64, u32)>,
    /// Let updates cover this many steps of the job's batch from these steps on, whatever is measured (mode `goodput`)
    #[arg(long, value_name = "STEP:FACTOR,…", value_delimiter = ',', value_parser = resize)]
    pub(crate) batch_schedule: Vec<(u64, u32)>,
    /// Set a key of the job file, for example optimizer.learning_rate=0.05
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
    /// Train this many steps, whatever the job file says
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Go on with a run that was stopped, failed, or whose coordinator died
    #[arg(long, value_name = "RUN", conflicts_with_all = ["job", "set", "steps", "batch_schedule"])]
    pub(crate) resume: Option<String>,
    /// Begin a new run from the newest checkpoint of this job at a URL: where a run with that checkpoint.url wrote them
    /// whose folder or host is lost
    #[arg(long, value_name = "URL", conflicts_with = "resume")]
    pub(crate) resume_from: Option<CheckpointUrl>,
    /// Go on with a run though data or kernels are not those that it was trained with so far; the result is that of
    /// neither, and the journal says so
    #[arg(long, requires = "resume")]
    pub(crate) accept_other_data: bool,
    /// Encrypt nothing between the machines of this run, for this reason, which the journal keeps; who may join is still
    /// proved by the token, and anyone on the way can read and change the rest
    #[arg(long, value_name = "REASON", conflicts_with = "resume", value_parser = reason)]
    pub(crate) plain_transport: Option<String>,
    /// Address of the control plane; anything but loopback must be asked for
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Let those join who know the token in this file, which was drawn before the run began; in place of one of the
    /// run's own
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    pub(crate) token_file: Option<PathBuf>,
    /// Start no workers here: all join by hand with `bellwether worker`
    #[arg(long)]
    pub(crate) no_spawn: bool,
    /// Let the workers compute at these speeds, in the order in which they start; with a time (0.5@20s) one turns slow
    /// then, which no process is told, or never returns (hang@20s computes, block@20s waits for ever)
    #[arg(long, value_name = "SPEED[@TIME],…", value_delimiter = ',', conflicts_with = "no_spawn")]
    pub(crate) worker_speed: Vec<Pace>,
    /// Let all workers compute at this part of their speed, those that start later too
    #[arg(long, value_name = "SPEED", conflicts_with_all = ["no_spawn", "worker_speed"])]
    pub(crate) speed: Option<Pace>,
    /// Let this worker compute one virtual node of one step wrong, by one bit, to try what `verify_every` finds; `:once`
    /// the first time only
    #[arg(long, value_name = "WORKER:STEP:NODE[:once]", value_parser = planted, conflicts_with = "no_spawn")]
    pub(crate) flip_bit: Option<(u64, Flip)>,
    #[command(flatten)]
    pub(crate) elsewhere: ElsewhereArguments,
    #[command(flatten)]
    pub(crate) revocation: RevocationArguments,
    #[command(flatten)]
    pub(crate) steer: SteerArguments,
    /// Silence after which a worker counts as lost (a broken connection counts at once)
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(crate) heartbeat_timeout: Seconds,
    /// Replace a worker that hangs even if no worker could go on without it; the run goes back to its last checkpoint
    #[arg(long)]
    pub(crate) replace_lone_worker: bool,
    /// How long committed steps that only lost workers hold wait for these, before the run goes back to its checkpoint
    #[arg(long, value_name = "TIME", default_value = "4s")]
    pub(crate) grace: Seconds,
    /// How long the workers hold the state when the checkpoint of the last step cannot be written; then the run fails
    #[arg(long, value_name = "TIME", default_value = "5min")]
    pub(crate) last_checkpoint_wait: Seconds,
    /// Go on in the background: print the name of the run and how to follow it
    #[arg(long)]
    pub(crate) detach: bool,
    /// Show what would be started, its size and, where it is known, its time; start nothing
    #[arg(long, conflicts_with = "detach")]
    pub(crate) dry_run: bool,
    /// The script that trains has started this command: pipes on which it declares its job, and hears of its run
    #[arg(long, hide = true, conflicts_with_all = ["job", "resume", "detach", "dry_run"], value_parser = pipes)]
    pub(crate) led_by: Option<(u32, u32)>,
    /// The daemon whose job this is starts it
    #[arg(long, hide = true, requires = "resume")]
    pub(crate) served: bool,
    /// Show nothing but the end
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Show every event of the journal
    #[arg(short, long)]
    pub(crate) verbose: bool,
    #[command(flatten)]
    pub(crate) state: StateArguments,
    #[command(flatten)]
    pub(crate) script: ScriptArguments,
}

impl RunArguments {
    /// Where what a script prints goes.
    pub(super) fn output(&self) -> Output {
        if self.state.format == Format::Json { Output::Errors } else { Output::Output }
    }
}

fn pipes(text: &str) -> Result<(u32, u32), ParseError> {
    let parsed = text.split_once(':').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    parsed.ok_or_else(|| ParseError::new("pair of pipes", text, "FROM:TO, two numbers of open files"))
}

/// The arguments by which a run is taken up again as it was.
///
/// # Errors
///
/// A name that cannot be an argument.
pub(super) fn resuming(run: &str) -> Result<RunArguments, Failure> {
    #[derive(clap::Parser)]
    struct Alone {
        #[command(flatten)]
        run: RunArguments,
    }
    let parsed = Alone::try_parse_from(["run", &format!("--resume={run}")]);
    parsed.map(|alone| alone.run).map_err(|error| Failure::at(run, error))
}

fn reason(text: &str) -> Result<String, ParseError> {
    match text.trim() {
        "" => {
            let expected = "why, for example --plain-transport \"the network encrypts (WireGuard)\"";
            Err(ParseError::new("reason", text, expected))
        }
        reason => Ok(reason.into()),
    }
}

/// A worker's number, and what it computes wrong.
fn planted(text: &str) -> Result<(u64, Flip), ParseError> {
    let parsed =
        text.split_once(':').and_then(|(worker, flip)| Some((worker.parse().ok()?, flip.parse().ok()?)));
    let expected = "WORKER:STEP:NODE or WORKER:STEP:NODE:once, such as 2:17:3";
    parsed.ok_or_else(|| ParseError::new("gradient", text, expected))
}

fn resize(text: &str) -> Result<(u64, u32), ParseError> {
    let wrong = || ParseError::new("change of size", text, "STEP:N, for example 20:4");
    let (step, workers) = text.split_once(':').ok_or_else(wrong)?;
    let (step, workers) =
        (step.trim().parse().map_err(|_| wrong())?, workers.trim().parse().map_err(|_| wrong())?);
    if step == 0 || workers == 0 {
        let expected = "a step and a number of workers that are at least 1";
        return Err(ParseError::out_of_range("change of size", text, expected));
    }
    Ok((step, workers))
}

#[cfg(test)]
mod tests {
    use bellwether_runtime::run_dir::RunDir;
    use bellwether_session::process::Resume;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArguments,
    }

    #[test]
    fn every_option_of_a_run_that_is_resumed_by_another_program_is_read() {
        let folder = std::path::Path::new("/runs");
        let listen = "10.0.0.1:7000".parse().expect("an address");
        let told = Resume {
            run: RunDir::at(folder.join("mnist-1")),
            workers: Some((2..=3).into()),
            speed: Some(0.5),
            listen: Some(listen),
            no_spawn: false,
            grace: Some(Seconds::new(1.5)),
            served: true,
            provision: Some(ProviderKind::Slurm),
        };
        // Its first word is the verb, which stands where a parser expects its program.
        let read = |told: &Resume| {
            Command::try_parse_from(told.arguments().expect("an absolute path"))
                .expect("it is written for us")
                .run
        };
        let RunArguments {
            resume, workers, speed, listen: at, served, grace, state, plan, provision, ..
        } = read(&told);
        assert_eq!((plan, provision), (Some(told.run.plan_file()), Some(ProviderKind::Slurm)));
        assert_eq!((resume.as_deref(), state.state_dir.as_deref()), (Some("mnist-1"), Some(folder)));
        assert_eq!(workers, Some(WorkerRange { min: 2, max: 3 }));
        assert_eq!(grace, Seconds::new(1.5));
        assert_eq!((speed.map(|speed| speed.speed), at, served), (Some(0.5), Some(listen), true));
        assert_eq!(state.format, crate::options::Format::Json);
        let plain = read(&Resume::of(&told.run));
        assert!(plain.workers.is_none() && plain.speed.is_none() && plain.listen.is_none() && !plain.served);
        // Speeds are told to workers that are started.
        let by_hand = read(&Resume { no_spawn: true, ..Resume::of(&told.run) });
        assert!(by_hand.no_spawn && !plain.no_spawn && by_hand.grace == plain.grace);
    }
}
