//! Results that are kept line by line in a file, so that a measurement of hours can be stopped and goes on.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::Failure;

/// The file: what was asked for in its first line, and a result in every other.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Opens the file, or begins it; returns the results that it holds.
    pub(super) fn open<T: DeserializeOwned>(
        path: &Path,
        settings: &Value,
    ) -> Result<(Lines, Vec<T>), Failure> {
        let fault = |error: std::io::Error| Failure::at(path.display().to_string(), error);
        let text = if path.exists() { fs::read_to_string(path).map_err(fault)? } else { String::new() };
        let file = File::options().create(true).append(true).open(path).map_err(fault)?;
        let mut lines = Lines { path: path.into(), file };
        // A line that was cut off by a kill is not whole; a line feed makes the next one a line of its own.
        let held: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if !text.is_empty() && !text.ends_with('\n') {
            lines.file.write_all(b"\n").map_err(fault)?;
        }
        let first = json!({ "result": "settings", "settings": settings });
        match held.first() {
            Some(own) if *own == first => {}
            Some(_) => {
                let why = "holds results with other settings; name another file with --record";
                return Err(Failure::at(path.display().to_string(), why));
            }
            None => lines.add(&first)?,
        }
        let results = held.into_iter().skip(1).filter_map(|line| serde_json::from_value(line).ok());
        Ok((lines, results.collect()))
    }

    /// Writes a result.
    pub(super) fn add(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let fault = |error: std::io::Error| Failure::at(self.path.display().to_string(), error);
        let mut text = serde_json::to_string(line).map_err(|error| fault(error.into()))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;

    #[test]
    fn a_line_that_was_cut_off_is_measured_again_and_other_settings_are_refused() {
        let folder = Folder::new("lines").expect("a folder");
        let path = folder.path().join("record.jsonl");
        let settings = json!({ "epochs": 3 });
        let open = || Lines::open::<(String, f64)>(&path, &settings).expect("a record");
        let (mut lines, held) = open();
        assert_eq!(held, []);
        lines.add(&("a", 0.1)).expect("room");
        lines.add(&("b", 0.2)).expect("room");
        let text = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, &text[..text.len() - 4]).expect("room");
        let (mut lines, held) = open();
        assert_eq!(held, [("a".to_string(), 0.1)]);
        lines.add(&("b", 0.3)).expect("room");
        assert_eq!(open().1, [("a".to_string(), 0.1), ("b".to_string(), 0.3)]);
        assert!(Lines::open::<(String, f64)>(&path, &json!({ "epochs": 4 })).is_err());
    }
}
