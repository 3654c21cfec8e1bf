//! What was found out about files that are read by index, so that the next process need not read all of them again.
//!
//! It is kept under a name that is made of the versions of all files: of other files it says nothing. It is believed no
//! further than it makes sense, for what lies on a disk may be damaged.

use super::scaling::Scaling;

/// Changes with the meaning of the numbers.
const FORMAT: u64 = 1;

/// Bytes of the digest at the end.
const CHECK_BYTES: usize = 32;

/// What was found out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    /// Channels, height and width of a sample.
    pub(super) image: [usize; 3],
    /// Whether values are numbers, not bytes.
    pub(super) is_float: bool,
    /// Number of classes.
    pub(super) classes: usize,
    /// Digest of all samples, in hexadecimal.
    pub(super) digest: String,
    /// How features are brought to one size.
    pub(super) scaling: Option<Scaling>,
    /// The numbers of each shard.
    pub(super) shards: Vec<Vec<u64>>,
}

impl Kept {
    /// As bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let digest = u64::from_str_radix(&self.digest, 16).unwrap_or(0);
        let [channels, height, width] = self.image.map(|size| size as u64);
        let mut numbers =
            vec![FORMAT, channels, height, width, u64::from(self.is_float), self.classes as u64, digest];
        let scaling = self.scaling.as_ref().map(Scaling::numbers).unwrap_or_default();
        for list in std::iter::once(&scaling).chain(&self.shards) {
            numbers.push(list.len() as u64);
            numbers.extend(list);
        }
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes
    }

    /// From its bytes; nothing if they are damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Kept> {
        let (bytes, check) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_BYTES)?)?;
        if blake3::hash(bytes).as_bytes() != check {
            return None;
        }
        let (numbers, []) = bytes.as_chunks::<8>() else { return None };
        let mut numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
        let mut next = || numbers.next();
        if next()? != FORMAT {
            return None;
        }
        let image = [next()?, next()?, next()?].map(|size| size as usize);
        let (is_float, classes, digest) = (next()? == 1, next()? as usize, next()?);
        let values = image.iter().try_fold(1usize, |all, size| all.checked_mul(*size))?;
        let mut lists = Vec::new();
        while let Some(length) = numbers.next() {
            let list: Vec<u64> = numbers.by_ref().take(usize::try_from(length).ok()?).collect();
            lists.push(Some(list).filter(|list| list.len() as u64 == length)?);
        }
        let mut lists = lists.into_iter();
        let scaling = lists.next()?;
        let scaling = if scaling.is_empty() { None } else { Some(Scaling::from_numbers(&scaling, values)?) };
        Some(Kept {
            image,
            is_float,
            classes,
            digest: format!("{digest:016x}"),
            scaling,
            shards: lists.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any bytes with the right digest behind them.
    fn checked(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(blake3::hash(&bytes).as_bytes());
        bytes
    }

    proptest! {
        #[test]
        fn what_was_kept_comes_back(
            width in 1usize..5, classes in 2usize..9, digest: u64, scaled: bool,
            shards in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..9), 0..4),
        ) {
            let scaling = scaled.then(|| Scaling::from_numbers(&vec![7; 2 * width], width).unwrap());
            let digest = format!("{digest:016x}");
            let kept = Kept { image: [1, 1, width], is_float: scaled, classes, digest, scaling, shards };
            let bytes = kept.encode();
            let mut damaged = bytes.clone();
            damaged[3] ^= 1;
            prop_assert_eq!(Kept::decode(&damaged), None);
            prop_assert_eq!(Kept::decode(&bytes), Some(kept));
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..200), numbers in prop::collection::vec(0u64..9, 0..30),
        ) {
            prop_assert_eq!(Kept::decode(&bytes), None);
            let _ = Kept::decode(&checked(bytes));
            let numbers = [&[FORMAT][..], &numbers].concat();
            let _ = Kept::decode(&checked(numbers.iter().flat_map(|number| number.to_le_bytes()).collect()));
        }
    }
}
