//! The table of training modes and features: its page is current, no cell is empty, and each test that it names exists.
//!
//! The table is Rust (`crates/core/src/job/support/table.rs`), and read here from its tokens: this program depends on
//! no crate of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result};
use proc_macro2::{Group, TokenStream, TokenTree};

use crate::code::Code;
use crate::problem::Problem;
use crate::tree::{self, Texts};

/// Where the table stands.
const INPUT: &str = "crates/core/src/job/support/table.rs";

/// Where constants stand that it names.
const REASONS: &str = "crates/core/src/job/support/reasons.rs";

/// The page that is made of it.
const OUTPUT: &str = "docs/modes.md";

/// What stands above the table on the page.
const INTRODUCTION: &str = "\
# What each training mode can do

<!-- Made by `cargo xtask modes` from crates/core/src/job/support/table.rs; edit that file. -->

A mode is how gradients become updates. `exact` is the default of the [job file](job-file.md), `goodput` is the table
`[mode.goodput]`, `servers` is `reduce = \"servers\"`. A phase of `\"asp\"` or `\"ssp:K\"` is `asynchronous`, one of
`\"gossip\"` is `gossip`, one of `\"local:H\"` is `local`. `mixed` is `mode = \"mixed\"`, which stands in the place of
`exact` and beside the others. A job with several phases can do what all of its modes can do.

- *yes*: a test shows it.
- *no*: the job is refused, with the reason below.
- *no effect*: it is accepted and changes nothing.
- *later*: do not rely on it yet.

";

/// The table as its file says it.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    modes: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    title: String,
    cells: Vec<Cell>,
}

/// The variant of a cell, and its texts by field.
#[derive(Debug, PartialEq, Eq)]
struct Cell {
    kind: String,
    texts: BTreeMap<String, String>,
}

/// Writes the page.
pub(crate) fn run() -> Result<bool> {
    let root = tree::root()?;
    let read_file =
        |path| std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let table = read(&(read_file(INPUT)? + &read_file(REASONS)?))
        .with_context(|| format!("cannot find the table in {INPUT}"))?;
    std::fs::write(root.join(OUTPUT), page(&table)).with_context(|| format!("cannot write {OUTPUT}"))?;
    println!("{INPUT} -> {OUTPUT}");
    Ok(true)
}

/// A test, or a base of tests.
fn is_python_test(path: &str) -> bool {
    path.starts_with("python/tests/") && path.ends_with(".py")
}

/// The tests of a file in Python.
fn methods(text: &str) -> impl Iterator<Item = String> {
    let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("def "));
    names.filter_map(|rest| rest.split_once('(')).map(|(name, _)| name.to_string())
}

/// What is wrong with the table, or with its page.
pub(crate) fn check(texts: &Texts, codes: &BTreeMap<String, Code>) -> Vec<Problem> {
    let Some(text) = texts.get(INPUT) else { return Vec::new() };
    let reasons = texts.get(REASONS).map_or("", String::as_str);
    let Some(table) = read(&format!("{text}{reasons}")) else {
        return vec![Problem::of_file(INPUT, "the table of modes cannot be found; it is `const TABLE`")];
    };
    let in_crates = codes.iter().filter(|(path, _)| path.starts_with("crates/"));
    let mut functions: BTreeSet<String> =
        in_crates.flat_map(|(_, code)| code.functions()).map(|function| function.name).collect();
    functions
        .extend(texts.iter().filter(|(path, _)| is_python_test(path)).flat_map(|(_, text)| methods(text)));
    let mut problems = Vec::new();
    for row in &table.rows {
        if row.cells.len() != table.modes.len() {
            let message =
                format!("`{}` has {} cells for {} modes", row.title, row.cells.len(), table.modes.len());
            problems.push(Problem::of_file(INPUT, message));
        }
        for (mode, cell) in table.modes.iter().zip(&row.cells) {
            let place = format!("`{}`, {mode}", row.title);
            if cell.texts.is_empty() || cell.texts.values().any(|text| text.trim().is_empty()) {
                let message =
                    format!("{place}: the cell is empty; name a test, a reason, or what is missing");
                problems.push(Problem::of_file(INPUT, message));
            }
            if let Some(test) = cell.texts.get("test").filter(|test| !functions.contains(*test)) {
                let message = format!("{place}: there is no test `{test}`; name one that shows it");
                problems.push(Problem::of_file(INPUT, message));
            }
        }
    }
    if texts.get(OUTPUT) != Some(&page(&table)) {
        let message = format!("it is not what {INPUT} says; run `cargo xtask modes` and commit it");
        problems.push(Problem::of_file(OUTPUT, message));
    }
    problems
}

/// The page.
fn page(table: &Table) -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut line = |cells: &[&str]| page += &format!("| {} |\n", cells.join(" | "));
    let modes: Vec<&str> = table.modes.iter().map(String::as_str).collect();
    line(&[&[""], &modes[..]].concat());
    line(&vec!["---"; modes.len() + 1]);
    for row in &table.rows {
        let words: Vec<&str> = row.cells.iter().map(Cell::word).collect();
        line(&[&[&*row.title], &words[..]].concat());
    }
    let _ = writeln!(page, "\n## Why\n\n| feature | modes | |\n| --- | --- | --- |");
    for row in &table.rows {
        for (place, cell) in row.cells.iter().enumerate() {
            if row.cells[..place].contains(cell) {
                continue;
            }
            let same = modes.iter().zip(&row.cells).filter(|(_, other)| *other == cell);
            let modes: Vec<&str> = same.map(|(mode, _)| *mode).collect();
            let _ = writeln!(page, "| {} | {} | {} |", row.title, modes.join(", "), cell.sentence());
        }
    }
    page
}

impl Cell {
    /// The cell in the small table.
    fn word(&self) -> &str {
        match self.kind.as_str() {
            "Supported" => "yes",
            "Refused" => "no",
            "NoEffect" => "no effect",
            _ => "later",
        }
    }

    /// What the cell says.
    fn sentence(&self) -> String {
        let text = |field: &str| self.texts.get(field).map_or("", String::as_str);
        match self.kind.as_str() {
            "Supported" => format!("shown by `{}`", text("test")),
            "Refused" => format!("refused at `{}`: {}; {}", text("key"), text("reason"), text("hint")),
            "NoEffect" => format!("no effect: {}", text("reason")),
            _ => format!("later: {}", text("what")),
        }
    }
}

/// Reads the table; `None` where the file holds none.
fn read(text: &str) -> Option<Table> {
    let tokens: Vec<TokenTree> = text.parse::<TokenStream>().ok()?.into_iter().collect();
    let constants = constants(&tokens);
    let modes = groups(&value(&tokens, "MODES")?).map(|mode| literals(&mode).pop()).collect::<Option<_>>()?;
    let table = value(&tokens, "TABLE")?;
    let rows = groups(&table).map(|row| {
        let title = literals(&row).into_iter().next()?;
        let cells: Vec<TokenTree> = groups(&row).last()?.stream().into_iter().collect();
        let cells = cells.windows(2).filter_map(|pair| match pair {
            [TokenTree::Ident(kind), TokenTree::Group(fields)] => {
                Some(Cell { kind: kind.to_string(), texts: fields_of(fields, &constants) })
            }
            _ => None,
        });
        Some(Row { title, cells: cells.collect() })
    });
    Some(Table { modes, rows: rows.collect::<Option<_>>()? })
}

/// The brackets that the constant `name` is.
fn value(tokens: &[TokenTree], name: &str) -> Option<Group> {
    let is_named = |pair: &[TokenTree]| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(constant)] => word == "const" && constant == name,
        _ => false,
    };
    let place = tokens.windows(2).position(is_named)?;
    let after = tokens[place..].iter().skip_while(|token| token.to_string() != "=");
    after.skip(1).find_map(|token| match token {
        TokenTree::Group(group) => Some(group.clone()),
        _ => None,
    })
}

/// Constants that are one text, by name.
fn constants(tokens: &[TokenTree]) -> BTreeMap<String, String> {
    let names = tokens.windows(2).enumerate().filter_map(|(place, pair)| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "const" => {
            Some((place, name.to_string()))
        }
        _ => None,
    });
    names
        .filter_map(|(place, name)| {
            let end = tokens[place..].iter().position(|token| token.to_string() == ";")?;
            match &tokens[place + end - 1] {
                TokenTree::Literal(text) => Some((name, plain(&text.to_string()))),
                _ => None,
            }
        })
        .collect()
}

/// The groups directly within a group.
fn groups(group: &Group) -> impl Iterator<Item = Group> {
    group.stream().into_iter().filter_map(|token| match token {
        TokenTree::Group(group) => Some(group),
        _ => None,
    })
}

/// The texts directly within a group.
fn literals(group: &Group) -> Vec<String> {
    let texts = group.stream().into_iter().filter_map(|token| match token {
        TokenTree::Literal(text) => Some(plain(&text.to_string())),
        _ => None,
    });
    texts.collect()
}

/// The fields of a cell: a text, or the name of a constant that is one.
fn fields_of(group: &Group, constants: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    let fields = tokens.windows(3).filter_map(|field| match field {
        [TokenTree::Ident(name), TokenTree::Punct(colon), TokenTree::Literal(text)]
            if colon.as_char() == ':' =>
        {
            Some((name.to_string(), plain(&text.to_string())))
        }
        [TokenTree::Ident(name), TokenTree::Punct(colon), TokenTree::Ident(constant)]
            if colon.as_char() == ':' =>
        {
            Some((name.to_string(), constants.get(&constant.to_string()).cloned().unwrap_or_default()))
        }
        _ => None,
    });
    fields.collect()
}

/// What a plain literal means: its quotes, its escapes and its broken lines are taken away.
fn plain(literal: &str) -> String {
    let mut text = String::new();
    let inner = literal.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(literal);
    let mut characters = inner.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some('\n')) => while characters.next_if(|next| next.is_whitespace()).is_some() {},
            ('\\', Some(_)) => text.extend(characters.next()),
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    const SOURCE: &str = r#"
        const NO_TEST: &str = "no test \
                               shows it";
        const MODES: [(TrainingMode, &str); 2] = [(TrainingMode::A, "a"), (TrainingMode::B, "b")];
        const TABLE: [Row; 2] = [
            Row {
                feature: Feature::Resize,
                title: "resizing",
                cells: [Supported { test: "it_is_resized" }, Later { what: NO_TEST }],
            },
            Row {
                feature: Feature::Verify,
                title: "verifying",
                cells: [
                    Refused { key: "k", reason: "it is so", hint: "say \"no\"" },
                    Refused { key: "k", reason: "it is so", hint: "say \"no\"" },
                ],
            },
        ];
    "#;

    fn problems(source: &str, page: &str) -> Vec<String> {
        let files = [(INPUT, source), (OUTPUT, page), ("crates/core/tests/it/a.rs", "fn it_is_resized() {}")];
        let texts: Texts = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        let codes = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
        let codes = codes.map(|(path, text)| (path.clone(), text.parse().unwrap())).collect();
        shown(&check(&texts, &codes))
    }

    #[test]
    fn a_page_that_says_what_the_table_says_passes() {
        let page = page(&read(SOURCE).unwrap());
        assert_eq!(problems(SOURCE, &page), [] as [&str; 0]);
        assert!(page.contains("| resizing | yes | later |\n| verifying | no | no |\n"), "{page}");
        assert!(page.contains("| resizing | b | later: no test shows it |\n"), "{page}");
        assert!(page.contains("| verifying | a, b | refused at `k`: it is so; say \"no\" |\n"), "{page}");
    }

    #[test]
    fn an_empty_cell_a_missing_test_and_another_page_are_named() {
        let blank = SOURCE.replace("what: NO_TEST", "what: \"\"");
        assert!(problems(&blank, "")[0].contains("`resizing`, b: the cell is empty"));
        let short = SOURCE.replace(", Later { what: NO_TEST }", "");
        assert!(problems(&short, "")[0].contains("`resizing` has 1 cells for 2 modes"));
        let missing = SOURCE.replace("\"it_is_resized\"", "\"it_shrinks\"");
        assert!(problems(&missing, "")[0].contains("there is no test `it_shrinks`"));
        assert_eq!(
            problems(SOURCE, "other"),
            [format!("{OUTPUT}: it is not what {INPUT} says; run `cargo xtask modes` and commit it")]
        );
    }
}
