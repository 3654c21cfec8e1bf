//! The ledger on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::lines::{Unread, lines, parse};
use super::{Damage, Line, repair};

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

    /// Puts these bytes in the place of all, and keeps the others; says where.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    fn replace(&mut self, bytes: &[u8]) -> io::Result<String>;
}

/// A file that keeps a ledger.
#[derive(Debug)]
pub struct FileStore {
    path: PathBuf,
    /// Opened when something is first written.
    file: Option<File>,
}

impl FileStore {
    /// The file may not be there yet.
    pub fn new(path: PathBuf) -> FileStore {
        FileStore { path, file: None }
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
        self.open()?.sync_data()
    }

    fn replace(&mut self, bytes: &[u8]) -> io::Result<String> {
        self.file = None;
        let with = |ending: String| {
            let mut name = self.path.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        let free = (1_u32..).map(|number| with(format!(".damaged-{number}"))).find(|path| !path.exists());
        let kept = free.ok_or_else(|| io::Error::other("no name is free for the damaged ledger"))?;
        let part = with(".part".into());
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // At every moment there is a ledger under its name.
        fs::hard_link(&self.path, &kept)?;
        fs::rename(&part, &self.path)?;
        sync_folder(&self.path)?;
        Ok(kept.display().to_string())
    }
}

/// An open ledger.
pub struct LedgerFile {
    store: Box<dyn Store>,
    /// Bytes of whole lines that the store has.
    written: u64,
    pending: Vec<u8>,
    /// Whether something pending must be on disk before any client hears of it.
    must_last: bool,
}

impl LedgerFile {
    /// Opens a ledger: `each` makes something of its lines, starting over whenever it gets `None`. What a crash cut
    /// short at the end is removed. Lines that are damaged or cannot be are set aside, and the ledger is rewritten
    /// without them; the damage is returned.
    ///
    /// # Errors
    ///
    /// Returns the store's error, or one if the ledger's first line is damaged or another version of the program wrote
    /// it.
    pub fn open<S>(
        mut store: Box<dyn Store>,
        mut each: impl FnMut(&mut Option<S>, &Line) -> Result<(), String>,
    ) -> io::Result<(LedgerFile, Option<S>, Option<Damage>)> {
        let mut made = None;
        let read = lines(store.read()?, &mut |number, text| {
            let line = parse(text).map_err(|what| Unread::Line(number, what))?;
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
                (kept, made) = repair::repair(store.read()?, &mut each)?;
                let (bytes, mut damage) = kept;
                damage.kept_as = store.replace(&bytes)?;
                (bytes.len() as u64, Some(damage))
            }
        };
        Ok((LedgerFile { store, written, pending: Vec::new(), must_last: false }, made, damage))
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
pub fn read(path: &Path, mut each: impl FnMut(Line) -> Result<(), String>) -> io::Result<()> {
    let read = lines(Box::new(File::open(path)?), &mut |number, text| {
        let line = parse(text).map_err(|what| Unread::Line(number, what))?;
        each(line).map_err(|what| Unread::Line(number, format!("cannot be: {what}")))
    });
    Ok(read.map(drop)?)
}
