//! IDX, the format of MNIST and Fashion-MNIST: two zero bytes, a type (8: unsigned byte), the number of
//! dimensions, each dimension as a big-endian 32-bit number, then the values.
//! Source: <http://yann.lecun.com/exdb/mnist/>.

use bellwether_core::InputError;

use super::table::{Features, Table};

/// Decodes images with their labels, each given as (name, bytes).
pub(super) fn decode(images: (&str, &[u8]), labels: (&str, &[u8])) -> Result<Table, InputError> {
    let ([count, height, width], pixels) = array::<3>(images.0, images.1, "images")?;
    let ([label_count], classes) = array::<1>(labels.0, labels.1, "labels")?;
    if count != label_count {
        return Err(InputError::new(
            labels.0,
            format!("holds {label_count} labels for the {count} images of {}", images.0),
        )
        .hint("pair the images with the labels of the same part (train or t10k)"));
    }
    let most = classes.iter().copied().max().unwrap_or(0);
    Ok(Table {
        features: Features::Bytes(pixels.to_vec()),
        labels: classes.iter().map(|class| u32::from(*class)).collect(),
        image: [1, height, width],
        classes: (usize::from(most) + 1).max(2),
    })
}

/// The sizes and the values of an IDX file of `D` dimensions.
fn array<'a, const D: usize>(
    name: &str,
    bytes: &'a [u8],
    holds: &str,
) -> Result<([usize; D], &'a [u8]), InputError> {
    let magic = [0, 0, 8, D as u8];
    let header_bytes = 4 + 4 * D;
    if bytes.get(..4) != Some(magic.as_slice()) {
        return Err(InputError::new(
            name,
            format!("is not an IDX{D} file of {holds}: it does not start with 00 00 08 {D:02x}"),
        )
        .hint("check that images and labels are not swapped"));
    }
    let Some(header) = bytes.get(4..header_bytes) else {
        return Err(InputError::new(name, "ends within its header"));
    };
    let mut sizes = [0; D];
    for (size, field) in sizes.iter_mut().zip(header.chunks_exact(4)) {
        *size = field.iter().fold(0usize, |number, byte| number << 8 | usize::from(*byte));
    }
    let values = &bytes[header_bytes..];
    // D is at most 3, so that the product of 32-bit numbers fits 128 bits.
    let claimed: u128 = sizes.iter().map(|size| *size as u128).product();
    if claimed == 0 {
        return Err(InputError::new(name, format!("holds no {holds}")));
    }
    if claimed != values.len() as u128 {
        return Err(InputError::new(
            name,
            format!("claims {claimed} bytes of {holds} but holds {}", values.len()),
        )
        .hint("the file is cut short or damaged; fetch it again"));
    }
    Ok((sizes, values))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

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
