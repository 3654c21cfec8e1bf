//! A text as bytes, cut into windows of the model's context; the target of a byte is the next one.
//!
//! Windows do not overlap, so an epoch reads each byte once. The end of the text is held out: windows
//! drawn from all over it would share words and names with their neighbours.

use bellwether_core::InputError;

use super::{Batch, Part};

/// The text with the cut between its parts.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    /// Bytes per window.
    pub(super) context: usize,
    /// First byte that is held out.
    cut: usize,
}

impl Text {
    /// Cuts `bytes`; `share` of them is held out.
    pub(super) fn new(name: &str, bytes: Vec<u8>, context: usize, share: f64) -> Result<Self, InputError> {
        let held_out = (bytes.len() as f64 * share).round() as usize;
        let cut = bytes.len().saturating_sub(held_out);
        let text = Text { bytes, context, cut };
        let needed = context + 1;
        let short = |part: &str, len: usize| {
            InputError::new(
                name,
                format!("its {part} part of {len} bytes is shorter than one window of {needed} bytes (context and one)"),
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
    pub(super) fn held_out(bytes: Vec<u8>, context: usize) -> Text {
        Text { bytes, context, cut: 0 }
    }

    fn bytes(&self, part: Part) -> &[u8] {
        match part {
            Part::Training => &self.bytes[..self.cut],
            Part::HeldOut => &self.bytes[self.cut..],
        }
    }

    /// Windows of a part: each needs one byte beyond its end as the last target.
    pub(super) fn count(&self, part: Part) -> u64 {
        (self.bytes(part).len().saturating_sub(1) / self.context) as u64
    }

    /// Appends window `index` of a part.
    pub(super) fn append(&self, part: Part, index: u64, batch: &mut Batch) {
        let start = index as usize * self.context;
        let window = &self.bytes(part)[start..=start + self.context];
        batch.tokens.extend(window[..self.context].iter().map(|byte| i32::from(*byte)));
        batch.targets.extend(window[1..].iter().map(|byte| u32::from(*byte)));
    }

    /// Feeds the text and its cut to a hasher.
    pub(super) fn digest(&self, hasher: &mut blake3::Hasher) {
        hasher.update(&(self.cut as u64).to_le_bytes());
        hasher.update(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_follow_each_other() {
        let text = Text::new("t", (0..=20).collect(), 4, 0.25).unwrap();
        assert_eq!((text.count(Part::Training), text.count(Part::HeldOut)), (3, 1));
        let mut batch = Batch::default();
        text.append(Part::Training, 1, &mut batch);
        text.append(Part::HeldOut, 0, &mut batch);
        assert_eq!(batch.tokens, [4, 5, 6, 7, 16, 17, 18, 19]);
        assert_eq!(batch.targets, [5, 6, 7, 8, 17, 18, 19, 20]);
    }

    #[test]
    fn a_short_text_is_refused() {
        assert!(Text::new("t", vec![0; 4], 4, 0.0).unwrap_err().what.contains("training part of 4 bytes"));
        assert!(Text::new("t", vec![0; 9], 4, 0.2).unwrap_err().what.contains("held-out part of 2 bytes"));
        assert!(Text::new("t", vec![], 4, 0.2).is_err());
    }

    proptest! {
        #[test]
        fn every_window_of_any_text_can_be_read(
            bytes in prop::collection::vec(any::<u8>(), 0..200), context in 1usize..50, share in 0.0..1.0,
        ) {
            if let Ok(text) = Text::new("t", bytes, context, share) {
                for part in [Part::Training, Part::HeldOut] {
                    let mut batch = Batch::default();
                    (0..text.count(part)).for_each(|index| text.append(part, index, &mut batch));
                    prop_assert_eq!(batch.tokens.len() as u64, text.count(part) * context as u64);
                    prop_assert_eq!(batch.targets.len(), batch.tokens.len());
                }
            }
        }
    }
}
