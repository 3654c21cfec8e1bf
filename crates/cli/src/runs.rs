//! The state directory: a folder per run, with all that is needed to take the run up again.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::channel::Cipher;
use bellwether_runtime::checkpoint::write_atomically;
use bellwether_runtime::control::Token;
use bellwether_runtime::coordinator::{self, Endpoint};
use bellwether_runtime::private;

use crate::failure::Failure;

/// The folder that holds the runs.
#[derive(Debug, Clone)]
pub(crate) struct StateDir(PathBuf);

/// One run on disk.
#[derive(Debug, Clone)]
pub(crate) struct RunDir {
    /// `NAME-NUMBER`.
    pub(crate) name: String,
    /// Its folder.
    pub(crate) path: PathBuf,
}

impl StateDir {
    /// The directory that was asked for, or `bellwether` in the user's state directory (XDG).
    pub(crate) fn find(asked: Option<PathBuf>) -> Result<StateDir, Failure> {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let path = asked
            .or_else(|| variable("XDG_STATE_HOME").map(|p| p.join("bellwether")))
            .or_else(|| variable("HOME").map(|p| p.join(".local/state/bellwether")));
        let path = path.ok_or_else(|| {
            InputError::new("state directory", "neither XDG_STATE_HOME nor HOME is set")
                .hint("pass --state-dir DIR")
        })?;
        // A run is looked at and taken up again from anywhere.
        std::path::absolute(&path).map(StateDir).map_err(|e| Failure::at(path.display().to_string(), e))
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// All runs, by name.
    pub(crate) fn runs(&self) -> Vec<RunDir> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut runs: Vec<RunDir> = entries
            .filter(|e| e.path().join("job.json").is_file())
            .filter_map(|e| Some(RunDir { name: e.file_name().into_string().ok()?, path: e.path() }))
            .collect();
        runs.sort_by(|a, b| (a.number(), &a.name).cmp(&(b.number(), &b.name)));
        runs
    }

    /// The run with this name, or the newest of the job with this name, or the one in this folder.
    pub(crate) fn run(&self, asked: &str) -> Result<RunDir, Failure> {
        let named = RunDir { name: asked.into(), path: self.0.join(asked) };
        if !asked.contains('/') && named.path.join("job.json").is_file() {
            return Ok(named);
        }
        let runs = self.runs();
        if let Some(run) = runs.iter().rev().find(|r| r.job_name() == asked) {
            return Ok(run.clone());
        }
        let path = PathBuf::from(asked);
        if path.join("job.json").is_file() {
            let name = path.file_name().map_or(asked.to_string(), |n| n.to_string_lossy().into_owned());
            return Ok(RunDir { name, path });
        }
        let names: Vec<String> = runs.iter().map(|r| r.name.clone()).collect();
        let error = InputError::new(asked, format!("there is no such run in {}", self.0.display()));
        let hint = match bellwether_core::parse::nearest(asked, &names) {
            Some(near) => format!("did you mean `{near}`? `bellwether jobs` lists all runs"),
            None => "`bellwether jobs` lists all runs; --state-dir says where to look".into(),
        };
        Err(error.hint(hint).into())
    }

    /// Makes the folder of all runs, where it is not there yet.
    pub(crate) fn make(&self) -> Result<PathBuf, Failure> {
        // What a run keeps tells of its data, and its token lets others in: nobody else looks into it.
        private::folder(&self.0).map_err(|e| Failure::at(self.0.display().to_string(), e))?;
        Ok(self.0.clone())
    }

    /// Makes the folder of a run that has a name already, or finds it, and makes what is missing in it.
    pub(crate) fn create_named(&self, name: &str, job: &Job) -> Result<RunDir, Failure> {
        let run = RunDir { name: name.into(), path: self.0.join(name) };
        if !(run.path.join("job.json").is_file() && run.token_file().is_file()) {
            private::folder(&run.path).map_err(|e| Failure::at(run.path.display().to_string(), e))?;
            run.fill(job, false)?;
        }
        Ok(run)
    }

    /// Makes the folder of a new run of `job`; `plain` if nothing is to be encrypted between its machines.
    pub(crate) fn create(&self, job: &Job, plain: bool) -> Result<RunDir, Failure> {
        self.make()?;
        let mut number = 1 + self
            .runs()
            .iter()
            .filter(|r| r.job_name() == job.name)
            .map(RunDir::number)
            .max()
            .unwrap_or(0);
        let run = loop {
            let name = format!("{}-{number}", job.name);
            let path = self.0.join(&name);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break RunDir { name, path },
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(Failure::at(path.display().to_string(), e)),
            }
        };
        run.fill(job, plain)?;
        Ok(run)
    }
}

impl RunDir {
    /// Writes what every run begins with.
    fn fill(&self, job: &Job, plain: bool) -> Result<(), Failure> {
        self.make_token(plain)?;
        let path = self.path.join("job.json");
        let text = serde_json::to_vec_pretty(job).map_err(|e| Failure::at("job", e))?;
        // A folder with a job is a run, so it comes last and whole.
        write_whole(&path, &text)
    }

    fn make_token(&self, plain: bool) -> Result<(), Failure> {
        let token = Token::random().map_err(|e| Failure::at("random token", e))?;
        let token = if plain { token.with_cipher(Cipher::Unencrypted) } else { token };
        write_whole(&self.token_file(), format!("{}\n", token.to_text()).as_bytes())
    }

    /// Makes another token where the run's is none, as a power cut may leave it, and nobody coordinates the run who knows
    /// it. Says whether it did; its workers cannot come back then.
    pub(crate) fn renew_token(&self) -> Result<bool, Failure> {
        let path = self.token_file();
        let is_token = fs::read_to_string(&path).is_ok_and(|text| Token::parse(&text).is_some());
        let is_lost = !is_token && !matches!(fs::metadata(&path), Err(e) if e.kind() != ErrorKind::NotFound);
        if !is_lost || coordinator::is_alive(&self.path).unwrap_or(true) {
            return Ok(false);
        }
        self.make_token(false).map(|()| true)
    }

    /// The number at the end of the name.
    pub(crate) fn number(&self) -> u64 {
        self.name.rsplit_once('-').and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
    }

    /// The name without its number.
    pub(crate) fn job_name(&self) -> &str {
        self.name.rsplit_once('-').map_or(&self.name, |(name, _)| name)
    }

    /// Where the run's token lies.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.path.join("token")
    }

    /// The run's token.
    pub(crate) fn token(&self) -> Result<Token, Failure> {
        read_token(&self.token_file())
    }

    /// The job as it was when the run was made.
    pub(crate) fn job(&self) -> Result<Job, Failure> {
        let path = self.path.join("job.json");
        let text = fs::read_to_string(&path).map_err(|e| Failure::at(path.display().to_string(), e))?;
        serde_json::from_str(&text).map_err(|e| Failure::at(path.display().to_string(), e))
    }

    /// The scheduled changes of the number of workers, kept for whoever takes the run up again.
    ///
    /// # Errors
    ///
    /// Why they cannot be read; a run without the file has none.
    pub(crate) fn schedule(&self) -> Result<Vec<(u64, u32)>, String> {
        let path = self.path.join("schedule.json");
        match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
            Ok(text) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
        }
        .map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Keeps the scheduled changes.
    pub(crate) fn keep_schedule(&self, schedule: &[(u64, u32)]) -> Result<(), Failure> {
        let path = self.path.join("schedule.json");
        let text = serde_json::to_vec(schedule).map_err(|e| Failure::at("schedule", e))?;
        write_whole(&path, &text)
    }

    /// Where the run's coordinator is, or was when it died.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        serde_json::from_slice(&fs::read(self.path.join("endpoint.json")).ok()?).ok()
    }
}

/// Writes a file that only its owner may read, whole or not at all, also after a power cut.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_atomically(&path.with_extension("part"), path, bytes)
        .map_err(|e| Failure::at(path.display().to_string(), e))
}

/// Reads a token file.
pub(crate) fn read_token(path: &Path) -> Result<Token, Failure> {
    let place = path.display().to_string();
    let hint = "every run makes its own token; it lies in the run's folder, which `bellwether run` names";
    let text = fs::read_to_string(path)
        .map_err(|e| InputError::new(&place, format!("the token file cannot be read: {e}")).hint(hint))?;
    Token::parse(&text).ok_or_else(|| {
        InputError::new(place, "is not a token")
            .hint("a token file holds 64 hexadecimal digits; every run makes its own")
            .into()
    })
}
