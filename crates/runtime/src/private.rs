//! Files and folders of this user alone.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::process::geteuid;

/// Makes a folder, with those that it lies in, that only its owner may look into. What is there stays as it is.
///
/// # Errors
///
/// Returns the file system's error.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a folder where there is none; one that is there is taken only if it [is this user's alone](is_own).
///
/// # Errors
///
/// Returns the file system's error, or one if other users may enter the folder.
pub fn own_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => is_own(path),
    }
}

/// Makes a file that only its owner may read, or empties the one that is there.
///
/// # Errors
///
/// Returns the file system's error.
pub fn file(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Takes from all others what they may do with what is there: it may have been copied, or made by a user with another
/// umask.
///
/// # Errors
///
/// Returns the file system's error.
pub fn restrict(path: &Path) -> io::Result<()> {
    let mode = if fs::metadata(path)?.is_dir() { 0o700 } else { 0o600 };
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Whether a folder is this user's alone; not where a link leads, which another user may have put there.
///
/// # Errors
///
/// Returns an error if it is not, or does not exist.
pub fn is_own(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} is not this user's alone", path.display())))
    }
}
