//! `--kubernetes`: the jobs of a cluster, through the program that knows Kubernetes.
//!
//! This command links nothing of Kubernetes. It starts `bellwether-operator client`, which answers as a daemon does,
//! and asks that. The program ends when its input is closed, so it ends with this process, however that ends.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use bellwether_client::Endpoint;
use bellwether_core::InputError;
use serde_json::Value;

/// The program that knows Kubernetes.
const PROGRAM: &str = "bellwether-operator";

/// More bytes than its first line has.
const LINE_BYTES: u64 = 64 << 10;

/// The program, once it was needed. It holds the input that tells the program to go on.
static HELPER: Mutex<Option<Helper>> = Mutex::new(None);

struct Helper {
    socket: PathBuf,
    /// With the other end of its input.
    _child: Child,
}

/// Where the jobs of this namespace are answered for. All questions of a command go to one program.
pub(crate) fn endpoint(namespace: Option<&str>) -> Result<Endpoint, InputError> {
    let mut helper = HELPER.lock().unwrap_or_else(PoisonError::into_inner);
    let socket = match &*helper {
        Some(helper) => helper.socket.clone(),
        None => helper.insert(start(namespace)?).socket.clone(),
    };
    Ok(Endpoint::Socket(socket))
}

/// Whether jobs of a cluster are asked for.
pub(crate) fn is_asked() -> bool {
    HELPER.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

fn start(namespace: Option<&str>) -> Result<Helper, InputError> {
    let program = program();
    let mut command = Command::new(&program);
    command.arg("client").stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(namespace) = namespace {
        command.arg(format!("--namespace={namespace}"));
    }
    let mut child = command.spawn().map_err(|error| not_started(&program, &error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // What is not text is not an answer either.
        let _ = BufReader::new(output.take(LINE_BYTES)).read_line(&mut line);
    }
    match heard(&line) {
        Some(Ok(socket)) => Ok(Helper { socket, _child: child }),
        Some(Err(error)) => {
            let _ = child.wait();
            Err(error)
        }
        None => {
            // It would wait for the end of its input.
            drop(child.stdin.take());
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let what = format!("it ended without saying where it listens ({ended})");
            let hint = "compare `bellwether --version` and `bellwether-operator --version`";
            Err(InputError::new(program.display().to_string(), what).hint(hint))
        }
    }
}

/// The one beside this command, or else one of PATH.
fn program() -> PathBuf {
    let here = std::env::current_exe().ok().map(|command| command.with_file_name(PROGRAM));
    here.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}

fn not_started(program: &Path, error: &std::io::Error) -> InputError {
    let what = match error.kind() {
        ErrorKind::NotFound => {
            format!(
                "the program `{PROGRAM}` is neither beside `bellwether` nor in PATH, and it alone knows Kubernetes"
            )
        }
        _ => format!("{} cannot be started: {error}", program.display()),
    };
    let hint = "`cargo build --release -p bellwether-operator` builds it in target/release; put it beside `bellwether`";
    InputError::new("--kubernetes", what).hint(hint)
}

/// What the first line says: where it listens, or why it does not; `None` where it says neither.
fn heard(line: &str) -> Option<Result<PathBuf, InputError>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| value[key].as_str();
    if let Some(socket) = text("socket") {
        return Some(Ok(socket.into()));
    }
    let place = text("place").unwrap_or(PROGRAM);
    Some(Err(InputError::new(place, text("error")?).hint(text("hint").unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_where_or_why_not() {
        assert_eq!(heard(r#"{"socket": "/run/x/socket"}"#), Some(Ok("/run/x/socket".into())));
        let error = heard(r#"{"error": "no file", "place": "kubeconfig", "hint": "set KUBECONFIG"}"#);
        assert_eq!(error, Some(Err(InputError::new("kubeconfig", "no file").hint("set KUBECONFIG"))));
        for nothing in ["", "no JSON", "[]", "{}", r#"{"socket": 1}"#] {
            assert_eq!(heard(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_where_to_get_it() {
        let error = not_started(Path::new(PROGRAM), &ErrorKind::NotFound.into());
        assert_eq!(error.place, "--kubernetes");
        assert!(error.what.contains("neither beside") && error.hint.contains("cargo build"), "{error}");
    }
}
