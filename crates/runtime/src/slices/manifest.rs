//! The manifest of a checkpoint in slices: what they are of, where each is, and a seal over all of that.

use serde::{Deserialize, Serialize};

use crate::noise::Noise;
use crate::state::hex;
use crate::workload::{Layout, Tensor};

/// What this release writes.
pub(super) const FORMAT: &str = "bellwether slices 1";

/// How values are written.
pub(super) const DTYPE: &str = "f32-le";

/// Longer manifests are not read.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// More slices no run writes.
pub(crate) const SLICES_MAX: usize = 1 << 16;

/// The name of the object that makes a step count.
pub(super) const NAME: &str = "manifest.json";

/// The folder of a step.
pub fn folder_of(step: u64) -> String {
    format!("step-{step:012}")
}

/// A checkpoint in slices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `bellwether slices 1`, or what another release writes.
    pub format: String,
    /// Hash of the job's identity.
    pub identity: String,
    /// The run's random name.
    pub run: String,
    /// Steps that were applied.
    pub step: u64,
    /// The kernel class that it was trained with.
    pub kernel_class: String,
    /// The bits of how noisy the gradient was: its signal, and its noise.
    pub noise: [u64; 2],
    /// How values are written: `f32-le`.
    pub dtype: String,
    /// Parameters, in their order in the vector.
    pub parameters: Vec<TensorEntry>,
    /// Optimizer slots that follow them, each as long.
    pub slots: Vec<String>,
    /// The model's state, which comes last.
    pub state: Vec<TensorEntry>,
    /// The slices in order; together they are the vector.
    pub slices: Vec<Slice>,
    /// BLAKE3 over the digests of all slices: the content's.
    pub digest: String,
    /// BLAKE3 over this manifest with an empty seal.
    pub seal: String,
}

/// A tensor's name and shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A slice that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Which.
    pub index: u64,
    /// Where it begins in the vector, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its bytes, in hexadecimal digits.
    pub digest: String,
}

impl Slice {
    /// Its name among `count`, without the folder.
    pub fn name(&self, count: usize) -> String {
        let digest = self.digest.get(..16).unwrap_or(&self.digest);
        format!("slice-{:05}-of-{count:05}.{digest}", self.index)
    }
}

fn entries(tensors: &[Tensor]) -> Vec<TensorEntry> {
    let entry = |tensor: &Tensor| TensorEntry { name: tensor.name.clone(), shape: tensor.shape.clone() };
    tensors.iter().map(entry).collect()
}

/// Elements of all tensors, if that is a number that this machine can hold.
fn elements(tensors: &[TensorEntry]) -> Option<u64> {
    tensors.iter().try_fold(0u64, |sum, tensor| {
        let length = tensor.shape.iter().try_fold(1u64, |product, edge| product.checked_mul(*edge as u64))?;
        sum.checked_add(length)
    })
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What a manifest is of, beside its slices.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// Hash of the job's identity.
    pub identity: &'a str,
    /// The run's random name.
    pub run: &'a str,
    /// Steps that were applied.
    pub step: u64,
    /// The kernel class.
    pub kernel_class: &'a str,
    /// How noisy the gradient was.
    pub noise: Noise,
    /// Names and shapes.
    pub layout: &'a Layout,
    /// Optimizer slots.
    pub slots: &'a [String],
}

impl Manifest {
    /// Of these slices, in order.
    pub fn new(subject: &Subject<'_>, slices: Vec<Slice>) -> Manifest {
        let mut manifest = Manifest {
            format: FORMAT.into(),
            identity: subject.identity.into(),
            run: subject.run.into(),
            step: subject.step,
            kernel_class: subject.kernel_class.into(),
            noise: [subject.noise.signal.to_bits(), subject.noise.noise.to_bits()],
            dtype: DTYPE.into(),
            parameters: entries(&subject.layout.parameters),
            slots: subject.slots.to_vec(),
            state: entries(&subject.layout.state),
            digest: content(&slices),
            slices,
            seal: String::new(),
        };
        manifest.seal = manifest.sealed();
        manifest
    }

    /// As it is written.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest is plain data")
    }

    /// Reads and checks one: its seal, and that its slices are the whole vector, each named once.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let manifest: Manifest =
            serde_json::from_slice(bytes).map_err(|error| format!("it is not a manifest: {error}"))?;
        if manifest.format != FORMAT || manifest.dtype != DTYPE {
            let Manifest { format, dtype, .. } = &manifest;
            return Err(format!("its format is `{format}` with `{dtype}`, which this release does not know"));
        }
        if manifest.sealed() != manifest.seal {
            return Err("it does not have the seal it was written with".into());
        }
        let mut end = 0u64;
        for (index, slice) in (0u64..).zip(&manifest.slices) {
            let follows = slice.index == index && slice.offset == end && slice.bytes.is_multiple_of(4);
            end = end.checked_add(slice.bytes).ok_or("its slices are too long")?;
            if !follows || !is_digest(&slice.digest) {
                return Err(format!("its slice {index} makes no sense"));
            }
        }
        if manifest.bytes() != Some(end) || manifest.slices.is_empty() || manifest.slices.len() > SLICES_MAX {
            return Err("its slices do not make up the state".into());
        }
        if content(&manifest.slices) != manifest.digest {
            return Err("its digest is not that of its slices".into());
        }
        Ok(manifest)
    }

    /// The seal that belongs to it.
    fn sealed(&self) -> String {
        let unsealed = Manifest { seal: String::new(), ..self.clone() };
        hex(blake3::hash(&unsealed.encode()).as_bytes())
    }

    /// Bytes of the state, by its layout.
    pub fn bytes(&self) -> Option<u64> {
        let parameters = elements(&self.parameters)?;
        let vectors = (self.slots.len() as u64).checked_add(1)?;
        parameters.checked_mul(vectors)?.checked_add(elements(&self.state)?)?.checked_mul(4)
    }

    /// How noisy the gradient was; what is not a number counts for nothing.
    pub fn noise(&self) -> Noise {
        let number = |bits: u64| Some(f64::from_bits(bits)).filter(|value| value.is_finite()).unwrap_or(0.0);
        Noise { signal: number(self.noise[0]), noise: number(self.noise[1]) }
    }

    /// How the layout or the slots differ from those of a job's model.
    pub fn difference(&self, layout: &Layout, slots: &[impl AsRef<str>]) -> Option<String> {
        let slots: Vec<&str> = slots.iter().map(AsRef::as_ref).collect();
        for (what, ours, its) in [
            ("parameters", entries(&layout.parameters), &self.parameters),
            ("state", entries(&layout.state), &self.state),
        ] {
            if ours != *its {
                let first = ours.iter().zip(its).find(|(ours, its)| ours != its);
                return Some(match first {
                    Some((ours, its)) => format!(
                        "`{}` of its {what} has shape {:?}, where the job's model has `{}` with {:?}",
                        its.name, its.shape, ours.name, ours.shape
                    ),
                    None => {
                        format!("it has {} tensors of {what}, the job's model has {}", its.len(), ours.len())
                    }
                });
            }
        }
        (self.slots != slots)
            .then(|| format!("it has the optimizer slots {:?}, the job's has {slots:?}", self.slots))
    }
}

/// The digest of the content.
fn content(slices: &[Slice]) -> String {
    let mut hasher = blake3::Hasher::new();
    for slice in slices {
        hasher.update(slice.digest.as_bytes());
    }
    hex(hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example(count: u64, parameters: usize) -> Manifest {
        let layout = Layout {
            parameters: vec![Tensor { name: "w".into(), shape: vec![parameters] }],
            state: vec![Tensor { name: "s".into(), shape: vec![2, 3] }],
        };
        let slots = ["momentum".to_string()];
        let length = 2 * parameters as u64 + 6;
        let slices = (0..count).map(|index| {
            let range = super::super::cut::range(length, index, count);
            let digest = hex(blake3::hash(&index.to_le_bytes()).as_bytes());
            Slice { index, offset: 4 * range.start, bytes: 4 * (range.end - range.start), digest }
        });
        let subject = Subject {
            identity: "i",
            run: "r",
            step: 123,
            kernel_class: "k",
            noise: Noise { signal: 0.1, noise: 2.0 },
            layout: &layout,
            slots: &slots,
        };
        Manifest::new(&subject, slices.collect())
    }

    #[test]
    fn a_layout_that_differs_is_named() {
        let manifest = example(2, 5);
        let layout = |shape: Vec<usize>| Layout {
            parameters: vec![Tensor { name: "w".into(), shape }],
            state: vec![Tensor { name: "s".into(), shape: vec![2, 3] }],
        };
        assert_eq!(manifest.difference(&layout(vec![5]), &["momentum"]), None);
        let difference = manifest.difference(&layout(vec![6]), &["momentum"]).expect("it differs");
        assert!(difference.contains("[5]") && difference.contains("[6]"), "{difference}");
        assert!(manifest.difference(&layout(vec![5]), &["first", "second"]).is_some());
    }

    #[test]
    fn slices_must_make_up_the_state() {
        let whole = example(3, 7);
        let resealed = |change: &dyn Fn(&mut Manifest)| {
            let mut manifest = whole.clone();
            change(&mut manifest);
            manifest.digest = content(&manifest.slices);
            manifest.seal = manifest.sealed();
            Manifest::decode(&manifest.encode())
        };
        assert_eq!(resealed(&|_| {}), Ok(whole.clone()));
        assert!(resealed(&|manifest| drop(manifest.slices.pop())).is_err());
        assert!(resealed(&|manifest| manifest.slices.swap(0, 1)).is_err());
        assert!(resealed(&|manifest| manifest.slices[1].bytes = u64::MAX - 3).is_err());
        assert!(resealed(&|manifest| manifest.slices[1].digest = "../../x".into()).is_err());
        assert!(resealed(&|manifest| manifest.parameters[0].shape = vec![usize::MAX, 2]).is_err());
        assert!(resealed(&|manifest| manifest.slots.push("more".into())).is_err());
        assert!(resealed(&|manifest| manifest.slices.clear()).is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(count in 1..20u64, parameters in 0..50usize) {
            let manifest = example(count, parameters);
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
        }

        #[test]
        fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8u32) {
            let whole = example(2, 5);
            let mut bytes = whole.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            // What means the same counts as whole.
            prop_assert!(Manifest::decode(&bytes).is_ok_and(|read| read == whole) == (serde_json::from_slice::<Manifest>(&bytes).is_ok_and(|read| read == whole)));
        }

        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Manifest::decode(&bytes).is_err());
        }
    }
}
