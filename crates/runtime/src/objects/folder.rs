//! Objects as files of a folder. On a network file system too: a rename there is one request to its server, which other
//! nodes see whole or not at all, and `fsync` before it makes the server keep the content.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::place::{Object, Objects, StoreError};
use crate::private;
use crate::whole::write_atomically;

/// A folder.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    /// Makes temporary names differ within this process.
    written: AtomicU64,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Folder {
        Folder { root: root.into(), written: AtomicU64::new(0) }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn open(&self, key: &str) -> Result<(File, u64), StoreError> {
        let path = self.path(key);
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        opened.map(|(bytes, file)| (file, bytes)).map_err(|error| fault(&path, &error))
    }
}

fn fault(path: &Path, error: &io::Error) -> StoreError {
    let place = path.display().to_string();
    match error.kind() {
        io::ErrorKind::NotFound => StoreError::Missing { place },
        _ => StoreError::Failed { place, what: error.to_string() },
    }
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed { place: path.display().to_string(), what: error.to_string() }
}

/// Nothing where there is no such folder.
fn entries(path: &Path) -> Result<Vec<fs::DirEntry>, StoreError> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(path, &error)),
        Ok(entries) => entries.collect::<io::Result<_>>().map_err(|error| failed(path, &error)),
    }
}

impl Objects for Folder {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(key);
        let folder = path.parent().unwrap_or(&self.root);
        // Of all processes of all nodes.
        let mut random = [0; 8];
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let written =
            getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string())).and_then(|()| {
                private::folder(folder)?;
                let temporary = folder.join(format!(".{:016x}-{number}.part", u64::from_le_bytes(random)));
                write_atomically(&temporary, &path, bytes)
            });
        written.map_err(|error| failed(&path, &error))
    }

    fn read(&self, key: &str, into: &mut [u8]) -> Result<(), StoreError> {
        let (mut file, bytes) = self.open(key)?;
        let path = self.path(key);
        if bytes != into.len() as u64 {
            return Err(StoreError::Length { place: path.display().to_string(), bytes: into.len() as u64 });
        }
        file.read_exact(into).map_err(|error| fault(&path, &error))
    }

    fn get(&self, key: &str, most: u64) -> Result<Vec<u8>, StoreError> {
        let (file, bytes) = self.open(key)?;
        let path = self.path(key);
        if bytes > most {
            return Err(StoreError::Length { place: path.display().to_string(), bytes: most });
        }
        let mut content = Vec::new();
        file.take(most).read_to_end(&mut content).map_err(|error| fault(&path, &error))?;
        Ok(content)
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let mut found = Vec::new();
        let mut folders = vec![folder.trim_end_matches('/').to_string()];
        while let Some(folder) = folders.pop() {
            for entry in entries(&self.path(&folder))? {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let key = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(key),
                    Ok(metadata) => found.push(Object { key, bytes: metadata.len() }),
                    // Another process removed it meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(failed(&entry.path(), &error)),
                }
            }
        }
        Ok(found)
    }

    fn folders(&self) -> Result<Vec<String>, StoreError> {
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let folders = entries(&self.root)?.into_iter().filter(is_folder);
        Ok(folders.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&path, &error)),
            _ => {}
        }
        // A folder that is empty now goes too; one that is not stays.
        if let Some(folder) = path.parent().filter(|folder| *folder != self.root) {
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}
