//! The rules of the house, checked: each check is a pure function over paths and texts.

mod edges;
mod headers;
mod links;
mod pages;
mod ratchet;
mod size;
mod wording;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::generate;
use crate::problem::Problem;
use crate::tree::{self, Tree};

/// Checks the tree, prints what is wrong and how large the tree is; `false` when a rule is broken.
pub(crate) fn run() -> Result<bool> {
    let root = tree::root()?;
    let tree = tree::read(&root)?;
    let problems = problems(&tree, &metadata(&root)?)?;
    println!("{}", size::table(&tree.texts));
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => println!("tidy: {} files, nothing to complain of", tree.texts.len()),
        count => println!("tidy: rules broken: {count}, see above"),
    }
    Ok(problems.is_empty())
}

/// Everything that is wrong in the tree, sorted by place.
fn problems(tree: &Tree, metadata: &str) -> Result<Vec<Problem>> {
    let mut problems = edges::check(metadata)?;
    for (path, text) in &tree.texts {
        problems.extend(headers::check(path, text));
        problems.extend(wording::check(path, text));
        problems.extend(pages::check_title(path, text));
    }
    let allowances = tree.texts.get(ratchet::FILE).map_or("", String::as_str);
    problems.extend(ratchet::check(&tree.texts, allowances));
    problems.extend(links::check(&tree.texts, &tree.paths));
    problems.extend(pages::check_examples(&tree.texts));
    problems.extend(generate::check(&tree.texts));
    problems.sort();
    Ok(problems)
}

/// What cargo knows of the crates of this workspace.
fn metadata(root: &std::path::Path) -> Result<String> {
    let output = Command::new(tree::cargo())
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cannot start `cargo metadata`")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("`cargo metadata` printed something other than UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = tree::root().unwrap();
        let tree = tree::read(&root).unwrap();
        let problems = problems(&tree, &metadata(&root).unwrap()).unwrap();
        let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
        assert!(problems.is_empty(), "the tree breaks rules of the house:{}\n", lines.concat());
    }
}
