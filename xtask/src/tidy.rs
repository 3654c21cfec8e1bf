//! The rules of the house, checked: each check is a pure function over paths and texts.

mod circles;
mod counts;
mod dialect;
mod edges;
mod headers;
mod links;
pub(crate) mod modes;
mod packages;
mod pages;
mod paths;
mod ratchet;
mod width;
mod wording;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};

use counts::Census;
use ratchet::Measures;

use crate::code::Code;
use crate::generate;
use crate::problem::Problem;
use crate::tree::{self, Tree};

/// What the checks say.
struct Findings {
    /// Everything that is wrong, sorted by place.
    problems: Vec<Problem>,
    /// The counts of all crates.
    table: String,
    /// What [`ratchet::FILE`] should hold: nothing that has shrunk.
    listed: String,
}

/// Checks the tree, prints what is wrong and how large the tree is; `false` when a rule is broken. Numbers of the
/// ratchet that have shrunk are lowered in its file.
pub(crate) fn run() -> Result<bool> {
    let root = tree::root()?;
    let tree = tree::read(&root)?;
    let Findings { mut problems, table, listed } = findings(&tree, &metadata(&root)?)?;
    let packages = packages::count(&packages::listed(&root)?);
    problems.extend(packages::check(packages));
    println!("{table}packages of a default build: {packages} of {}\n", packages::MOST);
    for problem in &problems {
        println!("{problem}");
    }
    if tree.texts.get(ratchet::FILE).is_some_and(|text| *text != listed) {
        std::fs::write(root.join(ratchet::FILE), listed)
            .with_context(|| format!("cannot write {}", ratchet::FILE))?;
        println!("tidy: something has shrunk; {} says so now, commit it", ratchet::FILE);
    }
    match problems.len() {
        0 => println!("tidy: {} files, nothing to complain of", tree.texts.len()),
        count => println!("tidy: rules broken: {count}, see above"),
    }
    Ok(problems.is_empty())
}

/// Everything that the checks say of the tree.
fn findings(tree: &Tree, metadata: &str) -> Result<Findings> {
    let mut problems = edges::check(metadata)?;
    let codes = codes(tree)?;
    for (path, text) in &tree.texts {
        problems.extend(headers::check(path, text));
        problems.extend(wording::check(path, text, codes.get(path)));
        problems.extend(pages::check_title(path, text));
    }
    let imports = circles::imports(&codes);
    let census = Census::of(&tree.texts, &codes, &imports);
    let mut measures = Measures::new();
    ratchet::measure(&tree.texts, &codes, &mut measures);
    width::measure(&tree.texts, &mut measures);
    dialect::measure(&tree.texts, &mut measures);
    census.measure(&imports, &mut measures);
    let listed = tree.texts.get(ratchet::FILE).map_or("", String::as_str);
    problems.extend(ratchet::check(&measures, listed));
    problems.extend(census.problems());
    problems.extend(paths::check(&tree.texts, &tree.paths));
    problems.extend(links::check(&tree.texts, &tree.paths));
    problems.extend(pages::check_examples(&tree.texts));
    problems.extend(generate::check(&tree.texts));
    problems.extend(modes::check(&tree.texts, &codes));
    problems.sort();
    Ok(Findings { problems, table: census.table(&imports), listed: ratchet::lowered(&measures, listed) })
}

/// The tokens of every Rust file, by its path.
fn codes(tree: &Tree) -> Result<BTreeMap<String, Code>> {
    let files = tree.texts.iter().filter(|(path, _)| path.ends_with(".rs"));
    let read = |(path, text): (&String, &String)| match text.parse() {
        Ok(code) => Ok((path.clone(), code)),
        Err(error) => bail!("cannot read the tokens of {path}: {error}"),
    };
    files.map(read).collect()
}

/// What cargo knows of the crates of this workspace.
fn metadata(root: &std::path::Path) -> Result<String> {
    let output = tree::cargo()
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
        let mut problems = findings(&tree, &metadata(&root).unwrap()).unwrap().problems;
        problems.extend(packages::check(packages::count(&packages::listed(&root).unwrap())));
        let lines: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
        assert!(problems.is_empty(), "the tree breaks rules of the house:{}\n", lines.concat());
    }
}
