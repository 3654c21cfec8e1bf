//! What every format of data files is to a data set: rows of values with a class, from one shard after the other.

use bellwether_core::InputError;

use super::Batch;
use super::source::Source;

/// Values of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Values<'a> {
    /// Bytes 0…255, read as 0…1.
    Bytes(&'a [u8]),
    /// Numbers as they are.
    Floats(&'a [f32]),
}

/// Is told of a sample and its class.
pub(super) type Each<'a> = dyn FnMut(Values<'_>, u32) -> Result<(), InputError> + 'a;

/// A file with samples, or files that belong together, read by index.
pub(super) trait Shard: Send + Sync {
    /// Its samples.
    fn rows(&self) -> u64;

    /// Visits all samples in order.
    fn visit(&self, each: &mut Each<'_>) -> Result<(), InputError>;

    /// Appends one sample to a batch.
    fn append(&self, row: u64, batch: &mut Batch) -> Result<(), InputError>;

    /// Numbers from which [`Format::restore`] makes it again.
    fn numbers(&self) -> Vec<u64>;
}

/// A shard whose samples were all looked at.
pub(super) struct Opened {
    /// Reads it.
    pub(super) shard: Box<dyn Shard>,
    /// Channels, height and width of a sample.
    pub(super) image: [usize; 3],
    /// Whether its values are numbers, not bytes.
    pub(super) is_float: bool,
    /// The number of classes that its labels ask for.
    pub(super) classes: usize,
}

/// How bytes become samples.
pub(super) trait Format {
    /// Reads all samples of one shard for the first time, and tells `each` of them.
    ///
    /// - `sources`: the files that make up the shard.
    fn open(&mut self, sources: Vec<Source>, each: &mut Each<'_>) -> Result<Opened, InputError>;

    /// A shard that was opened before, from its [`numbers`](Shard::numbers); nothing if they are not such numbers.
    fn restore(&mut self, sources: Vec<Source>, numbers: &[u64]) -> Option<Box<dyn Shard>>;
}

/// Shards that follow each other.
#[derive(Default)]
pub(super) struct Shards {
    shards: Vec<Box<dyn Shard>>,
    /// First row of each, and the number of all.
    starts: Vec<u64>,
}

impl Shards {
    /// Adds a shard at the end.
    pub(super) fn push(&mut self, shard: Box<dyn Shard>) {
        let rows = self.rows() + shard.rows();
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.starts.push(rows);
        self.shards.push(shard);
    }

    /// Samples of all shards.
    pub(super) fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The shards in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &dyn Shard> {
        self.shards.iter().map(AsRef::as_ref)
    }

    /// Visits all samples in order.
    pub(super) fn visit(&self, each: &mut Each<'_>) -> Result<(), InputError> {
        self.iter().try_for_each(|shard| shard.visit(each))
    }

    /// Appends one sample to a batch.
    pub(super) fn append(&self, row: u64, batch: &mut Batch) -> Result<(), InputError> {
        let shard = self.starts.partition_point(|start| *start <= row) - 1;
        self.shards[shard].append(row - self.starts[shard], batch)
    }
}

/// Places of samples in a file where they have different lengths: where some of them begin, so that a few kilobytes are
/// read to find any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Marks {
    /// Number and offset of every sample that begins a stretch.
    marks: Vec<[u64; 2]>,
    rows: u64,
    /// Where the last sample ends.
    end: u64,
}

/// Least length of a stretch: files are read by such pages anyway.
const STRETCH_BYTES: u64 = 4096;

impl Marks {
    /// The next sample begins here.
    pub(super) fn note(&mut self, offset: u64) {
        if self.marks.last().is_none_or(|[_, before]| offset >= before + STRETCH_BYTES) {
            self.marks.push([self.rows, offset]);
        }
        self.rows += 1;
    }

    /// The last sample ended here.
    pub(super) fn finish(&mut self, end: u64) {
        self.end = end;
    }

    /// Number of samples.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The stretch with sample `row`: how many samples come before it there, where it begins, and its length in bytes.
    pub(super) fn stretch(&self, row: u64) -> (u64, u64, usize) {
        let next = self.marks.partition_point(|[number, _]| *number <= row);
        let [first, begin] = self.marks[next - 1];
        let end = self.marks.get(next).map_or(self.end, |[_, offset]| *offset);
        (row - first, begin, (end - begin) as usize)
    }

    /// It as numbers.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let mut numbers = vec![self.rows, self.end];
        numbers.extend(self.marks.iter().flatten());
        numbers
    }

    /// It from its numbers, if they make sense for a file of this length.
    pub(super) fn from_numbers(numbers: &[u64], file_bytes: u64) -> Option<Marks> {
        let (&[rows, end], rest) = numbers.split_first_chunk()?;
        let (marks, []) = rest.as_chunks::<2>() else { return None };
        let rise = marks.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1] < pair[1][1]);
        let begin = *marks.first()?;
        let last = *marks.last()?;
        let fits = begin[0] == 0 && last[0] < rows && last[1] < end && end <= file_bytes;
        (rise && fits).then(|| Marks { marks: marks.to_vec(), rows, end })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_sample_is_in_its_stretch(lengths in prop::collection::vec(1u64..9000, 1..60)) {
            let (mut marks, mut begins, mut offset) = (Marks::default(), Vec::new(), 0);
            for length in &lengths {
                marks.note(offset);
                begins.push(offset);
                offset += length;
            }
            marks.finish(offset);
            for (row, begin) in begins.iter().enumerate() {
                let (before, from, bytes) = marks.stretch(row as u64);
                prop_assert_eq!(begins[row - before as usize], from);
                prop_assert!(from + bytes as u64 >= begin + lengths[row]);
                prop_assert!(bytes as u64 <= STRETCH_BYTES + 2 * 9000);
            }
            prop_assert_eq!(Marks::from_numbers(&marks.numbers(), offset), Some(marks.clone()));
            prop_assert_eq!(Marks::from_numbers(&marks.numbers(), offset - 1), None);
        }

        #[test]
        fn any_numbers_are_marks_or_refused(numbers in prop::collection::vec(0u64..20, 0..9)) {
            if let Some(marks) = Marks::from_numbers(&numbers, 15) {
                for row in 0..marks.rows() {
                    let (_, begin, bytes) = marks.stretch(row);
                    prop_assert!(begin + bytes as u64 <= 15);
                }
            }
        }
    }
}
