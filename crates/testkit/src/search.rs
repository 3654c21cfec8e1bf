//! Looks for seeds whose histories break a promise.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all histories together went through.
pub type Counts = BTreeMap<&'static str, u64>;

/// `BELLWETHER_SEEDS=START..END`, or those that every test run goes through.
///
/// # Panics
///
/// When the variable is set to anything else.
pub fn seeds(otherwise: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("BELLWETHER_SEEDS") else { return otherwise };
    let (start, end) = text.split_once("..").expect("BELLWETHER_SEEDS is START..END");
    start.parse().expect("a number")..end.parse().expect("a number")
}

/// `BELLWETHER_THREADS` of them; otherwise as many as there are processors.
fn threads() -> usize {
    let told = std::env::var("BELLWETHER_THREADS").ok().and_then(|text| text.parse().ok());
    told.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Goes through the seeds on all threads until this many have failed. `failure` runs one, counts what it went through,
/// and tells why it fails. Returns those that fail and the counts of all.
pub fn search(
    range: &Range<u64>,
    failures_max: usize,
    failure: impl Fn(u64, &mut Counts) -> Option<String> + Sync,
) -> (BTreeMap<u64, String>, Counts) {
    let next = AtomicU64::new(range.start);
    let found = Mutex::new((BTreeMap::new(), Counts::new()));
    let look = || {
        let mut counts = Counts::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= range.end {
                break;
            }
            if let Some(text) = failure(seed, &mut counts) {
                let mut found = found.lock().expect("no holder of this lock panics");
                found.0.insert(seed, text);
                if found.0.len() >= failures_max {
                    next.store(range.end, Ordering::Relaxed);
                }
            }
        }
        let mut found = found.lock().expect("no holder of this lock panics");
        counts.into_iter().for_each(|(name, count)| *found.1.entry(name).or_default() += count);
    };
    std::thread::scope(|scope| (0..threads()).for_each(|_| drop(scope.spawn(look))));
    found.into_inner().expect("no holder of this lock panics")
}
