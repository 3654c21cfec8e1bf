//! Windows of tokens: the bytes of a text, or numbers of one, two or four bytes. A sample is `context` tokens, and its
//! targets are the tokens one place further on.
//!
//! Windows do not overlap, so that an epoch reads every token once. The end is held out: windows drawn from all over
//! would share words and names with their neighbours.

use bellwether_core::InputError;
use bellwether_core::job::TokenWidth;

use super::source::Source;
use super::{Batch, Part};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alphabet {
    /// How it is written.
    pub(super) token: TokenWidth,
    /// How many there are.
    pub(super) vocabulary: u32,
}

impl Alphabet {
    /// Each byte is a token.
    pub(super) const BYTES: Alphabet = Alphabet { token: TokenWidth::U8, vocabulary: 256 };

    /// The tokens of these bytes.
    fn tokens(self, bytes: &[u8]) -> impl Iterator<Item = u32> {
        // The bytes of one token, the lowest one first.
        bytes
            .chunks_exact(self.token.bytes())
            .map(|token| token.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}

/// The files with the cut between their parts.
pub(super) struct Text {
    /// Each with the first token behind its end.
    files: Vec<(u64, Source)>,
    alphabet: Alphabet,
    /// Tokens per window.
    pub(super) context: usize,
    /// First token that is held out.
    cut: u64,
}

impl Text {
    /// Cuts the files, which follow each other; `share` of them is held out. `name` is what errors call them.
    pub(super) fn new(
        name: &str,
        sources: Vec<Source>,
        alphabet: Alphabet,
        context: usize,
        share: f64,
    ) -> Result<Text, InputError> {
        let (bytes, mut total, mut files) = (alphabet.token.bytes() as u64, 0, Vec::new());
        for source in sources {
            if !source.len().is_multiple_of(bytes) {
                let what =
                    format!("{} bytes are not a whole number of tokens of {bytes} bytes", source.len());
                return Err(InputError::new(source.name(), what).hint("is data.token the right one?"));
            }
            total += source.len() / bytes;
            files.push((total, source));
        }
        let held_out = (total as f64 * share).round() as u64;
        let cut = total.saturating_sub(held_out);
        let text = Text { files, alphabet, context, cut };
        let needed = context + 1;
        let unit = if alphabet.token == TokenWidth::U8 { "bytes" } else { "tokens" };
        let short = |part: &str, len: u64| {
            InputError::new(
                name,
                format!(
                    "its {part} part of {len} {unit} is shorter than one window of {needed} {unit} (context and one)"
                ),
            )
            .hint("give a longer text, a smaller model.context, or another data.held_out")
        };
        if text.count(Part::Training) == 0 {
            return Err(short("training", cut));
        }
        if share > 0.0 && text.count(Part::HeldOut) == 0 {
            return Err(short("held-out", held_out));
        }
        Ok(text)
    }

    /// A text that is held out as a whole; empty, it only says how long windows are.
    pub(super) fn held_out(sources: Vec<Source>, context: usize) -> Text {
        let mut total = 0;
        let end = |source: Source| {
            total += source.len();
            (total, source)
        };
        let files = sources.into_iter().map(end).collect();
        Text { files, alphabet: Alphabet::BYTES, context, cut: 0 }
    }

    /// First token of a part, and its tokens.
    fn part(&self, part: Part) -> (u64, u64) {
        let total = self.files.last().map_or(0, |(end, _)| *end);
        match part {
            Part::Training => (0, self.cut),
            Part::HeldOut => (self.cut, total - self.cut),
        }
    }

    /// Windows of a part: each needs one token beyond its end as the last target.
    pub(super) fn count(&self, part: Part) -> u64 {
        self.part(part).1.saturating_sub(1) / self.context as u64
    }

    /// Tokens that there are.
    pub(super) fn classes(&self) -> usize {
        self.alphabet.vocabulary as usize
    }

    /// Appends window `index` of a part.
    pub(super) fn append(&self, part: Part, index: u64, batch: &mut Batch) -> Result<(), InputError> {
        let first = self.part(part).0 + index * self.context as u64;
        let bytes = self.bytes(first, self.context + 1)?;
        let mut tokens = self.alphabet.tokens(&bytes).peekable();
        while let (Some(token), Some(next)) = (tokens.next(), tokens.peek()) {
            // Looked at when it was opened, and the files are the same ones.
            batch.tokens.push(token as i32);
            batch.targets.push(*next);
        }
        Ok(())
    }

    /// The bytes of tokens that follow each other, over as many files as they lie in.
    fn bytes(&self, first: u64, count: usize) -> Result<Vec<u8>, InputError> {
        let size = self.alphabet.token.bytes();
        let mut bytes = vec![0; count * size];
        let (mut filled, mut at) = (0, first);
        let mut file = self.files.partition_point(|(end, _)| *end <= first);
        while filled < bytes.len() {
            let (end, source) = &self.files[file];
            let begin = if file == 0 { 0 } else { self.files[file - 1].0 };
            let taken = ((end - at) as usize).min(count - filled / size);
            source.read_exact_at((at - begin) * size as u64, &mut bytes[filled..filled + taken * size])?;
            filled += taken * size;
            at += taken as u64;
            file += 1;
        }
        Ok(bytes)
    }

    /// Feeds the text and its cut to a hasher, and looks at every token.
    pub(super) fn digest(&self, hasher: &mut blake3::Hasher) -> Result<(), InputError> {
        let Alphabet { token, vocabulary } = self.alphabet;
        hasher.update(&self.cut.to_le_bytes());
        if token != TokenWidth::U8 {
            hasher.update(&(token.bytes() as u64).to_le_bytes());
        }
        let is_any_byte = token == TokenWidth::U8 && vocabulary == 256;
        // No token is cut by a piece.
        const PIECE: u64 = 1 << 18;
        for (_, source) in &self.files {
            let count = source.len() / token.bytes() as u64;
            for first in (0..count).step_by(PIECE as usize) {
                let offset = first * token.bytes() as u64;
                let bytes = source.some_at(offset, PIECE as usize * token.bytes())?;
                hasher.update(&bytes);
                let wrong = self.alphabet.tokens(&bytes).position(|number| number >= vocabulary);
                if let Some(place) = wrong.filter(|_| !is_any_byte) {
                    let what =
                        format!("token {} is not below data.vocabulary, {vocabulary}", first + place as u64);
                    return Err(InputError::new(source.name(), what)
                        .hint("raise data.vocabulary, or set data.token to what the file has"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text in one file.
    fn text(bytes: Vec<u8>, context: usize, share: f64) -> Result<Text, InputError> {
        Text::new("t", vec![Source::memory("t", bytes)], Alphabet::BYTES, context, share)
    }

    #[test]
    fn windows_follow_each_other() {
        let text = text((0..=20).collect(), 4, 0.25).unwrap();
        assert_eq!((text.count(Part::Training), text.count(Part::HeldOut)), (3, 1));
        let mut batch = Batch::default();
        text.append(Part::Training, 1, &mut batch).unwrap();
        text.append(Part::HeldOut, 0, &mut batch).unwrap();
        assert_eq!(batch.tokens, [4, 5, 6, 7, 16, 17, 18, 19]);
        assert_eq!(batch.targets, [5, 6, 7, 8, 17, 18, 19, 20]);
    }

    #[test]
    fn a_short_text_is_refused() {
        assert!(text(vec![0; 4], 4, 0.0).err().unwrap().what.contains("training part of 4 bytes"));
        assert!(text(vec![0; 9], 4, 0.2).err().unwrap().what.contains("held-out part of 2 bytes"));
        assert!(text(vec![], 4, 0.2).is_err());
    }

    proptest! {
        #[test]
        fn every_window_of_any_text_can_be_read(
            bytes in prop::collection::vec(any::<u8>(), 0..200), context in 1usize..50, share in 0.0..1.0,
        ) {
            if let Ok(text) = text(bytes, context, share) {
                for part in [Part::Training, Part::HeldOut] {
                    let mut batch = Batch::default();
                    (0..text.count(part)).for_each(|index| text.append(part, index, &mut batch).unwrap());
                    prop_assert_eq!(batch.tokens.len() as u64, text.count(part) * context as u64);
                    prop_assert_eq!(batch.targets.len(), batch.tokens.len());
                }
            }
        }

        #[test]
        fn windows_are_the_same_however_the_files_are_cut(
            tokens in prop::collection::vec(any::<u16>(), 40..120), cuts in prop::collection::vec(0usize..120, 0..4),
            context in 1usize..9, share in 0.3..0.6,
        ) {
            let alphabet = Alphabet { token: TokenWidth::U16, vocabulary: 1 << 16 };
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(tokens.len())).collect();
            cuts.extend([0, tokens.len()]);
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|cut| Source::memory("p", bytes[2 * cut[0]..2 * cut[1]].to_vec()));
            let whole = Text::new("t", vec![Source::memory("t", bytes.clone())], alphabet, context, share).unwrap();
            let parts = Text::new("t", parts.collect(), alphabet, context, share).unwrap();
            let digest = |text: &Text| {
                let mut hasher = blake3::Hasher::new();
                text.digest(&mut hasher).map(|()| hasher.finalize())
            };
            prop_assert_eq!(digest(&whole), digest(&parts));
            for index in 0..whole.count(Part::Training) {
                let (mut one, mut other) = (Batch::default(), Batch::default());
                whole.append(Part::Training, index, &mut one).unwrap();
                parts.append(Part::Training, index, &mut other).unwrap();
                let first = index as usize * context;
                let expected: Vec<i32> = tokens[first..first + context].iter().map(|token| i32::from(*token)).collect();
                prop_assert_eq!(&one.tokens, &expected);
                prop_assert_eq!(one, other);
            }
        }
    }

    #[test]
    fn tokens_outside_the_vocabulary_and_halves_of_tokens_are_refused() {
        let new = |bytes: Vec<u8>, vocabulary| {
            let alphabet = Alphabet { token: TokenWidth::U16, vocabulary };
            let text = Text::new("t", vec![Source::memory("t", bytes)], alphabet, 1, 0.0)?;
            text.digest(&mut blake3::Hasher::new())
        };
        let bytes = vec![1, 0, 2, 1, 0, 0];
        assert_eq!(new(bytes.clone(), 259), Ok(()));
        assert!(new(bytes.clone(), 258).unwrap_err().what.contains("token 1 is not below"));
        assert!(new(bytes[..5].to_vec(), 259).unwrap_err().what.contains("5 bytes"));
    }
}
