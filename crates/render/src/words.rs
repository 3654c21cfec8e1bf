//! Parts of sentences.

use std::collections::BTreeSet;

pub use bellwether_core::words::count;

/// Numbers with what is regular among them shortened: `0–66`, or `0, 2 … 66`.
pub fn numbers(set: &BTreeSet<u32>) -> String {
    let all: Vec<u32> = set.iter().copied().collect();
    let mut words = Vec::new();
    let mut from = 0;
    while from < all.len() {
        let run = |step: u32| all[from..].windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
        let (one, two) = (run(1), run(2));
        let last = from + one.max(two);
        if one.max(two) < 3 {
            words.push(all[from].to_string());
            from += 1;
        } else if one > two {
            words.push(format!("{}–{}", all[from], all[last]));
            from = last + 1;
        } else {
            words.push(format!("{}, {} … {}", all[from], all[from + 1], all[last]));
            from = last + 1;
        }
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_numbers_are_shortened() {
        let text = |all: &[u32]| numbers(&all.iter().copied().collect());
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[67]), "67");
        assert_eq!(text(&[0, 1, 2, 3, 9]), "0–3, 9");
        assert_eq!(text(&[0, 2, 4, 6, 67]), "0, 2 … 6, 67");
        assert_eq!(text(&[1, 2, 4]), "1, 2, 4");
    }
}
