//! The ledger on disk.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::lines::{Unread, lines, parse};
use super::{Damage, Entry, Line, repair};

/// A ledger is compacted when it is this many times as long as after the last time: what compaction costs stays a
/// fraction of what was written since.
const GROWTH: u64 = 4;

/// What keeps a ledger's bytes.
pub trait Store: Send {
    /// All that there is; nothing where there is no ledger yet.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    fn read(&mut self) -> io::Result<Box<dyn Read>>;

    /// Leaves out what comes after this many bytes.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Adds bytes at the end; after an error some of them may be there.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// What was added outlasts the machine's end.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    fn sync(&mut self) -> io::Result<()>;

    /// Puts these bytes in the place of all, and keeps the others; says where. That it was done outlasts the machine's
    /// end after the next [`sync`](Store::sync); until then either are there, and whole.
    ///
    /// # Errors
    ///
    /// Returns the store's error; nothing was replaced then.
    fn replace(&mut self, bytes: &[u8], keep: Keep) -> io::Result<String>;
}

/// As what bytes are kept that others take the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Under a name of their own: they are damaged.
    Damaged,
    /// As those before the last compaction; those before an earlier one go.
    Before,
}

/// A ledger was made shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// Bytes that it had.
    pub before: u64,
    /// Bytes that it has.
    pub after: u64,
    /// Where the longer one is kept.
    pub kept_as: String,
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = [self.before, self.after].map(|bytes| bytes.div_ceil(1 << 10));
        let kept_as = &self.kept_as;
        write!(f, "compacted from {before} KiB to {after} KiB; the longer one is kept as {kept_as}")
    }
}

/// A file that keeps a ledger.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    /// Opened when something is first written.
    file: Option<File>,
    /// Whether the name stands for another file since the folder was last made to last.
    is_renamed: bool,
}

impl FileStore {
    /// The file may not be there yet.
    pub fn new(path: PathBuf) -> FileStore {
        FileStore { path, file: None, is_renamed: false }
    }

    /// Its path with this at the end.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    }

    /// Another name for the file that is replaced. At every moment there is a ledger under its own.
    fn keep(&self, keep: Keep) -> io::Result<PathBuf> {
        match keep {
            Keep::Damaged => {
                let mut names = (1_u32..).map(|number| self.beside(&format!(".damaged-{number}")));
                let free = names.find(|path| !path.exists());
                let kept = free.ok_or_else(|| io::Error::other("no name is free for the damaged ledger"))?;
                fs::hard_link(&self.path, &kept)?;
                Ok(kept)
            }
            Keep::Before => {
                let (kept, part) = (self.beside(".before"), self.beside(".before.part"));
                remove(&part)?;
                fs::hard_link(&self.path, &part)?;
                fs::rename(&part, &kept)?;
                // Two names of one file are not renamed.
                remove(&part)?;
                Ok(kept)
            }
        }
    }

    fn write_part(&self, bytes: &[u8]) -> io::Result<PathBuf> {
        let part = self.beside(".part");
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(part)
    }

    fn open(&mut self) -> io::Result<&mut File> {
        if self.file.is_none() {
            let is_new = !self.path.exists();
            let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            if is_new {
                sync_folder(&self.path)?;
            }
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("it was closed"))
    }
}

/// The name of a file outlasts the machine's end, too.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

impl Store for FileStore {
    fn read(&mut self) -> io::Result<Box<dyn Read>> {
        match File::open(&self.path) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Box::new(io::empty())),
            Err(error) => Err(error),
        }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let file = self.open()?;
        if file.metadata()?.len() > bytes { file.set_len(bytes) } else { Ok(()) }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.open()?.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.open()?.sync_data()?;
        if self.is_renamed {
            sync_folder(&self.path)?;
            self.is_renamed = false;
        }
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8], keep: Keep) -> io::Result<String> {
        let replaced = self.write_part(bytes).and_then(|part| {
            let kept = self.keep(keep)?;
            fs::rename(&part, &self.path)?;
            Ok(kept)
        });
        match replaced {
            Ok(kept) => {
                (self.file, self.is_renamed) = (None, true);
                Ok(kept.display().to_string())
            }
            Err(error) => {
                // It may take the room that is missing.
                let _ = remove(&self.beside(".part"));
                Err(error)
            }
        }
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// An open ledger.
pub struct LedgerFile {
    store: Box<dyn Store>,
    /// Bytes of whole lines that the store has.
    written: u64,
    /// With how many bytes it is compacted.
    compact_at: u64,
    /// No ledger of fewer bytes is compacted.
    least: u64,
    pending: Vec<u8>,
    /// Whether something pending must be on disk before any client hears of it.
    must_last: bool,
}

impl LedgerFile {
    /// Opens a ledger: `each` makes something of its lines, starting over whenever it gets `None`. What a crash cut
    /// short at the end is removed. Lines that are damaged or cannot be are set aside, and the ledger is rewritten
    /// without them; the damage is returned. One of fewer than `least` bytes is never [due](LedgerFile::is_due) to be
    /// compacted.
    ///
    /// # Errors
    ///
    /// Returns the store's error, or one if the ledger's first line is damaged or another version of the program wrote
    /// it.
    pub fn open<S, E: fmt::Display>(
        mut store: Box<dyn Store>,
        least: u64,
        mut each: impl FnMut(&mut Option<S>, &Line) -> Result<(), E>,
    ) -> io::Result<(LedgerFile, Option<S>, Option<Damage>)> {
        let (mut made, mut bytes, mut compacted) = (None, 0, 0);
        let read = lines(store.read()?, &mut |number, text| {
            let line = parse(text).map_err(|what| Unread::Line(number, what))?;
            bytes += text.len() as u64;
            if let Entry::KeptState(_) = line.entry {
                compacted = bytes;
            }
            each(&mut made, &line).map_err(|what| Unread::Line(number, format!("cannot be: {what}")))
        });
        let (written, damage) = match read {
            Ok(whole) => {
                store.cut(whole)?;
                (whole, None)
            }
            Err(Unread::Store(error)) => return Err(error),
            Err(Unread::Line(..)) => {
                let kept;
                let mut each =
                    |made: &mut Option<S>, line: &Line| each(made, line).map_err(|e| e.to_string());
                (kept, made) = repair::repair(store.read()?, &mut each)?;
                let (bytes, mut damage) = kept;
                damage.kept_as = store.replace(&bytes, Keep::Damaged)?;
                store.sync()?;
                (bytes.len() as u64, Some(damage))
            }
        };
        let compact_at = least.max(GROWTH.saturating_mul(compacted));
        let (pending, must_last) = (Vec::new(), false);
        Ok((LedgerFile { store, written, compact_at, least, pending, must_last }, made, damage))
    }

    /// Whether it has become long since it was last compacted.
    pub fn is_due(&self) -> bool {
        self.written >= self.compact_at
    }

    /// Puts these lines in the place of all, those that were added and not committed included; the longer ledger is
    /// kept. It lasts after the next [`sync`](LedgerFile::sync).
    ///
    /// # Errors
    ///
    /// Returns the store's error; nothing was replaced then.
    pub fn compact(&mut self, bytes: &[u8]) -> io::Result<Compaction> {
        let kept_as = self.store.replace(bytes, Keep::Before)?;
        let before = std::mem::replace(&mut self.written, bytes.len() as u64);
        self.compact_at = self.least.max(GROWTH.saturating_mul(self.written));
        self.pending.clear();
        self.must_last = false;
        Ok(Compaction { before, after: self.written, kept_as })
    }

    /// It could not be compacted: that is tried again when it is twice as long.
    pub fn postpone(&mut self) {
        self.compact_at = self.written.saturating_mul(2).max(self.least);
    }

    /// All that was committed or compacted outlasts the machine's end.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    pub fn sync(&mut self) -> io::Result<()> {
        self.store.sync()
    }

    /// Adds a line; it is written with the next [`commit`](LedgerFile::commit). With `must_last` it is on disk then,
    /// and survives the machine's end, not only the daemon's.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be put into JSON: a number that is none.
    pub fn add(&mut self, line: &Line, must_last: bool) -> io::Result<()> {
        serde_json::to_writer(&mut self.pending, line)?;
        self.pending.push(b'\n');
        self.must_last |= must_last;
        Ok(())
    }

    /// Writes what was added.
    ///
    /// # Errors
    ///
    /// Returns the store's error. If it has no room, it holds none of what was added, and the next commit tries again.
    pub fn commit(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.store.append(&self.pending) {
            self.store.cut(self.written)?;
            return Err(error);
        }
        self.written += self.pending.len() as u64;
        self.pending.clear();
        if std::mem::take(&mut self.must_last) {
            self.store.sync()?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for LedgerFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerFile").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// Reads a ledger without touching it; a last line without its end is left out.
///
/// # Errors
///
/// Returns the file system's error, or that of `each` with the line's number.
pub fn read<E: fmt::Display>(path: &Path, each: impl FnMut(Line) -> Result<(), E>) -> io::Result<()> {
    read_from(File::open(path)?, each)
}

/// The same with the bytes of a ledger.
///
/// # Errors
///
/// Same errors as [`read`].
pub fn read_from<E: fmt::Display>(
    from: impl Read,
    mut each: impl FnMut(Line) -> Result<(), E>,
) -> io::Result<()> {
    let read = lines(from, &mut |number, text| {
        let line = parse(text).map_err(|what| Unread::Line(number, what))?;
        each(line).map_err(|what| Unread::Line(number, format!("cannot be: {what}")))
    });
    Ok(read.map(drop)?)
}
