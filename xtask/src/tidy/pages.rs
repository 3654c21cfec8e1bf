//! Each page has one title; each example is run by a test.

use pulldown_cmark::{Event, HeadingLevel, Parser, Tag};

use crate::problem::{Problem, line_of};
use crate::tree::Texts;

/// A Markdown page has exactly one heading of the first level.
pub(crate) fn check_title(path: &str, text: &str) -> Vec<Problem> {
    if !path.ends_with(".md") {
        return Vec::new();
    }
    let titles: Vec<usize> = Parser::new(text)
        .into_offset_iter()
        .filter(|(event, _)| matches!(event, Event::Start(Tag::Heading { level: HeadingLevel::H1, .. })))
        .map(|(_, range)| line_of(text, range.start))
        .collect();
    match titles.as_slice() {
        [] => vec![Problem::at_line(path, 1, "the page has no title; open it with `# Title`")],
        [_] => Vec::new(),
        [_, others @ ..] => {
            let message = "the page has a second title; use `##` for its sections";
            others.iter().map(|line| Problem::at_line(path, *line, message)).collect()
        }
    }
}

/// Every file `examples/*.toml` is named in a Rust file of the crates, that is: something runs it.
pub(crate) fn check_examples(texts: &Texts) -> Vec<Problem> {
    let named = |name: &str| {
        texts
            .iter()
            .any(|(path, text)| path.starts_with("crates/") && path.ends_with(".rs") && text.contains(name))
    };
    texts
        .keys()
        .filter_map(|path| Some((path, path.strip_prefix("examples/")?)))
        .filter(|(_, name)| name.ends_with(".toml") && !named(name))
        .map(|(path, name)| {
            let message = format!("no test runs this example; name `{name}` in a test of crates/cli/tests");
            Problem::of_file(path, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    #[test]
    fn a_page_has_one_title() {
        assert!(check_title("a.md", "# Title\n\n## Part\n\n```text\n# not a title\n```\n").is_empty());
        assert_eq!(
            shown(&check_title("a.md", "## Part\n")),
            ["a.md:1: the page has no title; open it with `# Title`"]
        );
        let twice = shown(&check_title("a.md", "# Title\n\nOther\n=====\n"));
        assert_eq!(twice, ["a.md:3: the page has a second title; use `##` for its sections"]);
        assert!(check_title("a.rs", "").is_empty());
    }

    #[test]
    fn an_example_that_nothing_runs_is_named() {
        let mut texts = Texts::new();
        texts.insert("examples/digits.toml".into(), String::new());
        texts.insert("docs/digits.md".into(), "examples/digits.toml".into());
        let problems = shown(&check_examples(&texts));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("examples/digits.toml: no test runs this example"), "{problems:?}");
        texts.insert("crates/cli/tests/run.rs".into(), "run(\"examples/digits.toml\")".into());
        assert!(check_examples(&texts).is_empty());
    }
}
