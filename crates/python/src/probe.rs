//! Fixed weights, and the digest of gradients at them: where a framework computes other bits, the digest is another.

use bellwether_runtime::order::mix;
use bellwether_runtime::workload::{Layout, Tensor};

/// Writes weights that depend on nothing but the layout and `seed`, of a size at which gradients neither vanish nor
/// grow beyond bounds.
///
/// Matrices and kernels are drawn with the variance that keeps activations at one size; vectors, which are scales and
/// biases, lie around 1, and so does the model's other state. A model is trained from its own weights, never from
/// these.
pub(crate) fn weights(layout: &Layout, seed: u64, parameters: &mut [f32], state: &mut [f32]) {
    state.fill(1.0);
    let mut rest = parameters;
    for (number, tensor) in layout.parameters.iter().enumerate() {
        let (values, after) = rest.split_at_mut(tensor.len());
        let key = mix(mix(seed, 0x7062), number as u64);
        let (middle, reach) = spread(tensor);
        for (place, value) in values.iter_mut().enumerate() {
            // 24 bits: every one of these numbers is exact in an `f32`.
            let unit = (mix(key, place as u64) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
            *value = middle + reach * unit;
        }
        rest = after;
    }
}

/// The middle of a tensor's values, and how far they reach from it.
fn spread(tensor: &Tensor) -> (f32, f32) {
    match *tensor.shape.as_slice() {
        [] | [_] => (1.0, 0.25),
        [first, .., last] => {
            // Frameworks name outputs first or last; the smaller number of inputs is the safer guess.
            let inputs = tensor.len() / first.max(last).max(1);
            (0.0, (3.0 / inputs.max(1) as f32).sqrt())
        }
    }
}

/// The first tensor in which two vectors of a layout differ, by their bits.
pub(crate) fn first_difference<'l>(tensors: &'l [Tensor], a: &[f32], b: &[f32]) -> Option<&'l str> {
    let mut begin = 0;
    tensors.iter().find_map(|tensor| {
        let range = begin..begin + tensor.len();
        begin = range.end;
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        (bits(&a[range.clone()]) != bits(&b[range])).then_some(tensor.name.as_str())
    })
}

/// Digest of vectors, by their bits.
pub(crate) fn digest(vectors: &[&[f32]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for vector in vectors {
        hasher.update(bytemuck::cast_slice(vector));
    }
    hasher.finalize().to_hex()[..16].to_owned()
}
