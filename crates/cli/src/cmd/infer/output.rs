//! Where predictions go: a file that is there whole or not at all, one that grows, or standard output; and what was
//! written so far, so that a coordinator that was killed is followed by another.
//!
//! Beside the output lies a folder, `OUTPUT.infer`, as long as it is not finished: what was predicted (`part`), a line
//! of JSON for each unit of that (`progress.jsonl`), and what workers say. A line has digests of all rows read and of
//! all bytes written so far: a new coordinator believes the last line whose digest fits what lies in the file.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_runtime::run_dir::RunDir;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::printer::Printer;

/// The form of `progress.jsonl`.
const FORMAT: u32 = 1;

const PART: &str = "part";
const PROGRESS: &str = "progress.jsonl";

/// What decides the bytes of the output, beside the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Digest of the weights.
    pub(super) weights: String,
    /// Whether probabilities are written.
    pub(super) scores: bool,
    /// Whether the first line of the input names its columns, where that was said.
    pub(super) header: Option<bool>,
    /// Whether the output is written in its place, row by row.
    pub(super) follows: bool,
}

/// A line of `progress.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Begun { format: u32, identity: Identity },
    Class(String),
    Unit { rows: u64, bytes: u64, read: String, written: String },
}

/// How far an earlier coordinator came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// Rows that are predicted.
    pub(super) rows: u64,
    /// Digest of these rows.
    pub(super) read: String,
    /// The kernel class of the workers.
    pub(super) class: Option<String>,
}

/// Where predictions go.
pub(super) struct Output {
    /// The folder beside it, with the token of the inference.
    pub(super) run: RunDir,
    place: Place,
    progress: File,
    hasher: blake3::Hasher,
    rows: u64,
    bytes: u64,
    /// Held until the end.
    _lock: File,
}

enum Place {
    /// Renamed at the end, unless it is in its place already.
    File {
        file: File,
        path: PathBuf,
        in_place: bool,
    },
    Stdout,
}

impl Output {
    /// Opens the output `path` (standard output of `-`), and finds out how far an earlier coordinator came.
    pub(super) fn open(path: &Path, job: &Job, identity: &Identity) -> Result<(Output, Past), Failure> {
        let is_stdout = path == Path::new("-");
        let folder = match is_stdout {
            true => std::env::temp_dir().join(format!("bellwether-infer-{}", std::process::id())),
            false => beside(path)?,
        };
        let run = RunDir::at(&folder);
        run.complete(job)?;
        let place = folder.display().to_string();
        let at = |error: io::Error| Failure::at(&place, error);
        let lock = File::options().create(true).append(true).open(run.lock_file()).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let error =
                    InputError::new(path.display().to_string(), "another inference writes it right now");
                let hint = format!("`bellwether scale {place} --workers N` gives it more workers");
                return Err(error.hint(hint).into());
            }
            Err(TryLockError::Error(error)) => return Err(at(error)),
        }
        let written = if identity.follows { path.to_path_buf() } else { folder.join(PART) };
        let (past, bytes, hasher) = match is_stdout {
            true => (Past::default(), 0, blake3::Hasher::new()),
            false => past(&folder, &written, identity)?,
        };
        let is_new = past.rows == 0;
        let mut progress =
            File::options().create(true).append(true).open(folder.join(PROGRESS)).map_err(at)?;
        if is_new {
            progress.set_len(0).map_err(at)?;
            line(&mut progress, &Line::Begun { format: FORMAT, identity: identity.clone() }).map_err(at)?;
            past.class
                .iter()
                .try_for_each(|class| line(&mut progress, &Line::Class(class.clone())))
                .map_err(at)?;
        }
        let place = match is_stdout {
            true => Place::Stdout,
            false => {
                let mut file =
                    File::options().create(true).truncate(false).write(true).open(&written).map_err(at)?;
                file.set_len(bytes).and_then(|()| file.seek(SeekFrom::Start(bytes))).map_err(at)?;
                Place::File { file, path: path.to_path_buf(), in_place: identity.follows }
            }
        };
        let rows = past.rows;
        Ok((Output { run, place, progress, hasher, rows, bytes, _lock: lock }, past))
    }

    /// Whether nothing was written yet.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Notes by which kernels rows are predicted.
    pub(super) fn class(&mut self, class: &str) -> Result<(), InputError> {
        line(&mut self.progress, &Line::Class(class.to_owned())).map_err(|error| self.full(&error))
    }

    /// Writes the predictions of a unit, of `rows` rows; `read` is the digest of all rows so far.
    pub(super) fn write(
        &mut self,
        text: &[u8],
        rows: usize,
        read: &str,
        printer: &Printer,
    ) -> Result<(), InputError> {
        let written = match &mut self.place {
            Place::File { file, .. } => file.write_all(text),
            Place::Stdout => {
                let text = String::from_utf8_lossy(text);
                match printer.line(text.trim_end_matches('\n')) {
                    true => Ok(()),
                    false => Err(io::ErrorKind::BrokenPipe.into()),
                }
            }
        };
        written.map_err(|error| self.full(&error))?;
        self.hasher.update(text);
        self.rows += rows as u64;
        self.bytes += text.len() as u64;
        let written = self.hasher.finalize().to_hex()[..32].to_owned();
        let unit = Line::Unit { rows: self.rows, bytes: self.bytes, read: read.to_owned(), written };
        line(&mut self.progress, &unit).map_err(|error| self.full(&error))
    }

    fn full(&self, error: &io::Error) -> InputError {
        let place = match &self.place {
            Place::File { path, .. } => path.display().to_string(),
            Place::Stdout => "standard output".into(),
        };
        let hint = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                "make room and give the same command again: it goes on after the rows that are written"
            }
            _ => "give the same command again: it goes on after the rows that are written",
        };
        InputError::new(place, format!("cannot be written after {} rows: {error}", self.rows)).hint(hint)
    }

    /// Puts the output into its place, and removes the folder.
    pub(super) fn finish(self) -> Result<(), Failure> {
        if let Place::File { file, path, in_place } = &self.place {
            let at = |error: io::Error| Failure::from(self.full(&error));
            file.sync_all().map_err(at)?;
            if !in_place {
                fs::rename(self.run.path.join(PART), path).map_err(at)?;
            }
        }
        // What is left of it changes nothing.
        let _ = fs::remove_dir_all(&self.run.path);
        Ok(())
    }

    /// Leaves nothing of an inference that did not begin.
    pub(super) fn forget(self) {
        if self.is_empty() || matches!(self.place, Place::Stdout) {
            let _ = fs::remove_dir_all(&self.run.path);
        }
    }
}

/// The folder beside an output.
fn beside(path: &Path) -> Result<PathBuf, Failure> {
    crate::files::check_folder(path)?;
    let place = path.display().to_string();
    let mut name =
        path.file_name().ok_or_else(|| Failure::at(&place, "is not the name of a file"))?.to_os_string();
    name.push(".infer");
    let folder = std::path::absolute(path.with_file_name(name)).map_err(|error| Failure::at(place, error))?;
    Ok(folder)
}

fn line(progress: &mut File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::other)?;
    text.push(b'\n');
    progress.write_all(&text)
}

/// How far an earlier coordinator came: rows, and the bytes of them with their digest.
fn past(folder: &Path, written: &Path, identity: &Identity) -> Result<(Past, u64, blake3::Hasher), Failure> {
    let (mut past, mut bytes, mut hasher) = (Past::default(), 0, blake3::Hasher::new());
    let Ok(progress) = File::open(folder.join(PROGRESS)) else { return Ok((past, bytes, hasher)) };
    let mut file = File::open(written).ok().map(BufReader::new);
    for text in BufReader::new(progress).lines() {
        // The last line may be cut short, where its writer was killed.
        let Some(Ok(line)) = text.ok().map(|text| serde_json::from_str::<Line>(&text)) else { break };
        match line {
            Line::Begun { format, identity: of } if format != FORMAT || of != *identity => {
                let what = "holds what another inference began: of other weights, or with other options";
                let error = InputError::new(folder.display().to_string(), what);
                return Err(error.hint("remove that folder, or name another output").into());
            }
            Line::Begun { .. } => {}
            Line::Class(class) => past.class = Some(class),
            Line::Unit { rows, bytes: end, read, written } => {
                let length = end.saturating_sub(bytes);
                let mut hashed = hasher.clone();
                let copied =
                    file.as_mut().and_then(|file| io::copy(&mut file.take(length), &mut hashed).ok());
                if copied != Some(length) || hashed.finalize().to_hex()[..32] != written {
                    break;
                }
                (past.rows, past.read, bytes, hasher) = (rows, read, end, hashed);
            }
        }
    }
    Ok((past, bytes, hasher))
}
