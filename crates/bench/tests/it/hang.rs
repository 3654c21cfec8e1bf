//! `hang`: one of each fault, so that the measurement itself does not rot.

use crate::harness::report;

#[test]
fn links_and_sessions_that_swallow_what_they_are_given_are_noticed() {
    let report = report(&["hang", "--step-ms", "20", "--trials", "1"]);
    let rows = report["rows"].as_array().expect("rows");
    let skipped = report["notes"].to_string().contains("Links are left out");
    if skipped {
        eprintln!("links are not tried: {}", report["notes"]);
    }
    assert_eq!(rows.len(), if skipped { 2 } else { 6 }, "{report}");
    for row in rows {
        let seconds = |name: &str| row[name].as_f64().unwrap_or(f64::INFINITY);
        // Sockets alone notice within half a minute or later. How quick it should be is for the benchmark to say.
        assert!(seconds("noticed_worst_s") < 20.0 && seconds("training_worst_s") < 25.0, "{row}");
    }
}
