//! The words of a process's command line, by which a worker of a run is recognised.

use std::fs;

/// The variable in which a worker that runs a script finds what others find in their command line: a JSON object with
/// the keys `join`, `token_file`, `worker`, `listen` and `orphan_timeout_s`.
pub const WORKER_VARIABLE: &str = "BELLWETHER_WORKER";

/// The words of this process's command line. Those of a worker that runs a script are as of one that does not:
/// `worker --worker-id N --token-file FILE`. Empty if the process is gone, or another user's.
pub fn words_of_process(process: u32) -> Vec<String> {
    let read = |file: &str| fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    let environment = read("environ");
    let prefix = format!("{WORKER_VARIABLE}=");
    let told = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(prefix.as_bytes()))
        .and_then(|json| serde_json::from_slice::<serde_json::Value>(json).ok());
    let word = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), String::from);
    if let Some(told) = told {
        let [number, token] = ["worker", "token_file"].map(|key| told.get(key).map(word).unwrap_or_default());
        return ["", "worker", "--worker-id", &number, "--token-file", &token].map(String::from).to_vec();
    }
    let line = read("cmdline");
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}
