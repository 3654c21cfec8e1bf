//! IDX, the format of MNIST and Fashion-MNIST: two zero bytes, a type (8: unsigned byte), the number of
//! dimensions, each dimension as a big-endian 32-bit number, then the values.
//! Source: <http://yann.lecun.com/exdb/mnist/>.

use bellwether_core::InputError;

use super::Batch;
use super::shard::{Each, Format, Opened, Shard, Values};
use super::source::Source;

/// Pairs of files: images, and their labels.
pub(super) struct Idx;

/// Bytes before the values of a file with this many dimensions.
const fn header_bytes(dimensions: u64) -> u64 {
    4 + 4 * dimensions
}

impl Format for Idx {
    fn open(&mut self, sources: Vec<Source>, each: &mut Each<'_>) -> Result<Opened, InputError> {
        let shard = IdxShard::new(sources)?;
        let mut most = 0;
        shard.visit(&mut |values, class| {
            most = most.max(class as usize);
            each(values, class)
        })?;
        let image = [1, shard.height, shard.width];
        Ok(Opened { shard: Box::new(shard), image, is_float: false, classes: (most + 1).max(2) })
    }

    fn restore(&mut self, sources: Vec<Source>, numbers: &[u64]) -> Option<Box<dyn Shard>> {
        let shard = IdxShard::new(sources).ok()?;
        (shard.numbers() == numbers).then(|| Box::new(shard) as Box<dyn Shard>)
    }
}

/// Images with their labels.
struct IdxShard {
    images: Source,
    labels: Source,
    count: u64,
    height: usize,
    width: usize,
}

impl IdxShard {
    fn new(sources: Vec<Source>) -> Result<IdxShard, InputError> {
        let [images, labels] =
            <[Source; 2]>::try_from(sources).unwrap_or_else(|_| panic!("a shard of two files"));
        let [count, height, width] = sizes::<3>(&images, "images")?;
        let [label_count] = sizes::<1>(&labels, "labels")?;
        if count != label_count {
            let what = format!("holds {label_count} labels for the {count} images of {}", images.name());
            return Err(InputError::new(labels.name(), what)
                .hint("pair the images with the labels of the same part (train or t10k)"));
        }
        Ok(IdxShard { images, labels, count: count as u64, height, width })
    }
}

impl Shard for IdxShard {
    fn rows(&self) -> u64 {
        self.count
    }

    fn visit(&self, each: &mut Each<'_>) -> Result<(), InputError> {
        /// Labels that are read at once.
        const LABELS: u64 = 1 << 16;
        let mut labels = Vec::new();
        self.images.records(header_bytes(3), self.height * self.width, self.count, |row, pixels| {
            if row % LABELS == 0 {
                labels = self.labels.some_at(header_bytes(1) + row, LABELS as usize)?;
            }
            each(Values::Bytes(pixels), u32::from(labels[(row % LABELS) as usize]))
        })
    }

    fn append(&self, row: u64, batch: &mut Batch) -> Result<(), InputError> {
        let size = self.height * self.width;
        batch.append_bytes(&self.images, header_bytes(3) + row * size as u64, size)?;
        let mut label = [0];
        self.labels.read_exact_at(header_bytes(1) + row, &mut label)?;
        batch.targets.push(u32::from(label[0]));
        Ok(())
    }

    fn numbers(&self) -> Vec<u64> {
        vec![self.count, self.height as u64, self.width as u64]
    }
}

/// The sizes of an IDX file of `D` dimensions, which has exactly the values that they ask for.
fn sizes<const D: usize>(source: &Source, holds: &str) -> Result<[usize; D], InputError> {
    let name = source.name();
    let bytes = source.some_at(0, header_bytes(D as u64) as usize)?;
    let magic = [0, 0, 8, D as u8];
    if bytes.get(..4) != Some(magic.as_slice()) {
        return Err(InputError::new(
            name,
            format!("is not an IDX{D} file of {holds}: it does not start with 00 00 08 {D:02x}"),
        )
        .hint("check that images and labels are not swapped"));
    }
    let (fields, []) = bytes[4..].as_chunks::<4>() else {
        return Err(InputError::new(name, "ends within its header"));
    };
    let Ok(sizes) = <[[u8; 4]; D]>::try_from(fields) else {
        return Err(InputError::new(name, "ends within its header"));
    };
    let sizes = sizes.map(|size| u32::from_be_bytes(size) as usize);
    let values = source.len() - header_bytes(D as u64);
    // D is at most 3, so that the product of 32-bit numbers fits 128 bits.
    let claimed: u128 = sizes.iter().map(|size| *size as u128).product();
    if claimed == 0 {
        return Err(InputError::new(name, format!("holds no {holds}")));
    }
    if claimed != u128::from(values) {
        return Err(InputError::new(name, format!("claims {claimed} bytes of {holds} but holds {values}"))
            .hint("the file is cut short or damaged; fetch it again"));
    }
    Ok(sizes)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::table::{Features, Table};
    use super::*;

    fn decode(images: (&str, &[u8]), labels: (&str, &[u8])) -> Result<Table, InputError> {
        let sources = [images, labels].map(|(name, bytes)| Source::memory(name, bytes.to_vec()));
        Table::read(&mut Idx, sources.into())
    }

    /// A valid pair of files with `count` images of `height`×`width`.
    pub(in crate::data) fn files(count: usize, height: usize, width: usize) -> (Vec<u8>, Vec<u8>) {
        let size = |number: usize| (number as u32).to_be_bytes();
        let mut images = vec![0, 0, 8, 3];
        [count, height, width].iter().for_each(|number| images.extend(size(*number)));
        images.extend((0..count * height * width).map(|place| (place * 7) as u8));
        let mut labels = vec![0, 0, 8, 1];
        labels.extend(size(count));
        labels.extend((0..count).map(|place| (place % 10) as u8));
        (images, labels)
    }

    fn message(images: &[u8], labels: &[u8]) -> String {
        decode(("images", images), ("labels", labels)).unwrap_err().to_string()
    }

    #[test]
    fn a_valid_pair_decodes() {
        let (images, labels) = files(20, 4, 3);
        let table = decode(("images", &images), ("labels", &labels)).unwrap();
        assert_eq!((table.image, table.classes, table.labels[13]), ([1, 4, 3], 10, 3));
        let mut batch = crate::data::Batch::default();
        table.append(1, &mut batch);
        assert_eq!(batch.values[0], (12.0 * 7.0) / 255.0);
    }

    #[test]
    fn faults_are_named() {
        let (images, labels) = files(20, 4, 3);
        assert!(
            message(&labels, &images)
                .contains("is not an IDX3 file of images: it does not start with 00 00 08 03")
        );
        assert!(
            message(&images[..images.len() - 1], &labels)
                .contains("claims 240 bytes of images but holds 239")
        );
        assert!(message(&images[..9], &labels).contains("ends within its header"));
        assert!(message(&images, &files(19, 4, 3).1).contains("19 labels for the 20 images of images"));
        let mut huge = images.clone();
        huge[4..16].fill(0xff);
        assert!(message(&huge, &labels).contains("claims 79228162458924105385300197375 bytes"));
        let mut empty = images[..16].to_vec();
        empty[8..12].fill(0);
        empty[4..8].fill(0xff);
        assert!(message(&empty, &labels).contains("holds no images"));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(
            images in prop::collection::vec(any::<u8>(), 0..64),
            labels in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = decode(("images", &images), ("labels", &labels));
        }

        #[test]
        fn mutated_files_decode_or_are_refused(
            place in any::<prop::sample::Index>(), value in any::<u8>(), cut in 0usize..40, labels_too in any::<bool>(),
        ) {
            let (mut images, mut labels) = files(6, 2, 3);
            let target = if labels_too { &mut labels } else { &mut images };
            let place = place.index(target.len());
            target[place] = value;
            target.truncate(target.len().saturating_sub(cut));
            if let Ok(table) = decode(("images", &images), ("labels", &labels)) {
                let Features::Bytes(pixels) = &table.features else { panic!("IDX holds bytes") };
                prop_assert_eq!(pixels.len(), table.labels.len() * table.image.iter().product::<usize>());
                prop_assert!(table.labels.iter().all(|label| (*label as usize) < table.classes));
            }
        }
    }
}
