//! Rust source as a checker sees it: its tokens, functions, public items, test modules and the paths that it names.

use std::str::FromStr;

use proc_macro2::{Delimiter, LexError, Spacing, TokenStream, TokenTree};

/// A file of Rust, as a flat list of tokens.
pub(crate) struct Code(Vec<Token>);

/// A word, a literal, a mark, or one of the two delimiters of a group.
#[derive(Clone)]
struct Token {
    text: String,
    line: usize,
    kind: Kind,
}

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A name or a keyword.
    Word,
    /// A literal, a mark (`::`, `->` and the like are one), or a closing delimiter.
    Other,
    /// An opening delimiter, and how many tokens further on its partner stands.
    Open(usize),
}

/// A function with a body, and how many lines it takes from `fn` to its closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) length: usize,
}

/// What opens an item that `pub` makes public; fields and re-exports are not counted.
const ITEMS: [&str; 11] =
    ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union", "async", "unsafe"];

impl FromStr for Code {
    type Err = LexError;

    /// Reads a file. Comments leave no token, and those that document an item are left out too.
    fn from_str(text: &str) -> Result<Code, LexError> {
        let mut tokens = Vec::new();
        flatten(text.parse()?, &mut tokens);
        Ok(Code(tokens))
    }
}

/// Adds a stream with all its groups opened.
fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        let mut add = |text: String, kind| tokens.push(Token { text, line, kind });
        match tree {
            TokenTree::Ident(word) => add(word.to_string(), Kind::Word),
            // The text of a literal does not count as code.
            TokenTree::Literal(_) => add("0".into(), Kind::Other),
            TokenTree::Punct(mark) => {
                let mut text = mark.as_char().to_string();
                let pair = |next: &TokenTree| match next {
                    TokenTree::Punct(next) => {
                        ["::", "->", "=>"].contains(&&*format!("{text}{}", next.as_char()))
                    }
                    _ => false,
                };
                if mark.spacing() == Spacing::Joint && trees.peek().is_some_and(pair) {
                    text.extend(trees.next().map(|next| next.to_string()));
                }
                add(text, Kind::Other);
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                let place = tokens.len();
                tokens.push(Token { text: open.into(), line, kind: Kind::Open(0) });
                flatten(group.stream(), tokens);
                let line = group.span_close().start().line;
                tokens[place].kind = Kind::Open(tokens.len() - place);
                tokens.push(Token { text: close.into(), line, kind: Kind::Other });
                forget_documentation(tokens, place);
            }
        }
    }
}

/// Takes `#[doc = "…"]` back, which is what a documenting comment is to the compiler; its group stands at `place`.
fn forget_documentation(tokens: &mut Vec<Token>, place: usize) {
    if tokens[place].text == "[" && tokens.get(place + 1).is_some_and(|token| token.text == "doc") {
        let marks =
            tokens[..place].iter().rev().take_while(|token| ["#", "!"].contains(&&*token.text)).count();
        tokens.truncate(place - marks);
    }
}

impl Code {
    /// Line and text of every word; that of a macro that is called ends with `!`.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, String)> {
        let words = self.0.iter().enumerate().filter(|(_, token)| token.kind == Kind::Word);
        words.map(|(place, token)| {
            let opens = matches!(self.0.get(place + 2).map(|token| token.kind), Some(Kind::Open(_)));
            let mark = if opens && self.text(place + 1) == "!" { "!" } else { "" };
            (token.line, format!("{}{mark}", token.text))
        })
    }

    /// Every function with a body, in the order of the text, those within macros included.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Vec::new();
        for (place, token) in self.0.iter().enumerate().filter(|(_, token)| token.text == "fn") {
            // `fn(u32) -> u32` is a type, `fn $name` belongs to a macro.
            let Some(name) = self.0.get(place + 1).filter(|next| next.kind == Kind::Word) else { continue };
            let Some(close) = self.end_of_item(place + 2) else { continue };
            let length = self.0[close].line - token.line + 1;
            found.push(Function { name: name.text.clone(), line: token.line, length });
        }
        found
    }

    /// The brace that closes the item whose head goes on at `place`; `None` where a `;` ends it.
    fn end_of_item(&self, mut place: usize) -> Option<usize> {
        loop {
            let token = self.0.get(place)?;
            match token.kind {
                Kind::Open(length) if token.text == "{" => return Some(place + length),
                Kind::Open(length) => place += length,
                _ if token.text == ";" => return None,
                _ => {}
            }
            place += 1;
        }
    }

    /// How many lines stand in modules marked `#[cfg(test)]`, the mark included.
    pub(crate) fn lines_of_test_modules(&self) -> usize {
        self.test_modules().iter().map(|(first, last)| self.0[*last].line - self.0[*first].line + 1).sum()
    }

    /// The same code without its test modules.
    pub(crate) fn without_tests(&self) -> Code {
        let modules = self.test_modules();
        let kept = |place: usize| !modules.iter().any(|(first, last)| (*first..=*last).contains(&place));
        let tokens = self.0.iter().enumerate().filter(|(place, _)| kept(*place));
        Code(tokens.map(|(_, token)| token.clone()).collect())
    }

    /// First and last token of every inline module marked `#[cfg(test)]`.
    fn test_modules(&self) -> Vec<(usize, usize)> {
        let mark = ["#", "[", "cfg", "(", "test", ")", "]"];
        let marked =
            |place: usize| mark.iter().enumerate().all(|(further, text)| self.text(place + further) == *text);
        let mut modules: Vec<(usize, usize)> = Vec::new();
        for first in (0..self.0.len()).filter(|place| marked(*place)) {
            let mut place = first;
            while self.text(place) == "#" {
                place = self.after_group(place + 1);
            }
            if self.text(place) == "pub" {
                place += 1;
                place = if self.text(place) == "(" { self.after_group(place) } else { place };
            }
            let is_module = self.text(place) == "mod" && modules.last().is_none_or(|(_, last)| first > *last);
            modules.extend(is_module.then(|| self.end_of_item(place)).flatten().map(|last| (first, last)));
        }
        modules
    }

    /// How many items are public without restriction: functions, types, traits, constants, modules.
    pub(crate) fn public_items(&self) -> usize {
        let public = self.0.iter().enumerate().filter(|(_, token)| token.text == "pub");
        public.filter(|(place, _)| ITEMS.contains(&self.text(place + 1))).count()
    }

    /// How many results have text as their error, so that a caller cannot tell one from another.
    pub(crate) fn string_errors(&self) -> usize {
        let results = self.0.iter().enumerate().filter(|(_, token)| token.text == "Result");
        results
            .filter(|(place, _)| self.last_argument(place + 1).is_some_and(|text| text == "String"))
            .count()
    }

    /// The last generic argument of what `<` at `place` opens, if it is one word and not the only argument.
    fn last_argument(&self, place: usize) -> Option<&str> {
        let (mut depth, mut place, mut commas) = ((self.text(place) == "<").then_some(1)?, place + 1, 0);
        while depth > 0 {
            match self.text(place) {
                "<" => depth += 1,
                ">" => depth -= 1,
                "," if depth == 1 => commas += 1,
                ";" | "" => return None,
                _ => {}
            }
            place += match self.0[place].kind {
                Kind::Open(length) => length + 1,
                _ => 1,
            };
        }
        let is_word = commas > 0 && [",", "<"].contains(&self.text(place.checked_sub(3)?));
        is_word.then(|| self.text(place - 2))
    }

    /// The names of every path of several names, those of `use` with their braces opened.
    pub(crate) fn paths(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut place = 0;
        while place < self.0.len() {
            let is_path = self.0[place].kind == Kind::Word && self.text(place + 1) == "::";
            place = if is_path { self.path(place, &[], &mut found) } else { place + 1 };
        }
        found
    }

    /// Reads the path at `place`, which goes on from `before`; returns the place after it.
    fn path(&self, mut place: usize, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
        let mut names = before.to_vec();
        loop {
            match self.0[place].kind {
                Kind::Open(length) if self.text(place) == "{" => {
                    let end = place + length;
                    place += 1;
                    while place < end {
                        place = match self.0[place].kind {
                            // What it is called here does not exist there.
                            Kind::Word if self.text(place) == "as" => place + 2,
                            Kind::Word => self.path(place, &names, found),
                            _ => place + 1,
                        };
                    }
                    return end + 1;
                }
                Kind::Word => names.push(self.text(place).to_owned()),
                _ => break,
            }
            place += 1;
            if self.text(place) != "::" {
                break;
            }
            place += 1;
        }
        found.push(names);
        place
    }

    /// The text of the token at `place`, empty after the last one.
    fn text(&self, place: usize) -> &str {
        self.0.get(place).map_or("", |token| &token.text)
    }

    /// The place after the group that opens at `place`.
    fn after_group(&self, place: usize) -> usize {
        match self.0.get(place).map(|token| token.kind) {
            Some(Kind::Open(length)) => place + length + 1,
            _ => place + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    fn words(text: &str) -> Vec<String> {
        code(text).words().map(|(_, word)| word).collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        assert_eq!(words("a // b { \"\nc /* d /* e */ \" */ f"), ["a", "c", "f"]);
        assert_eq!(words("/// doc 'quote\n//! more\nfn"), ["fn"]);
        assert_eq!(words(r##"a(r#"b " } \"#, "c \" }", b'"', '{', 'd')"##), ["a"]);
        assert_eq!(words("dbg!(x) != todo![]; a != (b)"), ["dbg!", "x", "todo!", "a", "b"]);
        assert!("a { b".parse::<Code>().is_err());
    }

    #[test]
    fn a_function_is_measured_from_fn_to_its_brace() {
        let text = "struct A;\nimpl A {\n    /// One.\n    fn one() {\n        \"}\";\n    }\n    fn two(f: fn(u8) -> [u8; 2]) -> u8\n    where\n        A: B,\n    { '{'; inner(|| { 1 }) }\n    fn only_declared();\n}\n";
        let one = Function { name: "one".into(), line: 4, length: 3 };
        let two = Function { name: "two".into(), line: 7, length: 4 };
        assert_eq!(code(text).functions(), [one, two]);
        let within = "proptest! {\n    fn law(a in 0..1) {\n    }\n}";
        assert_eq!(code(within).functions(), [Function { name: "law".into(), line: 2, length: 2 }]);
        assert_eq!(code("macro_rules! m { () => { fn $name() {} } } type F = fn(u8);").functions(), []);
    }

    #[test]
    fn test_modules_are_counted_with_their_mark() {
        let lines = |text: &str| code(text).lines_of_test_modules();
        assert_eq!(lines("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n"), 4);
        assert_eq!(lines("#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests {\n}\nfn a() {}"), 4);
        assert_eq!(lines("#[cfg(test)]\nmod tests;\nfn a() {}\n#[cfg(test)]\nfn b() {}"), 0);
        let rest = code("fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}").without_tests();
        assert_eq!(rest.functions().len(), 2);
    }

    #[test]
    fn public_items_and_textual_errors_are_counted() {
        let text = "pub struct A { pub b: u8 }\nimpl A { pub fn c() -> Result<u8, String> {} }\npub(crate) fn d() {}\n\
                    pub use a::b;\npub const fn e(f: fn() -> Result<(), String>) -> Result<String, E> {}\n\
                    pub async fn f() -> Result<Vec<Option<String>>> {}";
        assert_eq!((code(text).public_items(), code(text).string_errors()), (4, 2));
    }

    #[test]
    fn paths_are_read_with_their_braces_opened() {
        let text = "use crate::a::{self, b::{C, D as E}, f::*};\nfn g() { super::h(); Vec::<u8>::new(); x < y; i::J { k } }";
        let paths: Vec<String> = code(text).paths().iter().map(|names| names.join("::")).collect();
        assert_eq!(
            paths,
            ["crate::a::self", "crate::a::b::C", "crate::a::b::D", "crate::a::f", "super::h", "Vec", "i::J"]
        );
    }
}
