//! CIFAR-10 binary batches: records of one label byte and 3×32×32 pixel bytes, red, green, blue plane.
//! Source: <https://www.cs.toronto.edu/~kriz/cifar.html>.

use bellwether_core::InputError;

use super::Batch;
use super::csv::only;
use super::shard::{Each, Format, Opened, Shard, Values};
use super::source::Source;

const PIXELS: usize = 3 * 32 * 32;
const RECORD_BYTES: usize = 1 + PIXELS;
const CLASSES: u8 = 10;

/// Batch files.
pub(super) struct Cifar;

impl Format for Cifar {
    fn open(&mut self, sources: Vec<Source>, each: &mut Each<'_>) -> Result<Opened, InputError> {
        let shard = CifarShard::new(only(sources))?;
        shard.visit(each)?;
        let classes = usize::from(CLASSES);
        Ok(Opened { shard: Box::new(shard), image: [3, 32, 32], is_float: false, classes })
    }

    fn restore(&mut self, sources: Vec<Source>, numbers: &[u64]) -> Option<Box<dyn Shard>> {
        let shard = CifarShard::new(only(sources)).ok()?;
        (shard.numbers() == numbers).then(|| Box::new(shard) as Box<dyn Shard>)
    }
}

/// One batch file.
struct CifarShard {
    source: Source,
    count: u64,
}

impl CifarShard {
    fn new(source: Source) -> Result<CifarShard, InputError> {
        let bytes = source.len();
        if bytes == 0 || !bytes.is_multiple_of(RECORD_BYTES as u64) {
            let what =
                format!("is not a CIFAR-10 binary batch: {bytes} bytes are not a multiple of {RECORD_BYTES}");
            return Err(InputError::new(source.name(), what).hint(
                "use the files named data_batch_1.bin … of the \"binary version\", unpacked from the archive",
            ));
        }
        Ok(CifarShard { source, count: bytes / RECORD_BYTES as u64 })
    }
}

impl Shard for CifarShard {
    fn rows(&self) -> u64 {
        self.count
    }

    fn visit(&self, each: &mut Each<'_>) -> Result<(), InputError> {
        self.source.records(0, RECORD_BYTES, self.count, |index, record| {
            if record[0] >= CLASSES {
                let what = format!("image {index} has a label that is not 0…9");
                return Err(InputError::new(self.source.name(), what).hint("CIFAR-100 files are not read"));
            }
            each(Values::Bytes(&record[1..]), u32::from(record[0]))
        })
    }

    fn append(&self, row: u64, batch: &mut Batch) -> Result<(), InputError> {
        let begin = row * RECORD_BYTES as u64;
        let mut label = [0];
        self.source.read_exact_at(begin, &mut label)?;
        batch.append_bytes(&self.source, begin + 1, PIXELS)?;
        batch.targets.push(u32::from(label[0]));
        Ok(())
    }

    fn numbers(&self) -> Vec<u64> {
        vec![self.count]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::table::Table;
    use super::*;

    fn decode(name: &str, bytes: &[u8]) -> Result<Table, InputError> {
        Table::read(&mut Cifar, vec![Source::memory(name, bytes.to_vec())])
    }

    #[test]
    fn a_valid_batch_decodes_and_faults_are_named() {
        let mut bytes = vec![9; RECORD_BYTES * 3];
        let table = decode("batch", &bytes).unwrap();
        assert_eq!((table.labels.len(), table.image), (3, [3, 32, 32]));
        assert!(decode("batch", &bytes[1..]).unwrap_err().to_string().contains("multiple of 3073"));
        assert!(decode("batch", &[]).is_err());
        bytes[RECORD_BYTES] = 10;
        assert!(
            decode("batch", &bytes).unwrap_err().to_string().contains("image 1 has a label that is not 0")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(seed in any::<u64>(), len in 0usize..3 * RECORD_BYTES) {
            let stream = crate::random::Stream::new(seed, 0);
            let whole = len - len % RECORD_BYTES;
            for len in [len, whole] {
                // A quarter of the range, so that some records carry valid labels.
                let bytes: Vec<u8> = (0..len as u64).map(|place| (stream.bits(place) % 16) as u8).collect();
                if let Ok(table) = decode("fuzz", &bytes) {
                    prop_assert!(table.labels.iter().all(|label| *label < 10));
                }
            }
        }
    }
}
