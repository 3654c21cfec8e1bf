//! Sessions as programs outside of this project begin them.

#[path = "../../examples/own_workload.rs"]
mod own_workload;

#[test]
fn a_workload_of_ones_own_keeps_its_digest_when_it_is_resized_and_loses_a_worker() {
    own_workload::main().unwrap();
}
