//! A mixing function: equal inputs give equal bits on every machine, near ones give unrelated bits.

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which each input bit moves half of the output
/// bits.
///
/// ```
/// use bellwether_core::mix::mix;
/// // The first number of SplitMix64 from the state 0.
/// assert_eq!(mix(0x9E37_79B9_7F4A_7C15), 0xE220_A839_7B1D_CDAF);
/// ```
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
