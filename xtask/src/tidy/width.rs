//! Comments and prose keep a width at which they can be read beside one another.

use super::ratchet::{Measure, Measures};
use crate::generate;
use crate::tree::Texts;

/// Characters of a line of a comment or of a page's prose.
const WIDTH: usize = 120;

/// Adds how many lines are wider: of comments by crate, of pages by folder.
pub(crate) fn measure(texts: &Texts, measures: &mut Measures) {
    for (path, text) in texts.iter().filter(|(path, _)| *path != generate::OUTPUT) {
        let wide = match path.rsplit('.').next() {
            Some("rs") => text.lines().filter(|line| is_comment(line) && is_wide(line)).count(),
            Some("md") => prose(text).filter(|line| is_wide(line)).count(),
            _ => continue,
        };
        let Some(folder) = folder(path) else { continue };
        let target = format!("{folder}:wide-lines");
        let empty = || Measure {
            path: folder,
            line: 0,
            what: format!("lines of comments and prose wider than {WIDTH} characters"),
            number: 0,
            limit: 0,
            advice: "break the lines that are new".into(),
        };
        measures.entry(target).or_insert_with(empty).number += wide;
    }
}

/// What a file is counted with: its crate, or its folder at the top.
pub(crate) fn folder(path: &str) -> Option<String> {
    let folders: Vec<&str> = path.split('/').collect();
    match folders.as_slice() {
        ["crates", name, ..] => Some(format!("crates/{name}")),
        [first, ..] => Some((*first).to_owned()),
        [] => None,
    }
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > WIDTH
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The lines of a page that can be broken: no tables, no code, no links that stand alone.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        let stays = ["|", "    ", "[", "<", "!["].iter().any(|start| line.starts_with(start));
        !in_code && !is_fence && !stays
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(path: &str, text: &str) -> usize {
        let mut measures = Measures::new();
        measure(&Texts::from([(path.to_owned(), text.to_owned())]), &mut measures);
        measures.into_values().map(|measure| measure.number).sum()
    }

    #[test]
    fn wide_comments_and_prose_are_counted() {
        let long = "ü".repeat(118);
        assert_eq!(
            wide("crates/a/src/b.rs", &format!("//{long}\n   //{long}\nlet a = \"{long}{long}\";\n")),
            1
        );
        assert_eq!(wide("docs/a.md", &format!("12{long}\n123{long}\n- 1{long}\n")), 2);
    }

    #[test]
    fn what_cannot_be_broken_is_not_counted() {
        let long = "a ".repeat(80);
        assert_eq!(wide("docs/a.md", &format!("| {long} |\n```sh\n{long}\n```\n    {long}\n")), 0);
        assert_eq!(wide("a.toml", &format!("# {long}\n")), 0);
    }
}
