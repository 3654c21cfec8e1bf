//! What jobs of equal speed have in common.

use bellwether_core::job::Job;

/// The kind of a job: a digest of its model, data, batch and update rule. Jobs of one kind take equally long for a step
/// on the same workers, so what is learnt of one holds for the others.
///
/// # Panics
///
/// Never: a job is plain data.
pub fn of(job: &Job) -> String {
    let parts = serde_json::json!({
        "model": job.model,
        "data": job.data,
        "batch": job.batch,
        "optimizer": job.optimizer,
    });
    blake3::hash(parts.to_string().as_bytes()).to_hex()[..16].to_owned()
}
