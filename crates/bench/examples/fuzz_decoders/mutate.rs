//! What is made of right messages.

/// Xorshift: fast, and the same everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Lengths and counts that decoders stumble over.
const NUMBERS: [u64; 12] =
    [0, 1, 0x7f, 0xff, 0xffff, 1 << 31, u32::MAX as u64, 1 << 32, 1 << 40, 1 << 62, 1 << 63, u64::MAX];

/// The same for texts.
const WORDS: [&str; 24] = [
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e308",
    "1e400",
    "-0.0",
    "-1",
    "NaN",
    "nan",
    "inf",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\"\\ud800\"",
    "\u{fffd}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    "4294967296",
    "99999999999d",
    "1e18GiB",
    "\r\n",
    "\0",
];

/// Makes an input of the right ones: one of 16 is random altogether, the others have up to five changes.
pub(crate) fn change(bytes: &mut Vec<u8>, right: &[Vec<u8>], random: &mut Random) {
    bytes.clear();
    if random.next().is_multiple_of(16) {
        let length = random.below(200);
        bytes.extend((0..length).map(|_| random.next() as u8));
        return;
    }
    bytes.extend_from_slice(&right[random.below(right.len())]);
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len().max(1));
        match random.below(11) {
            _ if bytes.is_empty() => return,
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
            4 if bytes.len() < 20_000 => bytes.extend_from_within(at..),
            5 => bytes.insert(at, [0xff, 0x80, 0x7f, 0, b'"', b'-', b'{', b'\n'][random.below(8)]),
            6 => overwrite(
                bytes,
                at,
                &NUMBERS[random.below(NUMBERS.len())].to_le_bytes()[..1 << random.below(4)],
            ),
            7 => overwrite(
                bytes,
                at,
                &NUMBERS[random.below(NUMBERS.len())].to_be_bytes()[..1 << random.below(4)],
            ),
            8 => replace_number(bytes, at, WORDS[random.below(WORDS.len())]),
            9 => {
                let word = WORDS[random.below(WORDS.len())].bytes();
                drop(bytes.splice(at..at, word));
            }
            _ => {
                // The end of another.
                let other = &right[random.below(right.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len())..]);
            }
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    let count = with.len().min(bytes.len() - at);
    bytes[at..at + count].copy_from_slice(&with[..count]);
}

/// Puts a word in the place of the next digits.
fn replace_number(bytes: &mut Vec<u8>, at: usize, word: &str) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = bytes[at..].iter().position(is_digit).map(|offset| at + offset) else { return };
    let length = bytes[start..].iter().position(|byte| !is_digit(byte)).unwrap_or(bytes.len() - start);
    drop(bytes.splice(start..start + length, word.bytes()));
}
