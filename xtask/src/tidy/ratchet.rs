//! Ratchets: lengths of files and functions that may only shrink.

use std::collections::BTreeMap;

use crate::code::{functions, lines_of_test_modules, without_comments_and_literals};
use crate::generate;
use crate::problem::Problem;
use crate::tree::Texts;

/// The file of those that are longer than the limits, with their present length and the reason.
pub(crate) const FILE: &str = "xtask/ratchet.txt";

const FILE_LINES: usize = 500;
const TEST_FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

/// What is measured: a file by its path, a function by `path:name`.
struct Measured {
    path: String,
    line: usize,
    what: String,
    length: usize,
    limit: usize,
}

/// A line of the file of exceptions.
struct Allowance {
    line: usize,
    length: usize,
}

/// Measures all Rust files and compares them with the limits and with `allowances`, the text of [`FILE`].
pub(crate) fn check(texts: &Texts, allowances: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let allowances = parse(allowances, &mut problems);
    let mut measured = BTreeMap::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs") && *path != generate::OUTPUT) {
        measure(path, text, &mut measured);
    }
    for (target, found) in &measured {
        let Measured { path, line, what, length, limit } = found;
        let allowed = allowances.get(target).map_or(*limit, |allowance| allowance.length.max(*limit));
        if *length > allowed {
            let message = format!(
                "{what} has {length} lines, {allowed} are allowed; split it by idea, or list it in {FILE} as \
                 `{target} {length} REASON`"
            );
            problems.push(Problem::at_line(path, *line, message));
        }
    }
    for (target, allowance) in &allowances {
        problems.extend(stale(target, allowance, measured.get(target)));
    }
    problems
}

/// An exception that is not needed, or not needed to that extent.
fn stale(target: &str, allowance: &Allowance, measured: Option<&Measured>) -> Option<Problem> {
    let message = match measured {
        None => format!("`{target}` does not exist; remove the line"),
        Some(found) if found.length <= found.limit => {
            format!(
                "`{target}` has {} lines, within the limit of {}; remove the line",
                found.length, found.limit
            )
        }
        Some(found) if found.length < allowance.length => {
            format!("`{target}` has shrunk from {} to {1} lines; write {1}", allowance.length, found.length)
        }
        Some(_) => return None,
    };
    Some(Problem::at_line(FILE, allowance.line, message))
}

/// Reads lines `path[:function] length reason`; `#` starts a comment line.
fn parse(text: &str, problems: &mut Vec<Problem>) -> BTreeMap<String, Allowance> {
    let mut allowances = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), index + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut parts = line.split_whitespace();
        let target = parts.next().unwrap_or_default().to_owned();
        let length = parts.next().and_then(|length| length.parse().ok());
        match (length, parts.next()) {
            (Some(length), Some(_)) if !allowances.contains_key(&target) => {
                allowances.insert(target, Allowance { line: number, length });
            }
            (Some(_), Some(_)) => {
                problems.push(Problem::at_line(
                    FILE,
                    number,
                    format!("`{target}` is listed twice; keep one line"),
                ));
            }
            _ => {
                let message = "cannot read this line; write `path[:function] length reason`";
                problems.push(Problem::at_line(FILE, number, message));
            }
        }
    }
    allowances
}

/// Adds the file and its functions; of functions with the same name, the longest.
fn measure(path: &str, text: &str, measured: &mut BTreeMap<String, Measured>) {
    let (length, limit) = match is_test_file(path) {
        true => (text.lines().count(), TEST_FILE_LINES),
        false => (lines_without_tests(text), FILE_LINES),
    };
    let file = Measured { path: path.into(), line: limit + 1, what: "the file".into(), length, limit };
    measured.insert(path.to_owned(), file);
    for function in functions(&without_comments_and_literals(text)) {
        let target = format!("{path}:{}", function.name);
        if measured.get(&target).is_some_and(|other| other.length >= function.length) {
            continue;
        }
        let what = format!("the function `{}`", function.name);
        let (line, length) = (function.line, function.length);
        measured.insert(target, Measured { path: path.into(), line, what, length, limit: FUNCTION_LINES });
    }
}

/// Whether the whole file is a test.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|folder| folder == "tests" || folder == "benches")
}

/// The lines of a source file but those of its test modules.
pub(crate) fn lines_without_tests(text: &str) -> usize {
    let tests = lines_of_test_modules(&without_comments_and_literals(text));
    text.lines().count().saturating_sub(tests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    fn found(path: &str, text: &str, allowances: &str) -> Vec<String> {
        shown(&check(&Texts::from([(path.to_owned(), text.to_owned())]), allowances))
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_file_fails_and_its_tests_do_not_count() {
        let text = "// line\n".repeat(500);
        assert!(found("a/src/b.rs", &text, "").is_empty());
        let with_tests = format!("{text}#[cfg(test)]\nmod tests {{\n// \"\n}}\n");
        assert!(found("a/src/b.rs", &with_tests, "").is_empty());
        let problems = found("a/src/b.rs", &format!("{text}// more\n"), "");
        let expected = "a/src/b.rs:501: the file has 501 lines, 500 are allowed; split it by idea, or list it in \
                        xtask/ratchet.txt as `a/src/b.rs 501 REASON`";
        assert_eq!(problems, [expected]);
    }

    #[test]
    fn a_test_file_may_be_longer() {
        assert!(found("a/tests/b.rs", &"// line\n".repeat(800), "").is_empty());
        assert_eq!(found("a/tests/b.rs", &"// line\n".repeat(801), "").len(), 1);
        assert!(
            is_test_file("crates/core/src/job/tests.rs") && !is_test_file("crates/core/src/test_support.rs")
        );
    }

    #[test]
    fn a_long_function_fails() {
        assert!(found("a/src/b.rs", &function_of(70), "").is_empty());
        let problems = found("a/src/b.rs", &format!("fn short() {{}}\n{}", function_of(71)), "");
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].starts_with("a/src/b.rs:2: the function `long` has 71 lines, 70 are"),
            "{problems:?}"
        );
    }

    #[test]
    fn an_exception_holds_at_its_length_only() {
        let listed = "# exceptions\na/src/b.rs:long 72 a table of cases\n";
        assert!(found("a/src/b.rs", &function_of(72), listed).is_empty());
        assert_eq!(found("a/src/b.rs", &function_of(73), listed).len(), 1);
        let shrunk = found("a/src/b.rs", &function_of(71), listed);
        assert_eq!(
            shrunk,
            ["xtask/ratchet.txt:2: `a/src/b.rs:long` has shrunk from 72 to 71 lines; write 71"]
        );
        let needless = found("a/src/b.rs", &function_of(70), listed);
        let expected =
            "xtask/ratchet.txt:2: `a/src/b.rs:long` has 70 lines, within the limit of 70; remove the line";
        assert_eq!(needless, [expected]);
        let gone = found("a/src/b.rs", "", listed);
        assert_eq!(gone, ["xtask/ratchet.txt:2: `a/src/b.rs:long` does not exist; remove the line"]);
    }

    #[test]
    fn a_line_without_a_reason_or_listed_twice_fails() {
        for line in ["a/src/b.rs 600", "a/src/b.rs many reasons", "a/src/b.rs"] {
            let problems = found("a/src/b.rs", "", line);
            assert!(problems[0].contains("write `path[:function] length reason`"), "{problems:?}");
        }
        let twice = found("a/src/b.rs", &function_of(72), "a/src/b.rs:long 72 why\na/src/b.rs:long 72 why\n");
        assert_eq!(twice, ["xtask/ratchet.txt:2: `a/src/b.rs:long` is listed twice; keep one line"]);
    }
}
