//! What the system says of this process's threads: how long they were kept from running, and what they stand in.
//!
//! Linux only: elsewhere there is nothing to read, and nothing is said.

use std::collections::BTreeMap;
use std::path::Path;

/// Frames of a stack that are told.
const FRAMES_MAX: usize = 12;

/// Seconds that each thread was ready to run and had no processor, since it began.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starvation(BTreeMap<u32, f64>);

impl Starvation {
    /// As it is now.
    pub(crate) fn now() -> Starvation {
        let waited = |tid: u32| {
            // Nanoseconds that it ran, nanoseconds that it waited to run, and how often it did.
            let text = read(tid, "schedstat")?;
            let waited_ns: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
            Some((tid, waited_ns / 1e9))
        };
        Starvation(threads().filter_map(waited).collect())
    }

    /// The longest that a thread was kept from running since `earlier`. Any of them may have kept others waiting.
    pub(crate) fn since(&self, earlier: &Starvation) -> f64 {
        let waited = self.0.iter().map(|(tid, now_s)| now_s - earlier.0.get(tid).copied().unwrap_or(0.0));
        waited.fold(0.0, f64::max)
    }
}

/// The calling thread's number; 0 where the system does not tell.
pub(crate) fn this_thread() -> u32 {
    let link = std::fs::read_link("/proc/thread-self").ok();
    link.and_then(|link| link.file_name()?.to_str()?.parse().ok()).unwrap_or(0)
}

/// What a thread is doing, in a few words; empty where the system does not tell.
pub(crate) fn state(tid: u32) -> String {
    let Some(state) = letter(tid) else { return String::new() };
    let place = read(tid, "wchan").filter(|place| !place.is_empty() && place != "0");
    let place = place.map_or_else(String::new, |place| format!(" in {place}"));
    match state {
        'R' => "it runs".into(),
        'S' => format!("it sleeps{place}"),
        'D' => format!("it waits for a device{place}"),
        'T' | 't' => "it is stopped".into(),
        other => format!("its state is {other}"),
    }
}

/// Whether a thread is stopped or waits for a device: it does not look at what comes.
pub(crate) fn is_held(tid: u32) -> bool {
    matches!(letter(tid), Some('D' | 'T' | 't'))
}

/// A line for each thread of this process: its name, what it is doing, in which system call, and its stack in the
/// kernel, as far as the system tells.
pub(crate) fn all() -> Vec<String> {
    let line = |tid: u32| {
        let name = read(tid, "comm").unwrap_or_default();
        let call = read(tid, "syscall").and_then(|text| text.split_whitespace().next().map(str::to_owned));
        let call = call
            .filter(|call| call != "running")
            .map_or_else(String::new, |call| format!(", system call {call}"));
        let stack = read(tid, "stack").unwrap_or_default();
        let frames: Vec<&str> =
            stack.lines().filter_map(|line| line.split_whitespace().nth(1)).take(FRAMES_MAX).collect();
        let stack = if frames.is_empty() { String::new() } else { format!(", stack {}", frames.join(" < ")) };
        format!("thread {tid} `{name}`: {}{call}{stack}", state(tid))
    };
    threads().map(line).collect()
}

fn threads() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn read(tid: u32, what: &str) -> Option<String> {
    let text = std::fs::read_to_string(Path::new("/proc/self/task").join(tid.to_string()).join(what)).ok()?;
    Some(text.trim().to_owned())
}

/// The state in `stat`, which follows the name in parentheses; a name may hold any character.
fn letter(tid: u32) -> Option<char> {
    let stat = read(tid, "stat")?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_told_asynchronous_from_one_that_runs() {
        let (own, told) = std::sync::mpsc::channel();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("waiter (1)".into()).spawn(move || {
            own.send(this_thread()).expect("somebody listens");
            let _ = held.recv();
        });
        let tid = told.recv().expect("it tells");
        assert_ne!(tid, this_thread());
        assert_eq!(state(this_thread()), "it runs");
        while !state(tid).starts_with("it sleeps") {
            std::thread::yield_now();
        }
        let lines = all();
        assert!(lines.iter().any(|line| line.contains("`waiter (1)`: it sleeps")), "{lines:#?}");
        let before = Starvation::now();
        assert!(before.0.contains_key(&tid) && Starvation::now().since(&before) >= 0.0);
        drop(release);
        thread.expect("a thread").join().expect("it ends");
        assert_eq!(state(tid), "", "nothing is said of one that is gone");
    }
}
