//! Links between Markdown pages lead somewhere: the file exists, and so does the section.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::problem::{Problem, line_of};
use crate::tree::Texts;

/// A page: where its links stand and lead, and the sections it has.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

/// Checks all relative links of all pages; `paths` are the files and folders that exist.
pub(crate) fn check(texts: &Texts, paths: &BTreeSet<String>) -> Vec<Problem> {
    let pages: BTreeMap<&str, Page> = texts
        .iter()
        .filter(|(path, _)| path.ends_with(".md"))
        .map(|(path, text)| (&**path, read(text)))
        .collect();
    let mut problems = Vec::new();
    for (path, page) in &pages {
        for (line, link) in &page.links {
            if let Err(reason) = follow(path, link, &pages, paths) {
                problems.push(Problem::at_line(path, *line, format!("the link `{link}` is dead: {reason}")));
            }
        }
    }
    problems
}

/// Says why a link leads nowhere. What has a scheme (`https:`) is not looked at.
fn follow(
    from: &str,
    link: &str,
    pages: &BTreeMap<&str, Page>,
    paths: &BTreeSet<String>,
) -> Result<(), String> {
    let before_slash = link.split(['/', '#', '?']).next().unwrap_or(link);
    if before_slash.contains(':') {
        return Ok(());
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    if file.starts_with('/') {
        return Err("it starts with `/`; write it relative to this page".to_owned());
    }
    let target = if file.is_empty() { Some(from.to_owned()) } else { resolve(from, file) };
    let target = target.ok_or("it leaves the repository")?;
    if !target.is_empty() && !paths.contains(&target) {
        return Err(format!("there is no `{target}`; mend the link or add the file"));
    }
    // Anchors of other files (`#L10`) are made by the site that shows them.
    match (anchor, pages.get(&*target)) {
        (Some(anchor), Some(page)) if !page.anchors.contains(anchor) => {
            let known: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
            Err(format!("`{target}` has no section `#{anchor}`; it has: {}", known.join(", ")))
        }
        _ => Ok(()),
    }
}

/// The path from the root of what is named `file` on the page `from`; `None` when it is outside.
fn resolve(from: &str, file: &str) -> Option<String> {
    let mut folders: Vec<&str> = from.split('/').collect();
    folders.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(folders.pop()?),
            name => folders.push(name),
        }
    }
    Some(folders.join("/"))
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => page.add_section(&heading.take().unwrap_or_default()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            // `<https://host>` names itself.
            Event::Start(Tag::Link { link_type: LinkType::Autolink | LinkType::Email, .. }) => {}
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((line_of(text, range.start), dest_url.into_string()));
            }
            Event::Html(part) | Event::InlineHtml(part) => page.add_named_elements(&part),
            _ => {}
        }
    }
    page
}

impl Page {
    /// Adds the anchor that GitHub makes of a heading; a repeated one gets a number.
    fn add_section(&mut self, heading: &str) {
        let kept = heading.trim().to_lowercase().replace(' ', "-");
        let anchor: String =
            kept.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
        let mut unique = anchor.clone();
        let mut number = 0;
        while !self.anchors.insert(unique) {
            number += 1;
            unique = format!("{anchor}-{number}");
        }
    }

    /// Adds the anchors of `<a id="...">` and `<a name="...">`.
    fn add_named_elements(&mut self, html: &str) {
        for attribute in [" id=\"", " name=\""] {
            for part in html.split(attribute).skip(1) {
                self.anchors.extend(part.split('"').next().map(str::to_owned));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    /// The problems of a page `docs/guide.md`, beside `README.md` and `docs/img/road.svg`.
    fn dead(text: &str) -> Vec<String> {
        let mut texts = Texts::new();
        texts.insert("docs/guide.md".into(), text.into());
        texts.insert(
            "README.md".into(),
            "# Bellwether\n\n## The *one* `road`, drawn\n\n## Run\n\n## Run\n".into(),
        );
        let paths = ["docs", "docs/guide.md", "docs/img", "docs/img/road.svg", "README.md"];
        shown(&check(&texts, &paths.into_iter().map(str::to_owned).collect()))
    }

    #[test]
    fn living_links_pass() {
        let text = "# Guide\n\n[a](../README.md) [b](#guide) [c](../README.md#the-one-road-drawn) [d](img/) ![e](img/road.svg)\n\
                    [f](../README.md#run-1) [g](https://host/none.md#x) [h](mailto:a@b) <https://host> [i][k] [l](..)\n\n\
                    `[not](a/link.md)`\n\n```text\n[not](a/link.md)\n```\n\n<a id=\"old\"></a>[m](#old)\n\n[k]: img/road.svg\n";
        assert_eq!(dead(text), Vec::<String>::new());
    }

    #[test]
    fn a_missing_file_is_named() {
        let problems = dead("# Guide\n\n[a](other.md)\n\n[b]: ../none.md\n\nSee [b].\n");
        let first = "docs/guide.md:3: the link `other.md` is dead: there is no `docs/other.md`; mend the link or add \
                     the file";
        assert_eq!(problems[0], first);
        assert!(problems[1].starts_with("docs/guide.md:7: the link `../none.md` is dead"), "{problems:?}");
    }

    #[test]
    fn a_missing_section_is_named_with_those_there_are() {
        let problems = dead("# Guide\n\n[a](../README.md#walk) [b](#none)\n");
        let first = "docs/guide.md:3: the link `../README.md#walk` is dead: `README.md` has no section `#walk`; it \
                     has: bellwether, run, run-1, the-one-road-drawn";
        assert_eq!(problems[0], first);
        assert_eq!(problems.len(), 2);
    }

    #[test]
    fn a_link_out_of_the_repository_is_dead() {
        assert!(dead("# Guide\n\n[a](../../x.md)\n")[0].contains("it leaves the repository"));
        assert!(dead("# Guide\n\n[a](/README.md)\n")[0].contains("it starts with `/`"));
    }
}
