//! The tokens of jobs.

use ring::hmac;

/// The token of a job, as its pods find it: 64 hexadecimal digits that follow from the operator's own key.
///
/// So the operator stores none, and needs no right to read secrets.
pub fn of_job(master: &[u8; 32], uid: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, master);
    let tag = hmac::sign(&key, format!("bellwether job token\0{uid}").as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
