//! What a coordinator begins with: the folder that it finds, or what the operator has of it, or checkpoints.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use bellwether_core::job::{CheckedJob, CheckpointUrl};
use bellwether_runtime::objects::StoreError;
use bellwether_runtime::run_dir::{RunDir, RunFile};
use bellwether_runtime::slices;

use super::said::{Fault, Said};
use crate::exchange::{Client, Sent};
use crate::pod::patience::Patience;
use crate::pod::say;

/// Bytes at the end of what the operator has that must be the same here.
const COMPARED_BYTES: u64 = 1 << 16;

/// Digits of a run's random name, which stands behind its name in the place for checkpoints.
const NAME_DIGITS: usize = 16;

/// Makes the folder what it should be, however long that takes. Says of each file how much of it the operator has.
///
/// # Errors
///
/// Another pod leads the run.
pub(super) fn find(
    client: &Client,
    run: &RunDir,
    job: &CheckedJob,
) -> Result<[u64; RunFile::ALL.len()], Said> {
    let mut patience = Patience::with("what the run is to begin with");
    loop {
        match try_find(client, run, job) {
            Ok(offsets) => {
                patience.went_well();
                return Ok(offsets);
            }
            Err(Fault::Passing(why)) => std::thread::sleep(patience.failed(&why)),
            Err(Fault::Lasting(said)) => return Err(said),
        }
    }
}

fn try_find(client: &Client, run: &RunDir, job: &CheckedJob) -> Result<[u64; RunFile::ALL.len()], Fault> {
    let mut offsets = [0; RunFile::ALL.len()];
    for (file, offset) in RunFile::ALL.into_iter().zip(&mut offsets) {
        *offset = settle(client, run, file)?;
    }
    let is_new = length(run, RunFile::Journal)? == 0;
    if is_new && let Some(url) = &job.checkpoint.url {
        let found = newest(url, &run.name, job).map_err(|error| Fault::Passing(error.to_string()))?;
        if let Some((url, step)) = found {
            say(format_args!("the run goes on from the checkpoint of step {step} in {url}"));
            run.keep_origin(&url).map_err(|error| Fault::Passing(error.to_string()))?;
        }
    }
    Ok(offsets)
}

/// Makes a file what it should be. The operator's copy is what every coordinator since has gone on from: where it has
/// more than lies here, or something else, it is taken.
fn settle(client: &Client, run: &RunDir, file: RunFile) -> Result<u64, Fault> {
    let here = length(run, file)?;
    let have = match client.send(file, 0, b"")? {
        Sent::Here(have) | Sent::Elsewhere(have) => have,
        Sent::Differs => return Err(Fault::Passing("nothing differs from something".into())),
    };
    if have > here || !is_same(client, run, file, have)? {
        return restore(client, run, file);
    }
    Ok(have)
}

/// Whether the last of the first `have` bytes are here as they are there.
fn is_same(client: &Client, run: &RunDir, file: RunFile, have: u64) -> Result<bool, Fault> {
    if have == 0 {
        return Ok(true);
    }
    let from = have.saturating_sub(COMPARED_BYTES);
    let mut bytes = vec![0; (have - from) as usize];
    File::open(run.file(file))?.read_exact_at(&mut bytes, from)?;
    if file.has_lines() && bytes.last() != Some(&b'\n') {
        return Ok(false);
    }
    Ok(client.send(file, from, &bytes)? == Sent::Here(have))
}

fn restore(client: &Client, run: &RunDir, file: RunFile) -> Result<u64, Fault> {
    let mut restoration = run.restore(file)?;
    loop {
        let bytes = client.fetch(file, restoration.bytes())?;
        if bytes.is_empty() {
            break;
        }
        restoration.add(&bytes)?;
    }
    let bytes = restoration.bytes();
    restoration.finish()?;
    say(format_args!("the {file} is restored from the operator's copy: {bytes} bytes"));
    Ok(bytes)
}

/// The newest checkpoint at `url` of the run with this name: where it lies, and its step. Another run of the same job
/// began from the start on purpose.
fn newest(
    url: &CheckpointUrl,
    name: &str,
    job: &CheckedJob,
) -> Result<Option<(CheckpointUrl, u64)>, StoreError> {
    let mut newest: Option<(CheckpointUrl, u64)> = None;
    for folder in slices::runs_at(url)? {
        if !is_of(&folder, name) {
            continue;
        }
        let found = slices::newest_run(&folder, &job.identity())?;
        let is_newer = |step: u64| newest.as_ref().is_none_or(|(_, known)| step > *known);
        newest = found.filter(|(_, step)| is_newer(*step)).or(newest);
    }
    // Workers have other working directories.
    if let Some((url, _)) = &mut newest
        && let Some(folder) = url.folder_mut()
        && let Ok(absolute) = std::path::absolute(&*folder)
    {
        *folder = absolute;
    }
    Ok(newest)
}

/// Whether a folder of checkpoints is that of the run with this name.
fn is_of(folder: &CheckpointUrl, name: &str) -> bool {
    let text = folder.to_string();
    let last = text.rsplit('/').next().unwrap_or_default();
    let rest = last.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|id| id.len() == NAME_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Bytes of a file, of one that is made of lines up to the end of its last whole line; 0 where it is not there.
///
/// # Errors
///
/// Returns the file system's error.
fn length(run: &RunDir, file: RunFile) -> io::Result<u64> {
    let opened = match File::open(run.file(file)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        opened => opened?,
    };
    let mut end = opened.metadata()?.len();
    let mut chunk = vec![0; 1 << 16];
    while file.has_lines() && end > 0 {
        let from = end.saturating_sub(chunk.len() as u64);
        let chunk = &mut chunk[..(end - from) as usize];
        opened.read_exact_at(chunk, from)?;
        if let Some(last) = chunk.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + last as u64 + 1);
        }
        end = from;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_of_the_run_with_the_name() {
        let is_of = |folder: &str| is_of(&folder.parse().unwrap(), "mnist-1");
        assert!(
            is_of("s3://bucket/prefix/mnist-1-0123456789abcdef") && is_of("/shared/mnist-1-0123456789abcdef")
        );
        for other in
            ["mnist-1", "mnist-10-0123456789abcdef", "mnist-1-012345", "mnist-1-0123456789abcdeg", "x"]
        {
            assert!(!is_of(&format!("/shared/{other}")), "{other}");
        }
    }
}
