//! A run ends without a wait for workers that have not come yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bellwether_core::record::RunOutcome;
use bellwether_runtime::control::Token;
use bellwether_runtime::control::client::Control;
use bellwether_runtime::coordinator::{self, Spawned};

use crate::flood::{address, options};

/// Looks at a child that a coordinator needs to leave, the first moments of its end included. It takes 600 of them to
/// see that a child does not go by itself.
const LOOKS: u64 = 100;

/// A worker that starts for ever, unless it is ended.
#[derive(Clone, Default)]
struct Boots {
    ended: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
}

impl Spawned for Boots {
    fn ended(&mut self) -> Option<String> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.ended.load(Ordering::Relaxed).then(|| "it was ended".into())
    }

    fn warn(&mut self) {}

    fn kill(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn end(&mut self) {
        self.kill();
    }
}

#[test]
fn who_has_not_come_when_the_run_ends_is_ended_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = Token::random().expect("randomness");
    let (worker, mut options) = (Boots::default(), options(folder.path(), token.clone()));
    let started = worker.clone();
    options.spawn = Some(Box::new(move |_, _| Ok(Box::new(started.clone()))));
    let (run, looks) = (folder.path().to_path_buf(), Arc::clone(&worker.looks));
    let stop = std::thread::spawn(move || {
        let mut control = Control::connect(&address(&run), &token).expect("the coordinator listens");
        while looks.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        looks.store(0, Ordering::Relaxed);
        control.stop().expect("it stops");
    });
    let (_, how) = coordinator::run(options, &mut |_| {}).expect("it can begin");
    stop.join().expect("it was stopped");
    assert_eq!(how, RunOutcome::Stopped);
    assert!(worker.ended.load(Ordering::Relaxed));
    let looks = worker.looks.load(Ordering::Relaxed);
    assert!(looks < LOOKS, "it was looked at {looks} times before it was ended");
}
