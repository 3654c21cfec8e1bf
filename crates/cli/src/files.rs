//! Files that users name.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellwether_answers::predict::read_profile;
use bellwether_core::InputError;
use bellwether_core::profile::Profile;
use bellwether_core::queue::{QueueTree, QueuesFile};
use bellwether_core::units::Bytes;
use bellwether_workloads::{Files, Ranges, Version};
use rustix::fs::OFlags;

use crate::failure::Failure;

/// Durations that a profile is sent with: its text stays below half of the longest request, and of what an object of
/// Kubernetes may hold.
const PROFILE_VALUES: usize = 20_000;

/// Sets of data files of which it is kept what was found out.
const KEPT_MAX: usize = 32;

/// Reads a file of queues, and checks what can be checked without a cluster.
pub(crate) fn read_queues(path: &Path) -> Result<QueuesFile, Failure> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| Failure::at(&place, error))?;
    let file: QueuesFile = bellwether_core::parse::document(&text, &place)?;
    QueueTree::new(&file, &place)?;
    Ok(file)
}

/// Reads a profile, with as many of its steps as a request may carry.
pub(crate) fn profile_to_send(path: &Path) -> Result<Profile, InputError> {
    let mut profile = read_profile(path)?;
    let values = profile.operations.len().max(1) * profile.steps.len();
    let one_in = values.div_ceil(PROFILE_VALUES);
    profile.steps = profile.steps.into_iter().step_by(one_in.max(1)).collect();
    Ok(profile)
}

/// Reads a file with data that a job names.
///
/// # Errors
///
/// Returns the file system's error, and one for a file that is not regular: a pipe or a device may never end, and other
/// programs read it too.
pub(crate) fn read_data(path: &Path) -> io::Result<Vec<u8>> {
    read_data_within(path, u64::MAX)
}

/// The same of a file with at most this many bytes.
pub(crate) fn read_data_within(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open_data(path)?;
    if length > limit_bytes {
        let (bytes, limit) = (Bytes(length), Bytes(limit_bytes));
        return Err(io::Error::other(format!("it has {bytes}, and {limit} are allowed")));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).map_err(io::Error::other)?)?;
    file.take(limit_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file, and says how long it is.
fn open_data(path: &Path) -> io::Result<(fs::File, u64)> {
    let check = |file: &fs::Metadata| match file.is_file() {
        true => Ok(file.len()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    // Before it is opened: opening a device may do something. After it: it may be another one by then.
    check(&fs::metadata(path)?)?;
    let never_wait = OFlags::NONBLOCK.bits() as i32;
    let file = fs::File::options().read(true).custom_flags(never_wait).open(path)?;
    let length = check(&file.metadata()?)?;
    Ok((file, length))
}

/// The files that a job's data are read from. A file with more than `limit_bytes` is not read whole.
pub(crate) fn data(limit_bytes: u64) -> Arc<dyn Files> {
    Arc::new(DataFiles { limit_bytes })
}

struct DataFiles {
    limit_bytes: u64,
}

/// An open file of data.
struct DataFile(fs::File);

impl Files for DataFiles {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        read_data_within(path, self.limit_bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Ranges>> {
        Ok(Arc::new(DataFile(open_data(path)?.0)))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    fn kept(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(cache_folder()?.join(name)).ok()
    }

    fn keep(&self, name: &str, bytes: &[u8]) {
        // Without a place for it the next process finds it out by itself.
        let Some(folder) = cache_folder().filter(|folder| fs::create_dir_all(folder).is_ok()) else { return };
        if write_whole(&folder.join(name), bytes).is_ok() {
            forget_old(&folder);
        }
    }
}

impl Ranges for DataFile {
    fn version(&self) -> io::Result<Version> {
        let file = self.0.metadata()?;
        let modified = (file.mtime(), file.mtime_nsec());
        Ok(Version { bytes: file.len(), modified, number: file.ino() })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }
}

/// Where it is kept what was found out about files of data.
fn cache_folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("bellwether").join("data"))
}

/// Removes what was kept longest ago, beyond the last few sets of files.
fn forget_old(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let age = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut files: Vec<_> = entries.flatten().filter_map(age).collect();
    files.sort_unstable();
    for (_, path) in files.iter().rev().skip(KEPT_MAX) {
        let _ = fs::remove_file(path);
    }
}

/// Writes a file so that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let place = path.display().to_string();
    let mut name =
        path.file_name().ok_or_else(|| Failure::at(&place, "is not the name of a file"))?.to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = fs::File::create(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&part, path)).map_err(|error| {
        // It may not have come into being.
        let _ = fs::remove_file(&part);
        Failure::at(place, error)
    })
}

/// Refuses a file whose folder is not there, before the work for it is done.
pub(crate) fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(Failure::at(path.display().to_string(), "is not the name of a file")),
    };
    if path.is_dir() {
        return Err(Failure::at(path.display().to_string(), "this is a folder; name a file in it"));
    }
    if folder.is_dir() {
        return Ok(());
    }
    let what = format!("there is no folder `{}`", folder.display());
    Err(InputError::new(path.display().to_string(), what)
        .hint("make the folder first, or name another")
        .into())
}
