//! The pod that leads a job's run.
//!
//! The command leads, as a child of this program. This program keeps the operator's copy of the run's folder up to
//! date, and makes the folder again from the copy where the pod has none. The workers do not notice who leads: to them
//! it is a coordinator that comes back after a crash, and it goes on from what they hold.

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bellwether_core::record::RunOutcome;
use bellwether_core::units::Seconds;
use bellwether_runtime::ending::EndSignal;
use bellwether_runtime::journal::Ending;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_runtime::tail::Tail;
use bellwether_session::process::{Resume, RunProcess, Tie};
use clap::Args;

use super::child::code_of;
use super::{Final, Settings, news, say, signals};
use crate::exchange::Wish;
use copier::Copier;
use said::Said;

mod copier;
mod outset;
mod said;

/// The exit code of a coordinator that gives way to another without being asked: the job is not to blame, as for one
/// that got SIGTERM.
const EXIT_GIVES_WAY: u8 = 143;

/// Where it listens, unless it is told.
const PORT: u16 = 7070;

/// Time between two looks at the child.
const LOOK: Duration = Duration::from_millis(50);

/// How long a child that is to stop may take to listen: before, a signal would end it without a word.
const LISTENING: Duration = Duration::from_secs(10);

/// How long to try to send the end of the journal once the run is over.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// What of the time between SIGTERM and SIGKILL is left for the end of this program.
const MARGIN: Duration = Duration::from_secs(2);

/// The program that leads a job's run; its environment says all.
#[derive(Debug, Args)]
pub struct CoordinatorArgs {}

/// Something that happened beside the child.
#[derive(Debug)]
enum Happening {
    Signal(EndSignal),
    Wish(Wish),
    Copier(Said),
}

/// How the wait for a happening went.
enum Heard {
    /// Nothing that ends this program.
    Nothing,
    /// The folder is as it should be.
    Ready,
    /// The last of the files was sent, or was not within its time.
    Sent,
    /// It is over.
    Over(ExitCode),
}

/// Leads the job's run until it ends.
///
/// # Errors
///
/// What keeps it from beginning.
pub(super) fn run(_: &CoordinatorArgs, settings: Settings) -> Result<ExitCode> {
    let job = settings.job()?;
    let state = StateDir::find(Some(settings.state.clone()))?;
    let run = state.create_named(settings.run()?, &job).context("the folder of the run")?;
    run.take_token(&settings.secrets().token()?)?;
    let (tell, happenings) = channel();
    let signal = tell.clone();
    signals::listen(move |heard| drop(signal.send(Happening::Signal(heard))))?;
    let client = settings.client()?;
    let wishes = tell.clone();
    news::follow(client.clone(), move |wish| wishes.send(Happening::Wish(wish)).is_ok())?;
    let copier = Copier::start(client, run.clone(), job, said(tell))?;
    let mut lead = Lead {
        process: RunProcess::of(run.clone()),
        log: Tail::new(run.coordinator_log()),
        settings,
        run,
        happenings,
        copier,
        stop: None,
        started: Instant::now(),
        stage: Stage::Before,
    };
    lead.work()
}

fn said(tell: Sender<Happening>) -> impl Fn(Said) + Send + 'static {
    move |said| drop(tell.send(Happening::Copier(said)))
}

struct Lead {
    settings: Settings,
    run: RunDir,
    process: RunProcess,
    /// What the child prints goes on to the pod's log.
    log: Tail,
    happenings: Receiver<Happening>,
    copier: Copier,
    /// Once the job is to stop: whether the child was told.
    stop: Option<bool>,
    /// When the child was.
    started: Instant,
    stage: Stage,
}

/// How far the child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is none yet.
    Before,
    /// It leads the run.
    Leads,
    /// It has ended.
    Ended,
}

impl Lead {
    fn work(&mut self) -> Result<ExitCode> {
        loop {
            match self.hear(LOOK) {
                Heard::Nothing | Heard::Sent => {}
                Heard::Ready => break,
                Heard::Over(code) => return Ok(code),
            }
        }
        // What is told of the end of an earlier coordinator says nothing about this one's.
        let before = self.run.history()?.ending;
        if let Some(ending) = before.clone().filter(|ending| ending.outcome == RunOutcome::Finished) {
            say("the run has finished before");
            return self.last_word(&ending);
        }
        // What it printed before this child is in the log of another pod, or of another start of this one.
        let _ = self.log.skip(0);
        let started = self.process.start(Path::new(&self.settings.command), &self.how()?, Tie::Outlives);
        started.with_context(|| format!("`{}` cannot be started", self.settings.command.display()))?;
        (self.stage, self.started) = (Stage::Leads, Instant::now());
        let status = loop {
            if let Heard::Over(code) = self.hear(LOOK) {
                return Ok(code);
            }
            self.pass_on_log();
            self.stop_if_asked();
            if let Some(status) = self.process.own().map(|own| own.exit()).transpose()?.flatten() {
                break status;
            }
        };
        self.stage = Stage::Ended;
        self.pass_on_log();
        let code = match self.run.history()?.ending.filter(|ending| before.as_ref() != Some(ending)) {
            Some(ending) => self.last_word(&ending)?,
            None => {
                say(format_args!("the coordinator ended without a word in its journal ({status})"));
                ExitCode::from(code_of(status))
            }
        };
        self.copier.finish(LAST_PATIENCE);
        loop {
            match self.hear(LAST_PATIENCE) {
                Heard::Nothing | Heard::Ready => {}
                // Whatever else happens: how the run ended stands.
                Heard::Sent | Heard::Over(_) => return Ok(code),
            }
        }
    }

    /// The command line of the child.
    fn how(&self) -> Result<Resume> {
        let listen = (self.settings.address()?, self.settings.port.unwrap_or(PORT)).into();
        let is_known = self.run.history()?.resumed().is_some();
        Ok(Resume {
            workers: self.settings.workers,
            listen: Some(listen),
            no_spawn: true,
            // Workers of a run that was begun may have to hear first where this pod is.
            grace: is_known.then(|| Seconds::new(self.settings.reattach.as_secs_f64())),
            ..Resume::of(&self.run)
        })
    }

    /// Waits for something to happen, and does what it asks for.
    fn hear(&mut self, patience: Duration) -> Heard {
        match self.happenings.recv_timeout(patience) {
            Ok(Happening::Wish(wish)) => {
                if wish.stop && self.stop.is_none() {
                    say("the job is to stop");
                    self.stop = Some(false);
                }
                Heard::Nothing
            }
            // The last word is said.
            Ok(Happening::Signal(_)) if self.stage == Stage::Ended => Heard::Sent,
            Ok(Happening::Signal(_)) if self.stop.is_some() => {
                // The child writes its checkpoint, and ends: that is what the signal is for.
                Heard::Nothing
            }
            Ok(Happening::Signal(signal)) => Heard::Over(self.leave(signal)),
            Ok(Happening::Copier(Said::Ready)) => Heard::Ready,
            Ok(Happening::Copier(Said::Sent)) => Heard::Sent,
            Ok(Happening::Copier(Said::Replaced)) => {
                say("another pod leads the run: this one ends");
                self.kill();
                Heard::Over(ExitCode::from(EXIT_GIVES_WAY))
            }
            Ok(Happening::Copier(Said::Astray(file))) => {
                say(format_args!(
                    "the operator's copy of the {file} is of another past: this pod begins again"
                ));
                self.kill();
                Heard::Over(ExitCode::from(EXIT_GIVES_WAY))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Heard::Nothing,
        }
    }

    /// Leaves the run to the next coordinator: it has all lines, and the workers wait for it with what they hold.
    fn leave(&mut self, signal: EndSignal) -> ExitCode {
        say(format_args!("{signal}: another pod is to lead the run"));
        if self.stage == Stage::Leads {
            self.kill();
            let patience = self.settings.grace.saturating_sub(MARGIN).max(Duration::from_secs(1));
            self.copier.finish(patience);
            let until = Instant::now() + patience;
            while let Some(left) = until.checked_duration_since(Instant::now())
                && !matches!(self.happenings.recv_timeout(left), Ok(Happening::Copier(Said::Sent)))
            {
            }
        }
        ExitCode::from(signal.exit_code())
    }

    fn kill(&mut self) {
        if let Some(own) = self.process.own() {
            own.kill();
            // It writes nothing more once it has ended.
            while matches!(own.exit(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Tells the child to stop, once it can hear that.
    fn stop_if_asked(&mut self) {
        let run = self.run.clone();
        let (late, Some(own)) = (self.started.elapsed() > LISTENING, self.process.own()) else { return };
        if self.stop == Some(false) && (late || own.leads(&run)) {
            signals::terminate(own.id());
            self.stop = Some(true);
        }
    }

    fn pass_on_log(&mut self) {
        while let Some(lines) = self.log.lines() {
            lines.iter().for_each(say);
        }
    }

    fn last_word(&self, ending: &Ending) -> Result<ExitCode> {
        let last = Final::of(&self.run.history()?, ending);
        if let Err(error) = last.write(&self.settings.termination_log) {
            // The journal says it, too, and the operator has that.
            say(format_args!("{}: {error}", self.settings.termination_log.display()));
        }
        say(format_args!("the run {}, after {} steps", last.outcome, last.step));
        Ok(ExitCode::from(u8::from(!last.is_success())))
    }
}
