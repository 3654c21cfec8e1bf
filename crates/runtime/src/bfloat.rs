//! Gradient sums in bfloat16: rounding, and the bytes in which rounded values travel.
//!
//! A job with `[exchange] precision = "bf16"` rounds the leading values of every vector that it sums, those of the
//! parameters, at every node of the canonical tree (the module `tree`). In memory a value stays an `f32`, whose lower
//! half is zero, so that sums need no other code; only connections carry two bytes for it. The values behind them, a
//! model's state, are not rounded and travel as they are.

/// Bytes of a rounded value on a connection.
const HALF_BYTES: usize = 2;

/// Bytes of a value that is not rounded.
const WHOLE_BYTES: usize = 4;

/// Values that are unpacked at once: the largest block whose copy stays in registers and the nearest cache.
const BLOCK: usize = 256;

/// The lower half of an `f32`, which no rounded value has.
const LOWER: u32 = 0xffff;

/// The bfloat16 number nearest to a value; of two that are equally near the one whose last bit is zero. What is too
/// large becomes infinite, and a NaN becomes a quiet NaN.
///
/// ```
/// use bellwether_runtime::bfloat::round;
/// assert_eq!(round(1.0 + 1.0 / 128.0), 1.0 + 1.0 / 128.0);
/// assert_eq!(round(1.0 + 1.0 / 256.0), 1.0);
/// assert_eq!(round(1.0 + 3.0 / 256.0), 1.0 + 1.0 / 64.0);
/// assert_eq!(round(f32::MAX), f32::INFINITY);
/// ```
#[inline]
pub fn round(value: f32) -> f32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(LOWER / 2 + ((bits >> 16) & 1));
    // A carry would make a NaN a zero, and cutting off its lower half an infinity.
    let rounded = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
    f32::from_bits(rounded & !LOWER)
}

/// Rounds all values.
pub fn round_all(values: &mut [f32]) {
    for value in values {
        *value = round(*value);
    }
}

/// Whether all values are rounded.
pub(crate) fn are_rounded(values: &[f32]) -> bool {
    values.iter().fold(0, |lost, value| lost | value.to_bits()) & LOWER == 0
}

/// `left[i] = left[i] + right[i]`, of which the first `halves` are rounded.
///
/// # Panics
///
/// If the lengths differ, or are below `halves`.
#[inline]
pub(crate) fn add_assign(left: &mut [f32], right: &[f32], halves: usize) {
    assert_eq!(left.len(), right.len(), "partial sums of one vector have one length");
    let (rounded, left) = left.split_at_mut(halves);
    let (right_of_rounded, right) = right.split_at(halves);
    for (l, r) in rounded.iter_mut().zip(right_of_rounded) {
        *l = round(*l + *r);
    }
    for (l, r) in left.iter_mut().zip(right) {
        *l += *r;
    }
}

/// Bytes in which `values` values travel, the first `halves` of which are rounded.
pub(crate) fn bytes(values: usize, halves: usize) -> usize {
    HALF_BYTES * halves + WHOLE_BYTES * (values - halves)
}

/// Appends the bytes in which these values travel, the first `halves` of which are rounded.
///
/// # Panics
///
/// If one of them is not: the bits of the other side would be others.
pub(crate) fn pack(values: &[f32], halves: usize, bytes: &mut Vec<u8>) {
    let (rounded, whole) = values.split_at(halves);
    let start = bytes.len();
    bytes.resize(start + HALF_BYTES * halves, 0);
    let (targets, []) = bytes[start..].as_chunks_mut::<HALF_BYTES>() else {
        unreachable!("the bytes were added two by two");
    };
    assert!(are_rounded(rounded), "a sum that is to travel as bfloat16 was not rounded");
    for (target, value) in targets.iter_mut().zip(rounded) {
        *target = ((value.to_bits() >> 16) as u16).to_le_bytes();
    }
    bytes.extend_from_slice(bytemuck::cast_slice(whole));
}

/// Makes values of the bytes that [`pack`] made of `vectors` vectors, which lie at the beginning of `values`: those of
/// one after the other, each with as many values, the first `halves` of which are rounded.
pub(crate) fn unpack(values: &mut [f32], vectors: usize, halves: usize) {
    let length = values.len() / vectors.max(1);
    let packed = bytes(length, halves);
    // A vector is never before its bytes, so the last one goes first.
    for vector in (0..vectors).rev() {
        let all: &mut [u8] = bytemuck::cast_slice_mut(values);
        let (from, to) = (vector * packed, vector * WHOLE_BYTES * length);
        all.copy_within(from + HALF_BYTES * halves..from + packed, to + WHOLE_BYTES * halves);
        let mut block = [[0; HALF_BYTES]; BLOCK];
        for start in (0..halves).step_by(BLOCK).rev() {
            let count = BLOCK.min(halves - start);
            let all: &mut [u8] = bytemuck::cast_slice_mut(values);
            let here = from + HALF_BYTES * start;
            let halves = &mut block[..count];
            halves.as_flattened_mut().copy_from_slice(&all[here..here + HALF_BYTES * count]);
            let place = vector * length + start;
            for (value, half) in values[place..place + count].iter_mut().zip(halves) {
                *value = f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: of the two neighbours that are bfloat16 numbers the nearer one, in exact arithmetic.
    pub(crate) fn by_definition(value: f32) -> f32 {
        if !value.is_finite() {
            return value;
        }
        let below = f32::from_bits(value.to_bits() & !LOWER);
        // Beyond the largest number, the next one would be 2^128: an f64 holds it.
        let above = f32::from_bits((value.to_bits() & !LOWER) + 0x1_0000);
        let above_exact =
            if above.is_finite() { f64::from(above) } else { 2f64.powi(128).copysign(value.into()) };
        let to_below = (f64::from(value) - f64::from(below)).abs();
        let to_above = (above_exact - f64::from(value)).abs();
        let is_even = (below.to_bits() >> 16).is_multiple_of(2);
        if to_below < to_above || (to_below == to_above && is_even) { below } else { above }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_ties_go_to_even() {
        // All upper halves, with the lower halves about which there could be doubt.
        for upper in 0..=u16::MAX {
            for lower in [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(upper) << 16 | lower);
                let rounded = round(value);
                if value.is_nan() {
                    assert!(
                        rounded.is_nan() && rounded.to_bits() & 0x0040_0000 != 0,
                        "{:x}",
                        value.to_bits()
                    );
                    assert_eq!(rounded.is_sign_negative(), value.is_sign_negative());
                } else {
                    assert_eq!(rounded.to_bits(), by_definition(value).to_bits(), "{:x}", value.to_bits());
                }
                assert_eq!(rounded.to_bits() & LOWER, 0);
                assert_eq!(round(rounded).to_bits(), rounded.to_bits());
            }
        }
    }

    #[test]
    #[should_panic(expected = "was not rounded")]
    fn what_is_not_rounded_does_not_travel() {
        pack(&[1.0, 1.0 + f32::EPSILON], 2, &mut Vec::new());
    }

    proptest! {
        #[test]
        fn what_travels_arrives(
            vectors in 1usize..4,
            halves in 0usize..700,
            whole in 0usize..40,
            seed in any::<u32>(),
        ) {
            let length = halves + whole;
            let bits = |i: usize| (i as u32).wrapping_add(seed).wrapping_mul(0x9e37_79b9) ^ seed.rotate_left(7);
            let mut sent: Vec<f32> = (0..vectors * length).map(|i| f32::from_bits(bits(i))).collect();
            let mut packed = Vec::new();
            for vector in sent.chunks_mut(length.max(1)) {
                round_all(&mut vector[..halves]);
                pack(vector, halves, &mut packed);
            }
            prop_assert_eq!(packed.len(), vectors * bytes(length, halves));
            let mut came = vec![f32::NAN; vectors * length];
            bytemuck::cast_slice_mut::<f32, u8>(&mut came)[..packed.len()].copy_from_slice(&packed);
            unpack(&mut came, vectors, halves);
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&came), bits(&sent));
        }
    }
}
