//! Profiles a job before it trains, in a process of its own.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::profile::Profile;
use bellwether_session::process::Started;

use super::{Attempt, Closing, TICK};
use crate::runner::Report;

/// A profile that takes longer is given up: a job without one trains, too.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long a profile that is given up may take to leave; where jobs of a cluster have to be ended, longer.
const LEAVING_PATIENCE: Duration = Duration::from_secs(2);
const LEAVING_CLUSTER_PATIENCE: Duration = Duration::from_secs(15);

/// Steps that are measured with each number of workers, as by `bellwether profile` itself.
const STEPS: &str = "50";

/// What came of the process.
enum Came {
    Profile(Result<Box<Profile>, String>),
    /// The job is not wanted any more, or not on these nodes.
    Withdrawn,
}

impl Attempt<'_> {
    /// Profiles the job and tells what came of it, unless the job is not wanted any more meanwhile.
    pub(super) fn profile(&mut self) -> Result<(), Closing> {
        match self.measure()? {
            Came::Withdrawn => {}
            Came::Profile(profile) => {
                self.wish.profiles = false;
                (self.of.tell)(Report::Profiled { job: self.wish.job, profile });
            }
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<Came, Closing> {
        let run = self.process.run();
        let file = run.profile_file();
        let mut command = Command::new(&self.of.program);
        command.arg("profile").arg(&run.path).arg("--output").arg(&file).args(["--steps", STEPS]);
        command.stdout(Stdio::null());
        let mut started = match Started::new(&mut command, &run.coordinator_log()) {
            Ok(started) => started,
            Err(error) => return Ok(Came::Profile(Err(format!("nothing can be started: {error}")))),
        };
        let leaving = match self.wish.places {
            Some(_) => LEAVING_CLUSTER_PATIENCE,
            None => LEAVING_PATIENCE,
        };
        let places = self.wish.places.clone();
        let since = Instant::now();
        loop {
            let came = match started.exit() {
                Ok(Some(exit)) if exit.success() => Came::Profile(read(&file)),
                Ok(Some(_)) => Came::Profile(Err(started.complaint())),
                Ok(None) if self.wish.workers == 0 || self.wish.places != places => Came::Withdrawn,
                Ok(None) if since.elapsed() > PATIENCE => {
                    let why = format!("it was not done after {} s", PATIENCE.as_secs());
                    Came::Profile(Err(why))
                }
                Ok(None) => {
                    if let Err(closing) = self.listen(TICK) {
                        started.end(leaving);
                        return Err(closing);
                    }
                    continue;
                }
                Err(error) => Came::Profile(Err(error.to_string())),
            };
            started.end(leaving);
            return Ok(came);
        }
    }
}

fn read(file: &std::path::Path) -> Result<Box<Profile>, String> {
    let why = |error: &dyn std::fmt::Display| format!("{} cannot be read: {error}", file.display());
    let opened = File::open(file).map_err(|error| why(&error))?;
    serde_json::from_reader(std::io::BufReader::new(opened)).map_err(|error| why(&error))
}
