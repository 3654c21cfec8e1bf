//! Expansion of gzip files, with a limit that a small malicious file cannot exceed.

use std::io::Read;

use bellwether_core::InputError;
use flate2::read::MultiGzDecoder;

/// Most bytes that a file may expand to.
const LIMIT_BYTES: u64 = 4 << 30;

/// Expands `bytes` when they start like a gzip file, and gives them back otherwise; `name` is the place in errors.
///
/// # Errors
///
/// Returns an error for a damaged file, or one that expands to more than 4 GiB.
pub fn expand(name: &str, bytes: Vec<u8>) -> Result<Vec<u8>, InputError> {
    if bytes.starts_with(&[0x1f, 0x8b]) { expand_within(name, &bytes, LIMIT_BYTES) } else { Ok(bytes) }
}

fn expand_within(name: &str, bytes: &[u8], limit_bytes: u64) -> Result<Vec<u8>, InputError> {
    let mut expanded = Vec::new();
    // One byte beyond the limit tells a file that is too long from one that just fits.
    MultiGzDecoder::new(bytes).take(limit_bytes.saturating_add(1)).read_to_end(&mut expanded).map_err(
        |error| {
            InputError::new(name, format!("is a damaged gzip file: {error}")).hint("fetch the file again")
        },
    )?;
    if expanded.len() as u64 > limit_bytes {
        return Err(InputError::new(name, format!("expands to more than {limit_bytes} bytes"))
            .hint("split the file or reduce it"));
    }
    Ok(expanded)
}

#[cfg(test)]
pub(in crate::data) mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    pub(in crate::data) fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit() {
        let bomb = compress(&vec![0; 1 << 20]);
        assert!(bomb.len() < 10_000);
        assert_eq!(expand_within("bomb", &bomb, 1 << 20).unwrap().len(), 1 << 20);
        let error = expand_within("bomb", &bomb, (1 << 20) - 1).unwrap_err();
        assert!(error.what.contains("expands to more"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_expand_or_are_refused(tail in prop::collection::vec(any::<u8>(), 0..300)) {
            let bytes = [&[0x1f, 0x8b][..], &tail].concat();
            if let Ok(expanded) = expand("fuzz", bytes) {
                prop_assert!(expanded.len() < 1 << 20);
            }
        }

        #[test]
        fn packed_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..8) {
            let packed = compress(&bytes);
            prop_assert_eq!(expand("ok", packed.clone()).unwrap(), bytes);
            prop_assert!(expand("cut", packed[..packed.len() - cut].to_vec()).is_err());
        }
    }
}
