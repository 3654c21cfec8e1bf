//! Rust source as a checker sees it: code without comments and literals, functions, test modules.

use crate::problem::line_of;

/// A function with a body, and how many lines it takes from `fn` to its closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) length: usize,
}

/// The text with every byte of comments and of the insides of literals turned into a space.
/// Lines and offsets stay what they were.
pub(crate) fn without_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut kept = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => end_of_line(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => end_of_block_comment(bytes, at),
            b'"' => end_of_quoted(bytes, at),
            b'r' => end_of_raw_string(bytes, at),
            b'\'' => end_of_character(text, at),
            _ => at,
        };
        for byte in &mut kept[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Only whole characters are replaced, so what is left is still UTF-8.
    String::from_utf8_lossy(&kept).into_owned()
}

fn end_of_line(bytes: &[u8], start: usize) -> usize {
    bytes[start..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| start + length)
}

/// Block comments nest.
fn end_of_block_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of a literal that ends with the quote it starts with and knows `\` escapes.
fn end_of_quoted(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == bytes[start] => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r#"..."#`, or `start` when the `r` opens no raw string.
fn end_of_raw_string(bytes: &[u8], start: usize) -> usize {
    let before = &bytes[..start];
    let prefix = before.strip_suffix(b"b").or(before.strip_suffix(b"c")).unwrap_or(before);
    if prefix.last().is_some_and(|byte| is_word(*byte)) {
        return start;
    }
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let content = start + 1 + hashes + 1;
    if bytes.get(content - 1) != Some(&b'"') {
        return start;
    }
    let closing = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let length = bytes[content..].windows(closing.len()).position(|window| window == closing);
    length.map_or(bytes.len(), |length| content + length + closing.len())
}

/// The end of a character literal, or `start` when the `'` opens a lifetime or a label.
fn end_of_character(text: &str, start: usize) -> usize {
    let mut following = text[start + 1..].chars();
    match (following.next(), following.next()) {
        (Some('\\'), _) => end_of_quoted(text.as_bytes(), start),
        (Some(character), Some('\'')) => start + 1 + character.len_utf8() + 1,
        _ => start,
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The offsets at which `word` stands in `text` with no letter, digit or `_` touching it.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    let touches = move |offset: Option<usize>| {
        offset.and_then(|offset| bytes.get(offset)).is_some_and(|byte| is_word(*byte))
    };
    let starts_with_word = word.bytes().next().is_some_and(is_word);
    let ends_with_word = word.bytes().next_back().is_some_and(is_word);
    text.match_indices(word).map(|(offset, _)| offset).filter(move |offset| {
        let touched_before = starts_with_word && touches(offset.checked_sub(1));
        let touched_after = ends_with_word && touches(Some(offset + word.len()));
        !touched_before && !touched_after
    })
}

/// Every function with a body, in the order of the text; `code` holds no comments and no literals.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for start in words(code, "fn") {
        let rest = code[start + 2..].trim_start();
        let name: String =
            rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        // `fn(u32) -> u32` is a type, `fn $name` belongs to a macro.
        if name.is_empty() {
            continue;
        }
        let Some(body) = start_of_body(code, start) else { continue };
        let line = line_of(code, start);
        let length = line_of(code, end_of_braces(code, body)) - line + 1;
        found.push(Function { name, line, length });
    }
    found
}

/// The opening brace of the body, or `None` for a function that is only declared.
fn start_of_body(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(offset),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at `open`; the end of the text when there is none.
fn end_of_braces(code: &str, open: usize) -> usize {
    let mut depth = 0_i32;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return offset;
        }
    }
    code.len()
}

/// How many lines of `code` stand in modules marked `#[cfg(test)]`, the mark included.
pub(crate) fn lines_of_test_modules(code: &str) -> usize {
    let mark = "#[cfg(test)]";
    let mut lines = 0;
    let mut after = 0;
    for (start, _) in code.match_indices(mark) {
        if start < after {
            continue;
        }
        let Some(open) = start_of_module(code, start + mark.len()) else { continue };
        after = end_of_braces(code, open);
        lines += line_of(code, after) - line_of(code, start) + 1;
    }
    lines
}

/// The opening brace of the inline module at `start`, after further attributes and visibility.
fn start_of_module(code: &str, start: usize) -> Option<usize> {
    let mut rest = code[start..].trim_start();
    while rest.starts_with("#[") {
        rest = rest[rest.find(']')? + 1..].trim_start();
    }
    if rest.starts_with("pub") {
        rest = rest[rest.find(' ')?..].trim_start();
    }
    let open = rest.strip_prefix("mod ")?.find(['{', ';'])? + "mod ".len();
    rest[open..].starts_with('{').then(|| code.len() - rest.len() + open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanked(text: &str) -> String {
        let code = without_comments_and_literals(text);
        assert_eq!(code.len(), text.len(), "offsets must not move");
        assert_eq!(code.lines().count(), text.lines().count(), "lines must not move");
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_disappear() {
        assert_eq!(blanked("a // b { \"\nc"), "a c");
        assert_eq!(blanked("a /* b /* nested */ \" */ c"), "a c");
        assert_eq!(blanked("/// doc 'quote\nfn"), "fn");
        assert_eq!(blanked("a /* never closed"), "a");
    }

    #[test]
    fn strings_disappear() {
        assert_eq!(blanked(r#"a("b \" }", c)"#), "a( , c)");
        assert_eq!(blanked(r##"a(r#"b " } \"#, c)"##), "a( , c)");
        assert_eq!(blanked(r##"a(br"b \", r, c)"##), "a(b , r, c)");
        assert_eq!(blanked("a(\"b\\\\\", \"ü // no comment\n}\") c"), "a( , ) c");
        assert_eq!(blanked("let r#type = for_r\"}\";"), "let r#type = for_r ;");
    }

    #[test]
    fn characters_disappear_and_lifetimes_stay() {
        assert_eq!(blanked("['{', '\\'', b'\"', 'ü', '\\u{1F600}', x]"), "[ , , b , , , x]");
        assert_eq!(
            blanked("fn a<'a, 'b>(c: &'a str) { 'outer: loop {} }"),
            "fn a<'a, 'b>(c: &'a str) { 'outer: loop {} }"
        );
    }

    #[test]
    fn words_have_edges() {
        assert_eq!(words("fn fnx x_fn fn", "fn").collect::<Vec<_>>(), [0, 12]);
        assert_eq!(words("dbg!(x) xdbg!()", "dbg!").collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_function_is_measured_from_fn_to_its_brace() {
        let text = "struct A;\nimpl A {\n    fn one() {\n        \"}\";\n    }\n    fn two(f: fn(u8) -> [u8; 2]) -> u8\n    where\n        A: B,\n    { '{'; inner(|| { 1 }) }\n    fn only_declared();\n}\n";
        let code = without_comments_and_literals(text);
        let one = Function { name: "one".into(), line: 3, length: 3 };
        let two = Function { name: "two".into(), line: 6, length: 4 };
        assert_eq!(functions(&code), [one, two]);
    }

    #[test]
    fn a_macro_and_a_type_are_no_functions() {
        assert_eq!(functions("macro_rules! m { () => { fn $name() {} } } type F = fn(u8);"), []);
    }

    #[test]
    fn test_modules_are_counted_with_their_mark() {
        assert_eq!(lines_of_test_modules("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"), 4);
        assert_eq!(
            lines_of_test_modules("#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests {\n}\nfn a() {}"),
            4
        );
        assert_eq!(lines_of_test_modules("#[cfg(test)]\nmod tests;\nfn a() {}\n#[cfg(test)]\nfn b() {}"), 0);
    }
}
