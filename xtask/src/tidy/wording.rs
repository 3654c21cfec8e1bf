//! What must not stand in the sources, each with what to write instead.

use crate::code::Code;
use crate::problem::{Problem, line_of};

/// Crates whose results may depend on nothing but their arguments.
const PURE: [&str; 7] = ["core", "des", "federation", "model", "numerics", "sched", "sim"];

/// Banned in the code of the pure crates.
const BANNED_IN_PURE: [(&str, &str); 10] = [
    ("Instant", "time is an argument; clocks are read by `runtime` and `cli`"),
    ("SystemTime", "time is an argument; clocks are read by `runtime` and `cli`"),
    ("thread_rng", "draw from a stream keyed by a seed that is an argument"),
    ("from_entropy", "draw from a stream keyed by a seed that is an argument"),
    ("HashMap", "its order differs from run to run; use `BTreeMap`"),
    ("HashSet", "its order differs from run to run; use `BTreeSet`"),
    ("println!", "return the text; the printer of `cli` owns the streams"),
    ("print!", "return the text; the printer of `cli` owns the streams"),
    ("eprintln!", "return the text; the printer of `cli` owns the streams"),
    ("eprint!", "return the text; the printer of `cli` owns the streams"),
];

/// Left over from work, in comments too.
const LEFT_OVER_ANYWHERE: [(&str, &str); 2] = [
    ("FIXME", "mend it, or describe it in an issue and say here what holds today"),
    ("XXX", "mend it, or describe it in an issue and say here what holds today"),
];

/// Left over from work, in code.
const LEFT_OVER: [(&str, &str); 2] =
    [("todo!", "write the code, or return an error that says what is not built yet"), ("dbg!", "remove it")];

/// Folders of some machine, which is not the reader's; `/` is added at both ends.
const MACHINE_FOLDERS: [&str; 4] = ["work", "root", "home", "Users"];

/// Checks one text file; `code` is what it holds if it is Rust.
pub(crate) fn check(path: &str, text: &str, code: Option<&Code>) -> Vec<Problem> {
    let mut problems = machine_paths(path, text);
    let crate_name = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    let (Some((name, rest)), Some(code)) = (crate_name, code) else { return problems };
    let is_banned = |line, (word, advice): &(&str, &str)| {
        Problem::at_line(path, line, format!("`{word}` is banned here: {advice}"))
    };
    for banned in LEFT_OVER_ANYWHERE {
        problems.extend(words(text, banned.0).map(|offset| is_banned(line_of(text, offset), &banned)));
    }
    let pure = PURE.contains(&name) && rest.starts_with("src/");
    let banned = || LEFT_OVER.iter().chain(BANNED_IN_PURE.iter().filter(|_| pure));
    for (line, found) in code.words() {
        problems.extend(banned().filter(|(word, _)| *word == found).map(|banned| is_banned(line, banned)));
    }
    problems
}

/// The offsets at which `word` stands in `text` with no letter, digit or `_` touching it.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let touches =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word).map(|(offset, _)| offset).filter(move |offset| {
        let after = text[offset + word.len()..].chars().next();
        !touches(text[..*offset].chars().next_back()) && !touches(after)
    })
}

/// Absolute paths of some machine, and paths to a folder beside the repository.
fn machine_paths(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    // Put together here, so that this file does not name what it forbids.
    let outside = ["..", "shared"].join("/");
    for offset in words(text, &outside) {
        let message = format!("`{outside}` is not part of the repository; copy what is needed into it");
        problems.push(Problem::at_line(path, line_of(text, offset), message));
    }
    for folder in MACHINE_FOLDERS.map(|folder| format!("/{folder}/")) {
        for (offset, _) in text.match_indices(&folder) {
            // `$HOME/x/home/y` and `https://host/home/y` are not absolute paths.
            let inside = text[..offset].chars().next_back();
            if inside.is_some_and(|letter| letter.is_alphanumeric() || "._-~}>*/".contains(letter)) {
                continue;
            }
            let message =
                format!("`{folder}` is a path of one machine; write a path relative to the repository");
            problems.push(Problem::at_line(path, line_of(text, offset), message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    fn check(path: &str, text: &str) -> Vec<Problem> {
        let code = path.ends_with(".rs").then(|| text.parse().unwrap());
        super::check(path, text, code.as_ref())
    }

    #[test]
    fn pure_crates_read_no_clock() {
        let text = "//! About Instant.\nuse std::time::{Duration, Instant};\n";
        let problems = shown(&check("crates/sim/src/world.rs", text));
        let expected = "crates/sim/src/world.rs:2: `Instant` is banned here: time is an argument; clocks are read by \
                        `runtime` and `cli`";
        assert_eq!(problems, [expected]);
        assert!(check("crates/runtime/src/peer.rs", text).is_empty());
        assert!(check("crates/sim/tests/law.rs", text).is_empty());
    }

    #[test]
    fn every_ban_fires_in_a_pure_crate() {
        for (word, _) in BANNED_IN_PURE {
            assert_eq!(check("crates/core/src/job.rs", &format!("let x = {word}(1);")).len(), 1, "{word}");
            assert!(
                check("crates/core/src/job.rs", &format!("let x = \"{word}\"; // {word}")).is_empty(),
                "{word}"
            );
        }
    }

    #[test]
    fn left_overs_fire_anywhere_in_crates() {
        for word in ["FIXME", "XXX"] {
            assert_eq!(check("crates/cli/tests/run.rs", &format!("// {word}: later\n")).len(), 1, "{word}");
            assert!(check("crates/cli/tests/run.rs", &format!("// {word}Y\n")).is_empty(), "{word}");
        }
        for word in ["todo!", "dbg!"] {
            assert_eq!(check("crates/cli/src/run.rs", &format!("fn a() {{ {word}() }}")).len(), 1, "{word}");
            assert!(check("crates/cli/src/run.rs", &format!("// no {word} here")).is_empty(), "{word}");
        }
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_text() {
        for folder in MACHINE_FOLDERS {
            let text = format!("see\n`/{folder}/someone/data`");
            let problems = shown(&check("docs/guide.md", &text));
            assert_eq!(problems.len(), 1, "{folder}");
            assert!(problems[0].starts_with("docs/guide.md:2: "), "{problems:?}");
            assert!(
                check("docs/guide.md", &format!("https://host/{folder}/x and $HOME/{folder}/x")).is_empty()
            );
        }
        assert_eq!(check("Cargo.toml", &["path = \"..", "shared\""].join("/")).len(), 1);
        assert!(check("Cargo.toml", &["path = \"..", "shared_memory\""].join("/")).is_empty());
    }
}
