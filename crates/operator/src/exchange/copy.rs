//! The operator's copy of the files of a run: bytes are added where they belong, or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use bellwether_runtime::append::Appender;
use bellwether_runtime::private;
use bellwether_runtime::run_dir::{RunDir, RunFile};

use super::{CHUNK_BYTES, Have};

/// Bytes that are compared at once with those that are there.
const COMPARED_BYTES: usize = 1 << 16;

/// Most bytes of a copy: a pod that goes wrong must not fill the operator's disk.
fn bytes_max(file: RunFile) -> u64 {
    match file {
        RunFile::Journal | RunFile::Metrics => 8 << 30,
        RunFile::Log => 64 << 20,
    }
}

/// What became of bytes that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// They are there now, and this number of them is new.
    Here(Have, usize),
    /// They are not: they begin behind what is there, or differ from it.
    Elsewhere(Have),
    /// There is no room for them.
    Full,
}

/// Adds bytes that begin at `offset`. Those that are there already must be the same.
///
/// # Errors
///
/// Returns the file system's error.
pub(super) fn add(run: &RunDir, file: RunFile, offset: u64, bytes: &[u8]) -> io::Result<Taken> {
    private::folder(&run.path)?;
    let path = run.file(file);
    let mut copy = Copy::open(&path, file)?;
    let have = copy.length()?;
    let elsewhere = |differs| Ok(Taken::Elsewhere(Have { have, differs }));
    let Some(known) = have.checked_sub(offset) else { return elsewhere(false) };
    let known = usize::try_from(known).unwrap_or(usize::MAX).min(bytes.len());
    if !copy.holds(offset, &bytes[..known])? {
        return elsewhere(true);
    }
    let new = &bytes[known..];
    if have + new.len() as u64 > bytes_max(file) {
        return Ok(Taken::Full);
    }
    if !new.is_empty() {
        copy.append(new)?;
    }
    Ok(Taken::Here(Have { have: have + new.len() as u64, differs: false }, new.len()))
}

/// The bytes of a copy from `offset` on, some at a time; none where it ends.
///
/// # Errors
///
/// Returns the file system's error; a copy that is not there is empty.
pub(super) fn read(run: &RunDir, file: RunFile, offset: u64) -> io::Result<Vec<u8>> {
    let path = run.file(file);
    if !path.try_exists()? {
        return Ok(Vec::new());
    }
    let copy = Copy::open(&path, file)?;
    let there = copy.length()?.saturating_sub(offset);
    let mut bytes = vec![0; usize::try_from(there).unwrap_or(usize::MAX).min(CHUNK_BYTES)];
    copy.reader.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// An open copy.
struct Copy {
    reader: File,
    /// Absent where a part of a line may stand at the end.
    lines: Option<Appender>,
}

impl Copy {
    /// Opens it. A part of a line that a crash of ours left is removed.
    fn open(path: &Path, file: RunFile) -> io::Result<Copy> {
        if file.has_lines() {
            let lines = Appender::open(path)?;
            return Ok(Copy { reader: lines.again()?, lines: Some(lines) });
        }
        let reader = File::options().create(true).read(true).append(true).mode(0o600).open(path)?;
        Ok(Copy { reader, lines: None })
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.reader.metadata()?.len())
    }

    /// Whether these bytes are there from `offset` on.
    fn holds(&self, mut offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let mut there = vec![0; bytes.len().min(COMPARED_BYTES)];
        for part in bytes.chunks(COMPARED_BYTES) {
            let there = &mut there[..part.len()];
            self.reader.read_exact_at(there, offset)?;
            if there != part {
                return Ok(false);
            }
            offset += part.len() as u64;
        }
        Ok(true)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.lines {
            Some(lines) => lines.append(bytes),
            None => self.reader.write_all(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn here(have: u64, new: usize) -> Taken {
        Taken::Here(Have { have, differs: false }, new)
    }

    fn elsewhere(have: u64, differs: bool) -> Taken {
        Taken::Elsewhere(Have { have, differs })
    }

    #[test]
    fn bytes_are_added_once_and_where_they_belong() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::at(folder.path().join("run"));
        let add = |offset, bytes: &str| add(&run, RunFile::Journal, offset, bytes.as_bytes()).unwrap();
        assert_eq!(read(&run, RunFile::Journal, 0).unwrap(), b"");
        assert_eq!(add(4, "two\n"), elsewhere(0, false));
        assert_eq!(add(0, "one\n"), here(4, 4));
        assert_eq!(add(0, "one\n"), here(4, 0));
        assert_eq!(add(0, "one\ntwo\n"), here(8, 4));
        assert_eq!(add(4, "two\nthree\n"), here(14, 6));
        assert_eq!(add(4, "TWO\n"), elsewhere(14, true));
        assert_eq!(add(4, "TWO\nthree\nfour\n"), elsewhere(14, true));
        assert_eq!(add(u64::MAX, "x\n"), elsewhere(14, false));
        assert_eq!(add(14, ""), here(14, 0));
        assert_eq!(read(&run, RunFile::Journal, 4).unwrap(), b"two\nthree\n");
        assert_eq!(read(&run, RunFile::Journal, u64::MAX).unwrap(), b"");
    }

    #[test]
    fn what_a_crash_cut_short_is_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::at(folder.path());
        fs::write(run.journal_file(), "one\ntw").unwrap();
        fs::write(run.coordinator_log(), "50 %").unwrap();
        assert_eq!(read(&run, RunFile::Journal, 0).unwrap(), b"one\n");
        assert_eq!(add(&run, RunFile::Journal, 6, b"o\n").unwrap(), elsewhere(4, false));
        assert_eq!(add(&run, RunFile::Journal, 4, b"two\n").unwrap(), here(8, 4));
        // What is printed need not be lines.
        assert_eq!(add(&run, RunFile::Log, 4, b"\r60 %").unwrap(), here(9, 5));
    }

    #[test]
    fn a_log_does_not_fill_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDir::at(folder.path());
        let log = fs::File::create(run.coordinator_log()).unwrap();
        let most = bytes_max(RunFile::Log);
        log.set_len(most - 1).unwrap();
        assert_eq!(add(&run, RunFile::Log, most - 1, b"ab").unwrap(), Taken::Full);
        assert_eq!(add(&run, RunFile::Log, most - 1, b"a").unwrap(), here(most, 1));
    }

    proptest! {
        /// Whatever order and repetition chunks have, and wherever a crash cuts: the copy is a beginning of the file,
        /// and a sender that goes on from what it is told has all of it there in the end.
        #[test]
        fn any_order_and_repetition_gives_the_same_file(
            lines in proptest::collection::vec("[a-c]{0,6}", 1..20),
            tries in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..30),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let run = RunDir::at(folder.path());
            let file: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
            let ends: Vec<usize> = (0..file.len()).filter(|at| file[*at] == b'\n').map(|at| at + 1).collect();
            for (number, (from, to)) in tries.iter().enumerate() {
                let to = ends[to.index(ends.len())];
                let from = from.index(to + 1);
                let taken = add(&run, RunFile::Journal, from as u64, &file[from..to]).unwrap();
                prop_assert!(!matches!(taken, Taken::Elsewhere(Have { differs: true, .. })), "{:?}", taken);
                if let Some(cut) = cuts.get(number) {
                    let copy = fs::read(run.journal_file()).unwrap();
                    fs::write(run.journal_file(), &copy[..cut.index(copy.len() + 1)]).unwrap();
                }
                let copy = read(&run, RunFile::Journal, 0).unwrap();
                prop_assert!(file.starts_with(&copy) && (copy.is_empty() || copy.ends_with(b"\n")));
            }
            let mut offset = file.len() as u64;
            loop {
                match add(&run, RunFile::Journal, offset, &file[offset as usize..]).unwrap() {
                    Taken::Here(have, _) => {
                        prop_assert_eq!(have.have, file.len() as u64);
                        break;
                    }
                    Taken::Elsewhere(have) => offset = have.have,
                    Taken::Full => unreachable!("it is short"),
                }
            }
            prop_assert_eq!(fs::read(run.journal_file()).unwrap(), file);
        }
    }
}
