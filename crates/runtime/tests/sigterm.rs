//! SIGTERM as a notice. In a process of its own, because a signal reaches every coordinator and worker of a process.

use std::time::{Duration, Instant};

use bellwether_runtime::notice::Source;
use rustix::process::{Signal, getpid, kill_process};

/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn sigterm_is_a_notice_and_stays_one() {
    let mut notices = Source::Sigterm.open(Duration::from_millis(10)).expect("the system lets us listen");
    let mut is_heard = || notices.poll().expect("nothing can fail").is_some();
    assert!(!is_heard());
    kill_process(getpid(), Signal::TERM).expect("a process may send itself a signal");
    let begun = Instant::now();
    while !is_heard() {
        assert!(begun.elapsed() < PATIENCE, "the signal is not heard");
    }
    assert!(is_heard());
}
