//! Runs programs of clusters (`sbatch`, `kubectl`, `sky`): each has a time limit, and no more of an answer is read than
//! makes sense.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bellwether_runtime::objects::SECRET_VARIABLES;

/// How long a program may take: where the controller does not answer, Slurm's own give up after ten seconds or more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of an answer that are read at most: a line for each of a hundred thousand jobs.
const ANSWER_BYTES: u64 = 32 << 20;

/// Bytes of a complaint that are read at most.
const COMPLAINT_BYTES: u64 = 1 << 14;

/// Variables with this beginning would change what `squeue` prints. Those that hold a credential are left out as well:
/// Slurm's controller keeps the environment of a job, and shows it to operators.
const QUEUE_VARIABLES: [&str; 2] = ["SQUEUE_", "SINFO_"];

/// A program did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// It is not there, or cannot be started.
    #[error("`{program}` cannot be started: {why}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// Why.
        why: String,
    },
    /// It takes too long.
    #[error("`{program}` did not answer within {} s", patience.as_secs())]
    Late {
        /// Its name.
        program: &'static str,
        /// How long it was waited for.
        patience: Duration,
    },
    /// Its cluster cannot be reached.
    #[error("`{program}` cannot reach its cluster: {why}")]
    Unreachable {
        /// Its name.
        program: &'static str,
        /// What it says.
        why: String,
    },
    /// It says no.
    #[error("`{program}` failed: {why}")]
    Refused {
        /// Its name.
        program: &'static str,
        /// What it says.
        why: String,
    },
    /// Its answer cannot be read.
    #[error("the answer of `{program}` cannot be read: {what}")]
    Garbled {
        /// Its name.
        program: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

impl ProgramError {
    /// Whether it may go better the next time, as nothing was refused.
    pub fn is_passing(&self) -> bool {
        !matches!(self, ProgramError::Missing { .. } | ProgramError::Refused { .. })
    }
}

/// A program with what it is given.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    program: &'static str,
    arguments: Vec<OsString>,
    input: String,
    environment: Vec<(OsString, OsString)>,
    keeps_credentials: bool,
    patience: Duration,
}

impl Call {
    /// Of this program, with these arguments.
    pub(crate) fn new<A: Into<OsString>>(
        program: &'static str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Call {
            program,
            arguments,
            input: String::new(),
            environment: Vec::new(),
            keeps_credentials: false,
            patience: PATIENCE,
        }
    }

    /// The same, which reads this.
    pub(crate) fn reading(self, input: String) -> Call {
        Call { input, ..self }
    }

    /// The same with further variables.
    pub(crate) fn variables(mut self, environment: Vec<(OsString, OsString)>) -> Call {
        self.environment.extend(environment);
        self
    }

    /// The same for a program that needs the credentials of this process's environment, and keeps them to itself.
    pub(crate) fn keeping_credentials(self) -> Call {
        Call { keeps_credentials: true, ..self }
    }

    /// The same for a program that may take longer, or less long, than others.
    pub(crate) fn patience(self, patience: Duration) -> Call {
        Call { patience, ..self }
    }

    /// What it prints.
    pub(crate) fn answer(self) -> Result<String, ProgramError> {
        let program = self.program;
        let missing = |error: std::io::Error| ProgramError::Missing { program, why: error.to_string() };
        let mut command = Command::new(program);
        command.args(&self.arguments).env("LC_ALL", "C").envs(self.environment);
        for (name, _) in std::env::vars_os() {
            let shown = name.to_string_lossy();
            let is_secret = !self.keeps_credentials && SECRET_VARIABLES.contains(&&*shown);
            if is_secret || QUEUE_VARIABLES.iter().any(|beginning| shown.starts_with(beginning)) {
                command.env_remove(&name);
            }
        }
        // A group of its own: Ctrl-C is for us, and what the program starts in turn ends with it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(missing)?;
        let (input, said) = (child.stdin.take(), child.stdout.take());
        let text = self.input;
        std::thread::spawn(move || {
            // A program that reads nothing says itself why.
            let _ = input.map(|mut input| input.write_all(text.as_bytes()));
        });
        let answer = read(said, ANSWER_BYTES);
        let complaint = read(child.stderr.take(), COMPLAINT_BYTES);
        let until = Instant::now() + self.patience;
        let Some(status) = end_of(&mut child, until) else {
            return Err(ProgramError::Late { program, patience: self.patience });
        };
        // What still holds the pipes is none of the program's.
        let wait = Duration::from_secs(1);
        let complaint = complaint.recv_timeout(wait).unwrap_or_default();
        if !status.success() {
            return Err(refusal(program, status, &String::from_utf8_lossy(&complaint)));
        }
        let garbled = |what: &str| ProgramError::Garbled { program, what: what.into() };
        let answer = answer.recv_timeout(wait).map_err(|_| garbled("it does not end"))?;
        if answer.len() as u64 > ANSWER_BYTES {
            return Err(garbled("it is too long"));
        }
        String::from_utf8(answer).map_err(|_| garbled("it is not text"))
    }
}

/// Reads on a thread of its own, so that a program that writes without end is not waited for.
fn read(pipe: Option<impl Read + Send + 'static>, most: u64) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read before an error is what there is.
        let _ = pipe.map(|mut pipe| pipe.by_ref().take(most + 1).read_to_end(&mut bytes));
        // The other end may have given up.
        let _ = sender.send(bytes);
    });
    receiver
}

/// How it ended; `None` if it had to be killed.
fn end_of(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(20));
    }
}

fn refusal(program: &'static str, status: ExitStatus, complaint: &str) -> ProgramError {
    let lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    let plain = |line: &str| {
        let line = line.strip_prefix(program).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    };
    let why = lines.map(plain).collect::<Vec<_>>().join("; ");
    let why = if why.is_empty() { format!("it says nothing ({status})") } else { why };
    let unreachable =
        ["Unable to contact slurm controller", "Connection refused", "Connection timed out", "timed out"];
    match unreachable.iter().any(|words| why.contains(words)) {
        true => ProgramError::Unreachable { program, why },
        false => ProgramError::Refused { program, why },
    }
}
