//! The package `bellwether` as tests import it: its sources with the native module beside them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tree;

/// What was compiled before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Before {
    #[default]
    Nothing,
    /// The tests of the whole workspace, for which crates have more features than for two packages: what is compiled
    /// with these has to be compiled with the tests beside it, or all is compiled again.
    Workspace,
}

/// Compiles the native module and the command; `false` where that fails.
pub(crate) fn build(root: &Path, before: Before) -> Result<bool> {
    let packages: &[&str] = match before {
        Before::Nothing => &["--package", "bellwether-cli", "--package", "bellwether-python"],
        Before::Workspace => &["--workspace", "--lib", "--bins", "--tests"],
    };
    let status = tree::cargo()
        .args(["build", "--release", "--quiet"])
        .args(packages)
        .current_dir(root)
        .status()
        .context("cannot start `cargo build`")?;
    Ok(status.success())
}

/// Makes a folder in which Python finds the package. It holds links, so a changed source needs no copy.
pub(crate) fn lay_out(root: &Path, target: &Path) -> Result<PathBuf> {
    let folder = target.join("python/package");
    let package = folder.join("bellwether");
    if package.exists() {
        std::fs::remove_dir_all(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    std::fs::create_dir_all(&package).with_context(|| format!("cannot make {}", package.display()))?;
    let sources = root.join("python/bellwether");
    for entry in std::fs::read_dir(&sources).with_context(|| format!("cannot list {}", sources.display()))? {
        let source = entry.with_context(|| format!("cannot list {}", sources.display()))?;
        // Somebody may have put a module of another build there.
        if source.path().extension().is_none_or(|extension| extension != "so") {
            link(&source.path(), &package.join(source.file_name()))?;
        }
    }
    link(&target.join("release/lib_native.so"), &package.join("_native.abi3.so"))?;
    Ok(folder)
}

fn link(source: &Path, link: &Path) -> Result<()> {
    symlink(source, link).with_context(|| format!("cannot link {} to {}", link.display(), source.display()))
}
