//! The sources of Kubernetes, from the machine's own Debian: `apt-get` checks their signatures.
//!
//! `apt-get source` wants lists of sources that few machines keep. They are read into a folder of the bench, so that
//! the machine's own lists and configuration stay as they are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::processes;

/// The version in Debian 12. Later ones are cut down to `kubectl`: their servers are left out.
pub(crate) const VERSION: &str = "1.20.2";
const ARCHIVE: &str = "kubernetes_1.20.5+really1.20.2.orig.tar.gz";
const SHA256: &str = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc";

/// Signs the lists; it need not be among the keys that apt trusts for everything.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The archive in `folder`, fetched if it is not there.
pub(crate) fn fetch(folder: &Path, deadline: Instant) -> Result<PathBuf> {
    let archive = folder.join(ARCHIVE);
    if archive.exists() && sha256(&fs::read(&archive)?)? == SHA256 {
        return Ok(archive);
    }
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(part))
            .with_context(|| format!("cannot write in {}", folder.display()))?;
    }
    fs::write(folder.join("sources.list"), sources()?)?;
    apt(folder, &["update", "-q"], deadline)?;
    apt(folder, &["source", "-q", "--download-only", "kubernetes"], deadline)?;
    if !archive.exists() {
        bail!(
            "the servers are built from Kubernetes {VERSION}, which is in Debian 12, and here is another version"
        );
    }
    let found = sha256(&fs::read(&archive)?)?;
    if found != SHA256 {
        bail!("{} has the SHA-256 {found}; expected {SHA256}", archive.display());
    }
    Ok(archive)
}

/// An entry of sources for each archive that the machine takes packages from, so that its mirror is asked.
fn sources() -> Result<String> {
    // It prints what it would fetch: `'URL/dists/SUITE/InRelease' …`.
    let output = Command::new("apt-get").args(["update", "--print-uris"]).stdin(Stdio::null()).output();
    let printed = String::from_utf8_lossy(&output.context("cannot start apt-get")?.stdout).into_owned();
    let signed = if Path::new(KEYS).exists() { format!(" [signed-by={KEYS}]") } else { String::new() };
    let archive = |line: &str| {
        let (url, suite) = line.strip_prefix('\'')?.split_once("/dists/")?;
        Some(format!("deb-src{signed} {url} {} main\n", suite.split_once("/InRelease'")?.0))
    };
    let entries: BTreeSet<String> = printed.lines().filter_map(archive).collect();
    if entries.is_empty() {
        bail!("apt names no archive of Debian's to fetch the sources of Kubernetes from");
    }
    Ok(entries.into_iter().collect())
}

fn apt(folder: &Path, arguments: &[&str], deadline: Instant) -> Result<()> {
    let at = |name: &str, part: &str| ["-o".to_owned(), format!("{name}={}", folder.join(part).display())];
    let mut command = Command::new("apt-get");
    command.args(at("Dir::Etc::sourcelist", "sources.list")).args(["-o", "Dir::Etc::sourceparts=-"]);
    command.args(at("Dir::State::lists", "lists")).args(at("Dir::Cache", "cache"));
    // apt's own user may not write below `target`.
    command.args(["-o", "APT::Sandbox::User=root"]).args(arguments).current_dir(folder);
    let status = processes::within(&mut command, deadline)?;
    if !status.success() {
        bail!("`apt-get {}` failed: the sources of Kubernetes cannot be reached", arguments.join(" "));
    }
    Ok(())
}

/// The SHA-256 of these bytes in hexadecimal digits, by the program of that name.
pub(crate) fn sha256(bytes: &[u8]) -> Result<String> {
    let piped = Stdio::piped;
    let mut child =
        Command::new("sha256sum").stdin(piped()).stdout(piped()).spawn().context("cannot start sha256sum")?;
    std::io::Write::write_all(&mut child.stdin.take().context("sha256sum has no input")?, bytes)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    text.split_whitespace().next().map(str::to_owned).context("sha256sum says nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_standards() {
        // FIPS 180-4, the example "abc".
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc").unwrap(), expected);
    }
}
