//! Paths that sources and pages name exist: in strings, in help, in comments and in prose.

use std::collections::BTreeSet;

use crate::problem::{Problem, line_of};
use crate::tree::Texts;

/// The folders with which a path of the project begins; `src/`, `tests/` are those of the crate that names them.
const FOLDERS: [&str; 10] =
    ["benches/", "crates/", "data/", "docs/", "examples/", "proto/", "src/", "tests/", "tools/", "xtask/"];

/// What looks like a path and is none, or is made by a build.
const OTHERS: [&str; 2] = ["examples/s", "tools/gpu-probe/probe"];

/// Letters of a path.
fn is_of_a_path(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_-./".contains(letter)
}

/// Checks the sources of all crates and the pages at the root and in `docs/`; `paths` are the files and folders that
/// exist. A path with a placeholder (`*`, `{name}`) is checked up to there.
pub(crate) fn check(texts: &Texts, paths: &BTreeSet<String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (from, text) in texts.iter().filter(|(path, _)| is_checked(path)) {
        for (offset, path, goes_on) in FOLDERS.iter().flat_map(|folder| named(text, folder)) {
            if !OTHERS.contains(&path) && !exists(from, path, goes_on, paths) {
                let message = format!("there is no `{path}`; mend the path, or add the file");
                problems.push(Problem::at_line(from, line_of(text, offset), message));
            }
        }
    }
    problems
}

fn is_checked(path: &str) -> bool {
    let is_page = path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
    // What has changed since is in the changelog under its old name.
    is_page && path != "CHANGELOG.md" || path.ends_with(".rs") && path.starts_with("crates/")
}

/// The paths in `text` that begin with `folder`, without a dot or a slash at their end, and whether a placeholder
/// follows.
fn named<'t>(text: &'t str, folder: &'t str) -> impl Iterator<Item = (usize, &'t str, bool)> {
    text.match_indices(folder).filter_map(|(offset, _)| {
        // Longer paths, addresses and `$HOME/data/` begin elsewhere.
        let before = text[..offset].chars().next_back();
        if before.is_some_and(|letter| is_of_a_path(letter) || "$~>}:".contains(letter)) {
            return None;
        }
        let rest = &text[offset..];
        let length = rest.find(|letter| !is_of_a_path(letter)).unwrap_or(rest.len());
        let goes_on = rest[length..].starts_with(['*', '{', '<', '…']);
        let path = if goes_on { &rest[..length] } else { rest[..length].trim_end_matches(['.', '/', '-']) };
        Some((offset, path, goes_on))
    })
}

/// Whether a path exists as it is written: from the root, from the crate that names it, or with the ending of Rust. Of
/// one that goes on with a placeholder, something must begin so.
fn exists(from: &str, path: &str, goes_on: bool, paths: &BTreeSet<String>) -> bool {
    let own: Vec<&str> = from.split('/').take(2).collect();
    let in_crate = format!("{}/{path}", own.join("/"));
    let begins =
        |path: &str| paths.range(path.to_owned()..).next().is_some_and(|next| next.starts_with(path));
    let is_there = |path: &str| match goes_on {
        true => begins(path),
        false => paths.contains(path) || paths.contains(&format!("{path}.rs")),
    };
    is_there(path) || own[0] == "crates" && is_there(&in_crate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    fn problems(from: &str, text: &str) -> Vec<String> {
        let texts = Texts::from([(from.to_owned(), text.to_owned())]);
        let files = [
            "examples",
            "examples/digits.toml",
            "crates/a/tests",
            "crates/a/tests/it",
            "crates/a/tests/it/laws.rs",
        ];
        shown(&check(&texts, &files.map(str::to_owned).into()))
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        let text =
            "//! Laws.\n/// See examples/federate.\nconst HINT: &str = \"examples/none.toml is one\";\n";
        let expected = [
            "crates/a/src/b.rs:2: there is no `examples/federate`; mend the path, or add the file",
            "crates/a/src/b.rs:3: there is no `examples/none.toml`; mend the path, or add the file",
        ];
        assert_eq!(problems("crates/a/src/b.rs", text), expected);
        assert_eq!(problems("crates/a/src/b.rs", "//! examples/none-*.toml are some.").len(), 1);
        assert_eq!(problems("docs/a.md", "`examples/none.toml` and tests/it/laws.rs").len(), 2);
    }

    #[test]
    fn paths_that_are_there_and_what_is_no_path_pass() {
        let text = "//! `tests/it/laws.rs`, examples/digits.toml. examples/*.toml, examples/{name}.toml: 9 examples/s.\n\
                    //! https://host/data/x, ../data/x, $HOME/data/x, mydata/x";
        assert_eq!(problems("crates/a/src/b.rs", text), [""; 0]);
        assert_eq!(problems("CHANGELOG.md", "examples/none.toml"), [""; 0]);
    }
}
