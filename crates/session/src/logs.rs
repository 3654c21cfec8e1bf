//! What scripts print is part of the logs of a run, and a script may print without end: logs are kept short.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bellwether_runtime::run_dir::RunDir;

/// Length from which on a log is shortened.
const MOST: u64 = 16 << 20;

/// What is kept of its beginning, which tells what went wrong first.
const HEAD: u64 = 2 << 20;

/// What is kept of its end.
const TAIL: u64 = 6 << 20;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps the logs of a run short until it is dropped.
pub(crate) struct Shortener {
    /// Nothing is sent: its end is the sign.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Shortener {
    /// Looks after the logs of this run.
    pub(crate) fn start(run: RunDir) -> io::Result<Shortener> {
        let (end, ended) = mpsc::channel();
        let look = move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                shorten_all(&run.path);
            }
            shorten_all(&run.path);
        };
        let thread = thread::Builder::new().name("logs".into()).spawn(look)?;
        Ok(Shortener { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Shortener {
    fn drop(&mut self) {
        drop(self.end.take());
        // It panics nowhere; if it did, the logs would be long.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Shortens the logs in a folder. A log that cannot be shortened stays as it is.
fn shorten_all(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        if RunDir::is_log(&entry.file_name().to_string_lossy()) {
            let _ = shorten(&entry.path());
        }
    }
}

/// Takes the middle out of a long log. Those who write to it append, so they go on at its new end; what they write in
/// the meantime may be among what is left out.
fn shorten(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).append(true).open(path)?;
    let length = file.metadata()?.len();
    if length <= MOST {
        return Ok(());
    }
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length - TAIL))?;
    (&file).take(TAIL).read_to_end(&mut tail)?;
    file.set_len(HEAD)?;
    writeln!(file, "\n[{} bytes of this log were left out here]", length - HEAD - TAIL)?;
    file.write_all(&tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_keeps_its_beginning_and_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("worker-1.log");
        let mut writer = File::options().create(true).append(true).open(&path).expect("a log");
        writer.write_all(b"first\n").expect("written");
        shorten_all(folder.path());
        assert_eq!(std::fs::read(&path).expect("read"), b"first\n");
        writer.write_all(&vec![b'.'; 100 << 20]).expect("written");
        writer.write_all(b"last\n").expect("written");
        std::fs::write(folder.path().join("metrics.jsonl"), vec![b'.'; 17 << 20]).expect("written");
        shorten_all(folder.path());
        writer.write_all(b"later\n").expect("written");
        let kept = std::fs::read(&path).expect("read");
        assert!(kept.len() as u64 <= HEAD + TAIL + 100, "{}", kept.len());
        assert!(kept.starts_with(b"first\n") && kept.ends_with(b"last\nlater\n"));
        let note = b"bytes of this log were left out here]\n";
        assert!(kept.windows(note.len()).any(|part| part == note));
        // Other files are not logs.
        assert_eq!(std::fs::metadata(folder.path().join("metrics.jsonl")).expect("it").len(), 17 << 20);
    }
}
