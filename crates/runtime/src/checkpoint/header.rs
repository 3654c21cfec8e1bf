//! What stands before the values of a checkpoint, and the seal that tells it from damage.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use safetensors::tensor::SafeTensors;
use serde::Deserialize;

use crate::state::hex;

/// What this release writes.
pub(super) const FORMAT: &str = "bellwether 2";

/// What release 0.1 wrote: without a seal.
const UNSEALED: &str = "bellwether 1";

/// Longer headers safetensors does not read either.
const HEADER_BYTES_MAX: u64 = 100_000_000;

/// The metadata of a checkpoint.
#[derive(Debug)]
pub(super) struct Header {
    metadata: HashMap<String, String>,
}

impl Header {
    /// Reads it and checks its seal, where it is to have one.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Header, String> {
        let (_, content) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
        let header = Header { metadata: content.metadata().clone().unwrap_or_default() };
        match header.entry("format") {
            UNSEALED => return Ok(header),
            FORMAT => {}
            other => return Err(format!("its format is `{other}`, which this release does not know")),
        }
        let tensors = content.tensors();
        let shapes = tensors.iter().map(|(name, info)| (name.as_str(), info.shape.as_slice()));
        if seal(&header.metadata, shapes.collect()) != header.entry("seal") {
            return Err("its header does not have the seal it was written with".into());
        }
        Ok(header)
    }

    /// An entry; nothing for one that is not there.
    pub(super) fn entry(&self, key: &str) -> &str {
        self.metadata.get(key).map_or("", String::as_str)
    }

    /// Whether what it says is what was written.
    pub(super) fn is_sealed(&self) -> bool {
        self.entry("format") == FORMAT
    }
}

/// The digest of all that a header says but the seal itself, in an order of its own.
pub(super) fn seal(metadata: &HashMap<String, String>, mut shapes: Vec<(&str, &[usize])>) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    };
    let mut entries: Vec<_> = metadata.iter().filter(|(key, _)| *key != "seal").collect();
    entries.sort_unstable();
    for (key, value) in entries {
        add(key);
        add(value);
    }
    shapes.sort_unstable();
    for (name, shape) in shapes {
        add(name);
        add(&format!("{shape:?}"));
    }
    hex(hasher.finalize().as_bytes())
}

/// The run that the file at `path` says it is of; none where it cannot be read, or says nothing.
pub(super) fn run(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "__metadata__")]
        entries: HashMap<String, String>,
    }
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        return None;
    }
    let mut text = Vec::new();
    file.take(length).read_to_end(&mut text).ok()?;
    serde_json::from_slice::<Metadata>(&text).ok()?.entries.remove("run")
}
