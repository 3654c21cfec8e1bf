//! What a script declares, beside the job that the run has.

use crate::declaration::Declaration;
use crate::fake;

fn agrees(from: &str, to: &str) -> Result<(), String> {
    let text =
        fake::declaration().replace("\"data\": {\"training_samples\": 16, \"held_out_samples\": 4},", "");
    let changed = text.replace(from, to);
    assert!(changed != text || from == to);
    Declaration::parse(&changed).unwrap().agrees(&fake::job()).map_err(|error| error.to_string())
}

#[test]
fn the_same_job_agrees_whatever_decides_no_bits() {
    assert_eq!(agrees("", ""), Ok(()));
    assert_eq!(
        agrees("\"name\": \"mine\", \"seed\"", "\"name\": \"other\", \"workers\": \"1..9\", \"seed\""),
        Ok(())
    );
    // A run may be longer or shorter than its script says, as one that is measured is.
    assert_eq!(agrees("\"steps\": 10", "\"epochs\": 2"), Ok(()));
}

#[test]
fn another_job_is_refused_by_its_key_with_both_values() {
    let error = agrees("\"size\": 4", "\"size\": 8").unwrap_err();
    assert!(error.contains("batch.size is 8 in the script here, and the run has 4"), "{error}");
    let error = agrees("0.5", "0.25").unwrap_err();
    assert!(error.contains("optimizer.learning_rate is 0.25"), "{error}");
}

#[test]
fn what_is_no_declaration_is_an_error() {
    assert!(Declaration::parse("{}").is_err());
    assert!(
        Declaration::parse("{\"job\": {}, \"layout\": {\"parameters\": [[\"w\", [-1]]], \"state\": []}}")
            .is_err()
    );
}
