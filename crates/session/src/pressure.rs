//! Whether this machine's processors have more to do than they can: what is measured then says little.

use std::time::Instant;

/// A moment, and for how long tasks had waited for a processor until then.
#[derive(Debug, Clone, Copy)]
pub struct Pressure {
    since: Instant,
    waited_us: u64,
}

impl Pressure {
    /// From now on; `None` where the kernel does not tell (it needs Linux's pressure-stall information).
    pub fn begin() -> Option<Pressure> {
        Some(Pressure { since: Instant::now(), waited_us: waited_us()? })
    }

    /// The part of the time since then in which some task was ready and had no processor; `None` where `workers` that
    /// compute crowd each other, as there are more of them than processors.
    pub fn share(&self, workers: u32) -> Option<f64> {
        let processors = std::thread::available_parallelism().ok()?.get();
        if workers as usize > processors {
            return None;
        }
        let waited_s = waited_us()?.saturating_sub(self.waited_us) as f64 * 1e-6;
        let elapsed_s = self.since.elapsed().as_secs_f64();
        (elapsed_s > 0.0).then(|| (waited_s / elapsed_s).min(1.0))
    }
}

fn waited_us() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// The total of the line that begins with `some`.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_tasks_is_read() {
        let text = "some avg10=79.24 avg60=90.12 avg300=87.88 total=12101644060\nfull avg10=0.00 total=7\n";
        assert_eq!(parse(text), Some(12_101_644_060));
        assert_eq!([parse(""), parse("full avg10=0.00 total=7\n"), parse("some total=x\n")], [None; 3]);
    }

    #[test]
    fn more_busy_threads_than_processors_are_pressure() {
        let Some(pressure) = Pressure::begin() else {
            println!("skipped: this kernel has no pressure-stall information");
            return;
        };
        let count = 2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let end = Instant::now() + std::time::Duration::from_millis(1500);
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| while Instant::now() < end {});
            }
        });
        assert!(pressure.share(1).is_some_and(|share| share > 0.25), "{:?}", pressure.share(1));
        assert_eq!(pressure.share(u32::MAX), None);
    }
}
