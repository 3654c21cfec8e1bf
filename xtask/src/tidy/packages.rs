//! How many packages a default build compiles: each costs everybody who builds from source.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::problem::Problem;
use crate::tree;

/// Packages that `cargo build` may compile, ours included. `client`, `render` and `answers` were parts of the command
/// before, so the cold build did not grow with them. Two are for object stores: certificates of public authorities,
/// which are data, and a reader of XML. `rpds`, `archery` and `triomphe`, the daemon's persistent maps, compile in 2 s.
/// `memory` is ours, small, and needs what was there.
pub(crate) const MOST: usize = 315;

/// What `cargo tree` lists of the command, a package per line.
pub(crate) fn listed(root: &Path) -> Result<String> {
    let output = tree::cargo()
        .args([
            "tree",
            "--locked",
            "--package",
            "bellwether-cli",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .current_dir(root)
        .output()
        .context("cannot start `cargo tree`")?;
    if !output.status.success() {
        bail!("`cargo tree` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("`cargo tree` printed something other than UTF-8")
}

/// How many packages are listed: name and version, however often.
pub(crate) fn count(listed: &str) -> usize {
    let package = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    listed.lines().map(package).filter(|package| !package.is_empty()).collect::<BTreeSet<_>>().len()
}

/// Too many packages.
pub(crate) fn check(count: usize) -> Option<Problem> {
    (count > MOST).then(|| {
        let message = format!(
            "a default build compiles {count} packages, and {MOST} are allowed; do without, put it behind a feature or \
             into another artefact, or raise the number in xtask/src/tidy/packages.rs with the cold build before and after"
        );
        Problem::of_file("Cargo.lock", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_by_version() {
        let listed = "a v1.0.0 (/x)\nb v1.0.0\nb v1.0.0 (*)\nb v2.0.0\nc v1.0.0 (proc-macro)\n\n";
        assert_eq!(count(listed), 4);
        assert!(check(MOST).is_none());
        assert!(check(MOST + 1).is_some());
    }
}
