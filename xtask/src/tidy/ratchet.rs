//! Ratchets: numbers that may only shrink. What is above its limit today is listed in a file with its number.

use std::collections::BTreeMap;

use crate::code::Code;
use crate::generate;
use crate::problem::Problem;
use crate::tree::Texts;

/// The file of all that is above its limit, with its present number and the reason.
pub(crate) const FILE: &str = "xtask/ratchet.txt";

const FILE_LINES: usize = 500;
const TEST_FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 70;

/// What is measured, by the name under which it may be listed: a file by its path, a function by `path:name`, a count
/// by `folder:what`.
pub(crate) type Measures = BTreeMap<String, Measure>;

/// One number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measure {
    /// Where a problem is shown.
    pub(crate) path: String,
    pub(crate) line: usize,
    /// What is said of the number, with its unit.
    pub(crate) what: String,
    pub(crate) number: usize,
    pub(crate) limit: usize,
    /// What to do about it.
    pub(crate) advice: String,
}

/// A line of the file.
struct Allowance<'t> {
    target: &'t str,
    number: usize,
    reason: &'t str,
}

/// Compares all measures with their limits and with `listed`, the text of [`FILE`].
pub(crate) fn check(measures: &Measures, listed: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut allowed = BTreeMap::new();
    for (index, line) in lines(listed) {
        match read(line) {
            Some(Allowance { target, number, .. }) => {
                if allowed.insert(target, number).is_some() {
                    let message = format!("`{target}` is listed twice; keep one line");
                    problems.push(Problem::at_line(FILE, index + 1, message));
                }
            }
            None => {
                let message = "cannot read this line; write `path[:function] number reason`";
                problems.push(Problem::at_line(FILE, index + 1, message));
            }
        }
    }
    for (target, Measure { path, line, what, number, limit, advice }) in measures {
        let allowed = allowed.get(&**target).map_or(*limit, |allowed| *limit.max(allowed));
        if *number > allowed {
            let message = format!(
                "{what}: {number}, and {allowed} are allowed; {advice}, or list it in {FILE} as \
                 `{target} {number} REASON`"
            );
            problems.push(match line {
                0 => Problem::of_file(path, message),
                line => Problem::at_line(path, *line, message),
            });
        }
    }
    problems
}

/// The text of [`FILE`] with every number that has shrunk lowered, and without what is within its limit or gone.
pub(crate) fn lowered(measures: &Measures, listed: &str) -> String {
    let lower = |line: &str| {
        let Some(Allowance { target, number, reason }) = read(line) else { return Some(line.to_owned()) };
        let measure = measures.get(target).filter(|measure| measure.number > measure.limit)?;
        Some(format!("{target} {} {reason}", number.min(measure.number)))
    };
    listed.lines().filter_map(lower).map(|line| line + "\n").collect()
}

/// The lines that list something.
fn lines(listed: &str) -> impl Iterator<Item = (usize, &str)> {
    listed.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Reads a line `target number reason`; `None` for any other, comments included.
fn read(line: &str) -> Option<Allowance<'_>> {
    let (target, rest) = line.split_once(' ')?;
    let (number, reason) = rest.split_once(' ')?;
    (!target.starts_with('#')).then_some(())?;
    Some(Allowance { target, number: number.parse().ok()?, reason })
}

/// Adds the lengths of all Rust files and of their functions; of functions with the same name, the longest.
pub(crate) fn measure(texts: &Texts, codes: &BTreeMap<String, Code>, measures: &mut Measures) {
    for (path, code) in codes.iter().filter(|(path, _)| *path != generate::OUTPUT) {
        let lines = texts[path].lines().count();
        let (number, limit) = match is_test_file(path) {
            true => (lines, TEST_FILE_LINES),
            false => (lines - code.lines_of_test_modules(), FILE_LINES),
        };
        let advice = "split it by idea".to_owned();
        let what = "lines of the file".to_owned();
        let file =
            Measure { path: path.clone(), line: limit + 1, what, number, limit, advice: advice.clone() };
        measures.insert(path.clone(), file);
        for function in code.functions() {
            let target = format!("{path}:{}", function.name);
            if measures.get(&target).is_some_and(|other| other.number >= function.length) {
                continue;
            }
            let what = format!("lines of the function `{}`", function.name);
            let (line, number, advice) = (function.line, function.length, advice.clone());
            let measure = Measure { path: path.clone(), line, what, number, limit: FUNCTION_LINES, advice };
            measures.insert(target, measure);
        }
    }
}

/// Whether the whole file is a test.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|folder| folder == "tests" || folder == "benches")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    fn measured(path: &str, text: &str) -> Measures {
        let mut measures = Measures::new();
        let texts = Texts::from([(path.to_owned(), text.to_owned())]);
        measure(&texts, &BTreeMap::from([(path.to_owned(), text.parse().unwrap())]), &mut measures);
        measures
    }

    fn found(path: &str, text: &str, listed: &str) -> Vec<String> {
        shown(&check(&measured(path, text), listed))
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
        let expected = "a/src/b.rs:501: lines of the file: 501, and 500 are allowed; split it by idea, or list it in \
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
            problems[0].starts_with("a/src/b.rs:2: lines of the function `long`: 71, and 70 are"),
            "{problems:?}"
        );
    }

    #[test]
    fn what_is_listed_holds_at_its_number_and_is_lowered_when_it_shrinks() {
        let listed = "# exceptions\na/src/b.rs:long 72 a table of cases\n";
        let lower = |text: &str| lowered(&measured("a/src/b.rs", text), listed);
        assert!(found("a/src/b.rs", &function_of(72), listed).is_empty());
        assert_eq!(lower(&function_of(72)), listed);
        assert_eq!(found("a/src/b.rs", &function_of(73), listed).len(), 1);
        assert_eq!(lower(&function_of(73)), listed);
        assert!(found("a/src/b.rs", &function_of(71), listed).is_empty());
        assert_eq!(lower(&function_of(71)), "# exceptions\na/src/b.rs:long 71 a table of cases\n");
        assert_eq!((lower(&function_of(70)), lower("")), ("# exceptions\n".into(), "# exceptions\n".into()));
    }

    #[test]
    fn a_line_without_a_reason_or_listed_twice_fails() {
        for line in ["a/src/b.rs 600", "a/src/b.rs many reasons", "a/src/b.rs"] {
            let problems = found("a/src/b.rs", "", line);
            assert!(problems[0].contains("write `path[:function] number reason`"), "{problems:?}");
        }
        let twice = found("a/src/b.rs", &function_of(72), "a/src/b.rs:long 72 why\na/src/b.rs:long 72 why\n");
        assert_eq!(twice, ["xtask/ratchet.txt:2: `a/src/b.rs:long` is listed twice; keep one line"]);
    }
}
