//! Processor time that the coordinator of a run takes for each training step, by the number of workers.
//!
//! `cargo run --release -p bellwether-runtime --example coordinator_cost -- machine|sessions [WORKERS,…] [STEP_MS]`;
//! `--json` prints one JSON value instead of a table.
//!
//! - `machine`: the state machine alone, fed with what the workers of a run say: a report per worker and step, a
//!   heartbeat per worker and second, a tick every 10 ms. Beside it what the bytes of the reports take to be read, and
//!   what a worker more, two fewer and the death of one take in all.
//! - `sessions`: a coordinator in a process of its own, with a session for each worker, and what each of its threads
//!   takes, as the mean of the steps. The workers train nothing, and wait for nothing.

#![allow(clippy::print_stdout, reason = "a measurement is printed")]

use serde_json::{Map, Value, json};

mod machine;
mod sessions;
mod workers;

/// Steps that are measured; their median is shown.
const STEPS: usize = 30;

/// Steps before them.
const FIRST_STEPS: usize = 5;

/// Numbers of workers, unless others are named.
const WORKERS: [u64; 4] = [16, 64, 256, 1024];

/// A line of the table: what was measured, with numbers by name.
type Row = Map<String, Value>;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_json = words.iter().position(|word| word == "--json").map(|place| words.remove(place)).is_some();
    let what = words.first().map_or("machine", String::as_str);
    if what == sessions::COORDINATE {
        return sessions::coordinate(words.get(1).expect("a folder"));
    }
    let counts: Vec<u64> = words.get(1).map_or(WORKERS.to_vec(), |list| {
        list.split(',').map(|number| number.parse().expect("a number of workers")).collect()
    });
    let step_s = words.get(2).map_or(0.1, |text| text.parse::<f64>().expect("milliseconds") / 1000.0);
    let measure = match what {
        "machine" => machine::measure,
        "sessions" => sessions::measure,
        other => panic!("`{other}` is neither `machine` nor `sessions`"),
    };
    if !is_json {
        println!("{what}, steps of {:.0} ms, medians of {STEPS}; load {}", 1000.0 * step_s, load());
    }
    let mut rows: Vec<Row> = Vec::new();
    for workers in counts {
        let row = measure(workers, step_s);
        if !is_json {
            println!("{workers} workers");
            row.iter().for_each(|(name, value)| println!("  {name:<44} {value:>12}"));
        }
        rows.push(row);
    }
    if is_json {
        println!("{}", json!({ "what": what, "step_s": step_s, "load": load(), "rows": rows }));
    }
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Thousandths, as much as is worth reading.
fn rounded(value: f64) -> Value {
    json!((1000.0 * value).round() / 1000.0)
}
