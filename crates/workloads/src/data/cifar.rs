//! CIFAR-10 binary batches: records of one label byte and 3×32×32 pixel bytes, red, green, blue plane.
//! Source: <https://www.cs.toronto.edu/~kriz/cifar.html>.

use bellwether_core::InputError;

use super::table::{Features, Table};

const PIXELS: usize = 3 * 32 * 32;
const RECORD_BYTES: usize = 1 + PIXELS;
const CLASSES: u8 = 10;

/// Decodes one batch file.
pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<Table, InputError> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(RECORD_BYTES) {
        return Err(InputError::new(
            name,
            format!(
                "is not a CIFAR-10 binary batch: {} bytes are not a multiple of {RECORD_BYTES}",
                bytes.len()
            ),
        )
        .hint(
            "use the files named data_batch_1.bin … of the \"binary version\", unpacked from the archive",
        ));
    }
    let count = bytes.len() / RECORD_BYTES;
    let (mut pixels, mut labels) = (Vec::with_capacity(count * PIXELS), Vec::with_capacity(count));
    for (index, record) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
        let label = record[0];
        if label >= CLASSES {
            return Err(InputError::new(name, format!("image {index} has a label that is not 0…9"))
                .hint("CIFAR-100 files are not read"));
        }
        labels.push(u32::from(label));
        pixels.extend_from_slice(&record[1..]);
    }
    Ok(Table { features: Features::Bytes(pixels), labels, image: [3, 32, 32], classes: usize::from(CLASSES) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
