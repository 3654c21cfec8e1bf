//! A set of pods that run a user's own script together, with `torchrun` or TensorFlow's strategies.
//!
//! Such a script finds its fellows in its environment and cannot change their number, so the operator starts a whole
//! set again where another number is wanted. Each pod of a set waits until all have addresses.

use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_runtime::ending::EndSignal;
use clap::{Args, ValueEnum};

use super::child::Children;
use super::{Settings, news, say, signals};
use crate::exchange::Wish;
use follow::Pattern;
use place::Place;

mod follow;
mod place;

/// Time between two looks at the process.
const LOOK: Duration = Duration::from_millis(50);

/// How long what a script printed last may take to be passed on once it has ended: another process may hold its pipe.
const DRAINING: Duration = Duration::from_secs(2);

/// The program of a pod that runs a user's own script together with others.
#[derive(Debug, Args)]
pub struct GroupArgs {
    /// How the script finds its fellows
    #[arg(long, value_enum)]
    pub backend: Backend,
    /// Regular expression that finds in a line of the script's output how fast it is, in a group `samples_per_second`,
    /// or how far, in a group `step`; `samples` and `loss` may be groups, too
    #[arg(long, value_name = "REGEX")]
    pub pattern: Option<String>,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// How a script finds its fellows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// By the variables of PyTorch: `MASTER_ADDR`, `RANK` and so on, and `PET_*` for `torchrun`
    Torchrun,
    /// By `TF_CONFIG`
    Tensorflow,
}

#[derive(Debug)]
enum Happening {
    Signal(EndSignal),
    Wish(Wish),
}

/// Runs the command until it ends.
///
/// # Errors
///
/// What keeps it from beginning.
pub(super) fn run(arguments: &GroupArgs, settings: &Settings) -> Result<ExitCode> {
    let pattern = arguments.pattern.as_deref().map(Pattern::new).transpose()?;
    let client = settings.client()?;
    let (tell, happenings) = channel();
    let signal = tell.clone();
    signals::listen(move |heard| drop(signal.send(Happening::Signal(heard))))?;
    news::follow(Arc::clone(&client), move |wish| tell.send(Happening::Wish(wish)).is_ok())?;
    let place = match wait_for_members(settings, &happenings)? {
        Met::Place(place) => place,
        Met::Over(code) => return Ok(code),
    };
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).envs(place.environment(arguments.backend, settings));
    command.stdin(Stdio::null());
    // The first speaks for all.
    let followed = pattern.filter(|_| place.rank == 0);
    if followed.is_some() {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let started = command.spawn();
    let mut child =
        started.with_context(|| format!("`{}` cannot be started", arguments.command[0].display()))?;
    let followed = followed.map(|pattern| follow::follow(&mut child, pattern, client)).transpose()?;
    let mut children = Children::new(vec![child]);
    loop {
        if let Ok(Happening::Signal(_)) = happenings.recv_timeout(LOOK) {
            children.terminate();
        }
        if let Some(code) = children.ended()? {
            if let Some(passed) = &followed {
                let _ = passed.recv_timeout(DRAINING);
            }
            return Ok(code);
        }
    }
}

/// How the wait for the other pods ended.
enum Met {
    Place(Place),
    Over(ExitCode),
}

/// Waits until all pods of this one's set have addresses.
fn wait_for_members(settings: &Settings, happenings: &Receiver<Happening>) -> Result<Met> {
    loop {
        let wish = match happenings.recv()? {
            Happening::Signal(signal) => return Ok(Met::Over(ExitCode::from(signal.exit_code()))),
            Happening::Wish(wish) => wish,
        };
        match settings.generation {
            Some(own) if wish.generation > own => {
                say(format_args!("set {} of pods has taken the place of set {own}", wish.generation));
                return Ok(Met::Over(ExitCode::from(EndSignal::Terminate.exit_code())));
            }
            Some(own) if wish.generation < own => continue,
            _ => {}
        }
        if let Some(place) = Place::find(&wish, settings)? {
            return Ok(Met::Place(place));
        }
    }
}
