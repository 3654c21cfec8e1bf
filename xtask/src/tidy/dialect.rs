//! Words that only this house would use where a reader expects a plain sentence.

use super::ratchet::{Measure, Measures};
use super::width::folder;
use crate::generate;
use crate::tree::Texts;

/// Each with what to write instead.
const PRIVATE: [(&str, &str); 7] = [
    ("nobody", "name the actor: `no worker`, `no one`"),
    ("whoever", "name the actor"),
    ("so many", "`this many`, or the number's name"),
    ("none are left", "`nothing remains`, `if all are used`"),
    ("anew", "`again`, `from the start`"),
    (" is no ", "`is not a`, or say what it is"),
    (" are no ", "`are not`, or say what they are"),
];

/// Comparisons are plain: "it is no longer than a step".
const COMPARATIVES: [&str; 16] = [
    "better", "closer", "earlier", "faster", "further", "higher", "larger", "later", "less", "longer",
    "lower", "more", "older", "shorter", "slower", "worse",
];

/// Files that quote these words to speak about them.
const QUOTES: [&str; 1] = ["xtask/src/tidy/dialect.rs"];

/// How many private words are in the text of a file.
pub(crate) fn count(text: &str) -> usize {
    let text = text.to_lowercase();
    let of = |word: &str| {
        let is_plain = |offset: usize| {
            let next = text[offset + word.len()..].split(|letter: char| !letter.is_alphabetic()).next();
            // "There is no room" is plain.
            text[..offset].ends_with("there") || next.is_some_and(|next| COMPARATIVES.contains(&next))
        };
        text.match_indices(word).filter(|(offset, _)| !(word.starts_with(' ') && is_plain(*offset))).count()
    };
    PRIVATE.iter().map(|(word, _)| of(word)).sum()
}

/// Adds how many are in each crate and in each folder of pages.
pub(crate) fn measure(texts: &Texts, measures: &mut Measures) {
    for (path, text) in texts {
        let is_read = path.ends_with(".rs") || path.ends_with(".md");
        let Some(folder) = folder(path).filter(|_| is_read && path != generate::OUTPUT) else { continue };
        if QUOTES.contains(&path.as_str()) {
            continue;
        }
        let target = format!("{folder}:private-words");
        let empty = || Measure {
            path: folder,
            line: 0,
            what: "private words".into(),
            number: 0,
            limit: 0,
            advice: "write plainly; xtask/src/tidy/dialect.rs says what instead".into(),
        };
        measures.entry(target).or_insert_with(empty).number += count(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_words_are_counted_and_plain_ones_are_not() {
        assert_eq!(count("Nobody waits; whoever reads this begins anew, so many times."), 4);
        assert_eq!(count("`x` is no policy, and these are no figures."), 2);
        assert_eq!(count("It is no longer than a step, and they are no better."), 0);
        assert_eq!(count("There is no room, there are no files, and no worker waits."), 0);
    }
}
