//! Where rows come from: a file, a file that grows, or standard input; and the digest of what was read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_workloads::data::rows::Form;
use bellwether_workloads::data::{Cutter, Rows};

/// Rows of a unit.
const UNIT: usize = 1024;

/// Time between two looks at a file that may have grown.
const LOOK: Duration = Duration::from_millis(50);

/// Some rows, and the digest of all rows up to the last of them.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) rows: Rows,
    pub(super) digest: String,
}

/// A file that another program still writes: its end is not the end.
struct Growing {
    file: File,
    read: u64,
}

impl Read for Growing {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.file.read(bytes)?;
            if count > 0 || bytes.is_empty() {
                self.read += count as u64;
                return Ok(count);
            }
            if self.file.metadata()?.len() < self.read {
                return Err(io::Error::other("it became shorter while it was followed"));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The units of the input, from the first one that is not done.
pub(super) struct Source {
    cutter: Cutter,
    hasher: blake3::Hasher,
}

impl Source {
    /// Opens the file `data`, or standard input of `-`.
    pub(super) fn open(form: &Arc<Form>, data: &Path, follows: bool) -> Result<Source, InputError> {
        let name =
            if data == Path::new("-") { "standard input".to_owned() } else { data.display().to_string() };
        if follows && !form.has_lines() {
            return Err(InputError::new("--follow", "only rows on lines can be followed")
                .hint("leave it out: this model's samples stand in files of a fixed form"));
        }
        let fault = |error: io::Error| {
            let hint =
                if error.kind() == io::ErrorKind::NotFound { "name a file that is there, or -" } else { "" };
            InputError::new(&name, format!("cannot be read: {error}")).hint(hint)
        };
        let reader: Box<dyn Read + Send> = if data == Path::new("-") {
            Box::new(io::stdin())
        } else {
            if !std::fs::metadata(data).map_err(fault)?.is_file() {
                return Err(fault(io::Error::other("it is not a regular file; pipe it in, with --data -")));
            }
            let file = File::open(data).map_err(fault)?;
            if follows { Box::new(Growing { file, read: 0 }) } else { Box::new(file) }
        };
        let cutter = Cutter::new(Arc::clone(form), &name, reader, UNIT, follows)?;
        Ok(Source { cutter, hasher: blake3::Hasher::new() })
    }

    /// Passes over rows that are done; their digest must be this one.
    pub(super) fn pass_over(&mut self, rows: u64, digest: &str) -> Result<(), InputError> {
        let changed = |what: &str| {
            InputError::new(
                "--data",
                format!("{what}: the first {rows} rows were predicted from other content"),
            )
            .hint("remove the folder named after the output, to begin again")
        };
        let mut left = rows;
        while left > 0 {
            let unit = self
                .cutter
                .take_at_most(left)
                .transpose()?
                .ok_or_else(|| changed("the input is shorter now"))?;
            self.hasher.update(&unit.bytes);
            left -= unit.count as u64;
        }
        match self.digest() == digest {
            true => Ok(()),
            false => Err(changed("the input has changed")),
        }
    }

    fn digest(&self) -> String {
        self.hasher.finalize().to_hex()[..32].to_owned()
    }
}

impl Iterator for Source {
    type Item = Result<Unit, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows = match self.cutter.next()? {
            Ok(rows) => rows,
            Err(error) => return Some(Err(error)),
        };
        self.hasher.update(&rows.bytes);
        Some(Ok(Unit { digest: self.digest(), rows }))
    }
}
