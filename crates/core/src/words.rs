//! Parts of sentences.

/// A number of things.
///
/// ```
/// use bellwether_core::words::count;
/// assert_eq!([0, 1, 2].map(|number| count(number, "worker")), ["0 workers", "1 worker", "2 workers"]);
/// ```
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
