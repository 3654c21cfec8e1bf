//! How large the crates are, as a table: the point is to notice growth.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::ratchet;
use crate::generate;
use crate::tree::Texts;

#[derive(Default, Clone, Copy)]
struct Size {
    files: usize,
    lines: usize,
    tests: usize,
}

impl Size {
    fn add(&mut self, other: Size) {
        self.files += other.files;
        self.lines += other.lines;
        self.tests += other.tests;
    }
}

/// Lines of Rust per crate, with tests apart and generated code left out.
pub(crate) fn table(texts: &Texts) -> String {
    let mut sizes = BTreeMap::<&str, Size>::new();
    for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs") && *path != generate::OUTPUT) {
        let folder = path.strip_prefix("crates/").unwrap_or(path);
        let name = folder.split('/').next().unwrap_or(folder);
        let all = text.lines().count();
        let lines = if ratchet::is_test_file(path) { 0 } else { ratchet::lines_without_tests(text) };
        sizes.entry(name).or_default().add(Size { files: 1, lines, tests: all - lines });
    }
    let mut total = Size::default();
    let mut table = row("crate", "files", "lines", "of tests");
    for (name, size) in &sizes {
        total.add(*size);
        table += &row(name, size.files, size.lines, size.tests);
    }
    table + &row("total", total.files, total.lines, total.tests)
}

fn row(name: &str, files: impl ToString, lines: impl ToString, tests: impl ToString) -> String {
    let mut row = String::new();
    let [files, lines, tests] = [files.to_string(), lines.to_string(), tests.to_string()];
    // Writing to a string cannot fail.
    let _ = writeln!(row, "{name:<10} {files:>6} {lines:>7} {tests:>9}");
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_apart() {
        let mut texts = Texts::new();
        let source = "//! A.\nfn a() {}\n#[cfg(test)]\nmod tests {\n}\n";
        texts.insert("crates/core/src/lib.rs".into(), source.into());
        texts.insert("crates/core/tests/laws.rs".into(), "//! B.\n".into());
        texts.insert("README.md".into(), "# C\n".into());
        let table = table(&texts);
        let numbers: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(numbers[1], ["core", "2", "2", "4"]);
        assert_eq!(numbers[2], ["total", "2", "2", "4"]);
    }
}
