//! Words that are not known: which was meant, and which there are.

/// What is wrong and what to do, where a reader's message is about a word that it does not know.
///
/// ```
/// # use bellwether_core::parse::advice;
/// let (what, hint) = advice("unknown field `nam`, expected `name` or `seed`").unwrap();
/// assert_eq!(what, "unknown field `nam`");
/// assert!(hint.starts_with("did you mean `name`?"));
/// assert!(advice("invalid type: string").is_none());
/// ```
pub fn advice(message: &str) -> Option<(String, String)> {
    let words = if message.starts_with("unknown") { quoted(message) } else { Vec::new() };
    let (word, known) = words.split_first().filter(|(_, known)| !known.is_empty())?;
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let what = message.split(", expected").next().unwrap_or(message).to_string();
    Some((what, did_you_mean(word, &known)))
}

/// The words in backticks.
pub(crate) fn quoted(message: &str) -> Vec<String> {
    message.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// Advice for a word that is not known: the nearest that is, and all of them.
pub fn did_you_mean(word: &str, known: &[&str]) -> String {
    let owned: Vec<String> = known.iter().map(ToString::to_string).collect();
    match nearest(word, &owned) {
        Some(near) => format!("did you mean `{near}`? known here: {}", owned.join(", ")),
        None => format!("known here: {}", owned.join(", ")),
    }
}

/// The known word that is spelt most like `word`, if any comes near.
pub fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a String> {
    // The distance takes time and memory for both lengths, and words come from strangers. A character has up to 4
    // bytes.
    let may_be = |candidate: &&String| word.len() <= 4 * (candidate.len() + 1 + candidate.len() / 3);
    known
        .iter()
        .filter(may_be)
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 3)
        .map(|(_, candidate)| candidate)
}
