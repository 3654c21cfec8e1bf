//! The Sobol sequence: points that fill a cube more evenly than independent ones.
//!
//! ```text
//! x(n, d) = XOR of v(d, k) over the bits k that are 1 in n XOR (n >> 1)
//! v(d, k) = m(d, k) / 2^k;   m(d, k) = 2 a1 m(k-1) XOR 4 a2 m(k-2) XOR … XOR 2^s m(k-s) XOR m(k-s)
//! ```
//!
//! | symbol  | meaning                                                         |
//! |---------|-----------------------------------------------------------------|
//! | n       | number of the point, from 0                                     |
//! | d       | dimension, from 0                                               |
//! | s, a, m | degree and coefficients of a primitive polynomial, first numbers |
//!
//! Source: S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional projections, SIAM Journal on
//! Scientific Computing 30 (2008): the first 21 dimensions of their table `new-joe-kuo-6.21201`, which they give away
//! under the 3-clause BSD licence. Antonov and Saleev's order of the points is that of SciPy's `qmc.Sobol`, with which
//! the tests compare. A search shifts all points of a dimension by the same random bits (a digital shift), which keeps
//! them as even.

use super::draw::Draws;

/// Dimensions for which there are direction numbers.
pub const DIMENSIONS: usize = 21;

/// Bits of a coordinate.
const BITS: usize = 32;

/// Degree, coefficients and first direction numbers of each dimension from the second on.
const TABLE: [(u32, u32, &[u32]); DIMENSIONS - 1] = [
    (1, 0, &[1]),
    (2, 1, &[1, 3]),
    (3, 1, &[1, 3, 1]),
    (3, 2, &[1, 1, 1]),
    (4, 1, &[1, 1, 3, 3]),
    (4, 4, &[1, 3, 5, 13]),
    (5, 2, &[1, 1, 5, 5, 17]),
    (5, 4, &[1, 1, 5, 5, 5]),
    (5, 7, &[1, 1, 7, 11, 19]),
    (5, 11, &[1, 1, 5, 1, 1]),
    (5, 13, &[1, 1, 1, 3, 11]),
    (5, 14, &[1, 3, 5, 5, 31]),
    (6, 1, &[1, 3, 3, 9, 7, 49]),
    (6, 13, &[1, 1, 1, 15, 21, 21]),
    (6, 16, &[1, 3, 1, 13, 27, 49]),
    (6, 19, &[1, 1, 1, 15, 7, 5]),
    (6, 22, &[1, 3, 1, 15, 13, 25]),
    (6, 25, &[1, 1, 5, 5, 19, 61]),
    (7, 1, &[1, 3, 7, 11, 23, 15, 103]),
    (7, 4, &[1, 3, 7, 13, 13, 15, 69]),
];

/// The direction numbers of a dimension, the most significant bit first.
fn directions(dimension: usize) -> [u32; BITS] {
    let mut numbers = [0; BITS];
    if dimension == 0 {
        (0..BITS).for_each(|k| numbers[k] = 1 << (BITS - 1 - k));
        return numbers;
    }
    let (degree, coefficients, first) = TABLE[dimension - 1];
    let degree = degree as usize;
    for k in 0..BITS {
        if k < degree {
            numbers[k] = first[k] << (BITS - 1 - k);
            continue;
        }
        let back = numbers[k - degree];
        let mut number = back ^ (back >> degree);
        for j in 1..degree {
            if (coefficients >> (degree - 1 - j)) & 1 == 1 {
                number ^= numbers[k - j];
            }
        }
        numbers[k] = number;
    }
    numbers
}

/// The bits of a coordinate of a point.
fn bits(number: u64, dimension: usize) -> u32 {
    let gray = number ^ (number >> 1);
    let numbers = directions(dimension);
    (0..BITS).filter(|k| gray >> k & 1 == 1).fold(0, |bits, k| bits ^ numbers[k])
}

/// A coordinate, 0 ≤ x < 1, of point `number` in `dimension`, both from 0; points repeat after 2^32.
///
/// # Panics
///
/// Panics for a dimension from [`DIMENSIONS`] on.
///
/// ```
/// # use bellwether_sched::search::sobol::point;
/// assert_eq!([point(0, 0), point(1, 0), point(2, 0), point(3, 0)], [0.0, 0.5, 0.75, 0.25]);
/// assert_eq!([point(2, 1), point(3, 1)], [0.25, 0.75]);
/// ```
pub fn point(number: u64, dimension: usize) -> f64 {
    f64::from(bits(number, dimension)) / (1_u64 << BITS) as f64
}

/// The same, shifted by bits that follow from the seed.
pub(super) fn shifted(number: u64, dimension: usize, seed: u64) -> f64 {
    // No trial has this number.
    let shift = (Draws::new(seed, u64::MAX, dimension).bits() >> 32) as u32;
    f64::from(bits(number, dimension) ^ shift) / (1_u64 << BITS) as f64
}
