//! The files of the repository, and the cargo that runs this task.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Text files by path; paths are relative to the root and use `/`.
pub(crate) type Texts = BTreeMap<String, String>;

/// The files that make up the project: tracked ones, and new ones that git does not ignore.
pub(crate) struct Tree {
    /// Every file and every folder that holds one, without a trailing slash.
    pub(crate) paths: std::collections::BTreeSet<String>,
    /// Those files that are text.
    pub(crate) texts: Texts,
}

/// The cargo that runs this task, without what it told this program of its package: build scripts that ask for that, as
/// `ring`'s does, would run again, and with them all that depends on them, when cargo is started by hand in between.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if shown.starts_with("CARGO_PKG_") || shown.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The root of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set; start this program as `cargo xtask`")?;
    let root = Path::new(&folder).parent().context("the folder of xtask has no parent")?;
    Ok(root.to_path_buf())
}

/// Where cargo builds: the folder that holds the profile of this program.
pub(crate) fn target() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program stands")?;
    let target =
        program.parent().and_then(Path::parent).context("this program stands in no target folder")?;
    Ok(target.to_path_buf())
}

/// Reads the whole tree below `root`.
pub(crate) fn read(root: &Path) -> Result<Tree> {
    let mut tree = Tree { paths: Default::default(), texts: Texts::new() };
    let names = match listed_by_git(root) {
        Some(names) => names,
        None => walked(root)?,
    };
    for name in names {
        let path = root.join(&name);
        // A file that was deleted but not yet staged is still in the index.
        if !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let folders = name.match_indices('/').map(|(end, _)| name[..end].to_owned());
        tree.paths.extend(folders);
        tree.paths.insert(name.clone());
        if let Ok(text) = String::from_utf8(bytes) {
            tree.texts.insert(name, text);
        }
    }
    if !tree.paths.contains("Cargo.toml") {
        bail!(
            "{} holds no Cargo.toml; start this program as `cargo xtask` in the repository",
            root.display()
        );
    }
    Ok(tree)
}

/// What git knows of, or `None` where there is no git or no repository (an unpacked archive).
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let listing = String::from_utf8(output.stdout).ok()?;
    let names: Vec<String> = listing.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    (output.status.success() && names.iter().any(|name| name == "Cargo.toml")).then_some(names)
}

/// Every file below `root` but build output and what git keeps for itself.
fn walked(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let entries = std::fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", path.display()))?;
            let kind = entry.file_type().with_context(|| format!("cannot list {}", path.display()))?;
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            if kind.is_file() {
                names.push(name);
            } else if kind.is_dir() && ![".git", "target"].contains(&&*entry.file_name().to_string_lossy()) {
                folders.push(format!("{name}/"));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_listing_see_this_file() {
        let root = root().unwrap();
        let tree = read(&root).unwrap();
        assert!(tree.texts.contains_key("xtask/src/tree.rs"));
        assert!(tree.paths.contains("xtask/src") && !tree.paths.contains("target"));
        let walked = walked(&root).unwrap();
        assert!(walked.iter().any(|name| name == "xtask/src/tree.rs"));
        assert!(!walked.iter().any(|name| name.starts_with("target/") || name.starts_with(".git/")));
    }

    #[test]
    fn a_folder_without_a_project_is_refused_with_its_name() {
        let folder = root().unwrap().join("xtask/src/tidy");
        let error = read(&folder).err().expect("no Cargo.toml there").to_string();
        assert!(error.contains("xtask/src/tidy holds no Cargo.toml"), "{error}");
    }
}
