//! Files of a crate that import one another in a circle, and verbs of the command line that import another verb.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::Code;

/// The folder of the verbs.
const VERBS: &str = "crates/cli/src/cmd/";

/// The imports between the files of all crates, by the paths of the files. What a file takes from one that it is a part
/// of (`super::`) does not count as an import: a module and its parts are one thing.
pub(crate) type Imports = BTreeMap<String, BTreeSet<String>>;

/// Reads the imports out of the sources of all crates, tests left out.
pub(crate) fn imports(codes: &BTreeMap<String, Code>) -> Imports {
    let files: BTreeMap<Vec<&str>, &str> =
        codes.keys().filter_map(|path| Some((module(path)?, path.as_str()))).collect();
    let mut imports = Imports::new();
    for (here, path) in &files {
        let code = codes[*path].without_tests();
        let paths = code.paths();
        let targets = paths.iter().filter_map(|names| target(here, names, &files)).map(str::to_owned);
        imports.insert((*path).to_owned(), targets.collect());
    }
    imports
}

/// The crate's folder and the names of the modules that lead to a file of its sources; `None` for other files.
fn module(path: &str) -> Option<Vec<&str>> {
    let (folder, rest) = path.strip_suffix(".rs")?.split_once("/src/")?;
    let mut names: Vec<&str> = rest.split('/').collect();
    if ["lib", "main", "mod"].contains(names.last()?) {
        names.pop();
    }
    (names.last() != Some(&"tests")).then_some(())?;
    Some([folder].into_iter().chain(names).collect())
}

/// The other file of our crate to which a path leads that is written in the file `here`.
fn target<'a, 'f>(
    here: &[&'a str],
    names: &'a [String],
    files: &BTreeMap<Vec<&'a str>, &'f str>,
) -> Option<&'f str> {
    let mut names = names.iter().map(String::as_str).peekable();
    let mut module = here.to_vec();
    match *names.peek()? {
        "crate" => module.truncate(1),
        "super" | "self" => {}
        // A part of this file; all else is of another crate, or was imported before.
        name => drop(files.get(&[here, &[name]].concat())?),
    }
    for name in names {
        match name {
            "crate" | "self" => {}
            "super" => drop(module.pop()),
            name => {
                module.push(name);
                if !files.contains_key(&module) {
                    module.pop();
                    break;
                }
            }
        }
    }
    (!here.starts_with(&module)).then(|| files.get(&module).copied())?
}

/// The files that import themselves by way of others.
pub(crate) fn in_circles(imports: &Imports) -> Vec<&str> {
    let returns = |start: &str| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&str> = vec![start];
        while let Some(file) = next.pop() {
            let targets = imports.get(file).into_iter().flatten().map(String::as_str);
            next.extend(targets.filter(|target| seen.insert(*target)));
        }
        seen.contains(start)
    };
    imports.keys().map(String::as_str).filter(|file| returns(file)).collect()
}

/// Files of a verb with another verb that they import.
pub(crate) fn between_verbs(imports: &Imports) -> Vec<(&str, &str)> {
    let pairs = imports.iter().flat_map(|(file, targets)| {
        let own = verb(file);
        let others: BTreeSet<&str> = targets.iter().filter_map(|target| verb(target)).collect();
        others
            .into_iter()
            .filter(move |other| own.is_some_and(|own| own != *other))
            .map(move |other| (&**file, other))
    });
    pairs.collect()
}

/// The verb to which a file belongs.
fn verb(path: &str) -> Option<&str> {
    path.strip_prefix(VERBS)?.split(['/', '.']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports_of(files: &[(&str, &str)]) -> Imports {
        let codes = files.iter().map(|(path, text)| ((*path).to_owned(), text.parse().unwrap()));
        imports(&codes.collect())
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        let imports = imports_of(&[
            ("crates/a/src/lib.rs", "mod b; mod c; mod d;"),
            ("crates/a/src/b.rs", "use crate::{c::C, x::Y};"),
            ("crates/a/src/c.rs", "fn c() { super::d::e::run() }"),
            ("crates/a/src/d.rs", "mod e; pub use e::run;"),
            ("crates/a/src/d/e.rs", "use crate::b::B as C;"),
            ("crates/a/src/f.rs", "use crate::b::B;"),
        ]);
        assert_eq!(in_circles(&imports), ["crates/a/src/b.rs", "crates/a/src/c.rs", "crates/a/src/d/e.rs"]);
    }

    #[test]
    fn a_module_and_its_parts_are_one_thing_and_tests_are_left_out() {
        let imports = imports_of(&[
            ("crates/a/src/lib.rs", "mod b; use b::B;"),
            ("crates/a/src/b.rs", "mod c; fn b() { c::run() }\n#[cfg(test)]\nmod tests { use crate::d::D; }"),
            ("crates/a/src/b/c.rs", "use super::B; use crate::b::C;"),
            ("crates/a/src/d.rs", "use crate::b::B;"),
            ("crates/e/src/d.rs", "use crate::b::B;"),
        ]);
        assert_eq!(in_circles(&imports), [""; 0]);
    }

    #[test]
    fn imports_between_verbs_are_found() {
        let imports = imports_of(&[
            ("crates/cli/src/main.rs", "use cmd::run;"),
            ("crates/cli/src/cmd.rs", "pub mod run; pub mod plan; pub mod trace;"),
            ("crates/cli/src/cmd/run.rs", "use super::plan::show; use crate::cmd::run::x; use crate::args;"),
            ("crates/cli/src/cmd/plan.rs", "use crate::cmd::plan::show;"),
            ("crates/cli/src/cmd/plan/show.rs", "use crate::cmd::trace::{a, b};"),
            ("crates/cli/src/cmd/trace.rs", ""),
        ]);
        let expected = [("crates/cli/src/cmd/plan/show.rs", "trace"), ("crates/cli/src/cmd/run.rs", "plan")];
        assert_eq!(between_verbs(&imports), expected);
    }
}
