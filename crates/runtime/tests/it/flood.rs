//! The coordinator's clock goes on whatever comes: children are looked after and directors asked while messages pour
//! in.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bellwether_core::parse;
use bellwether_core::plan::Synchronisation;
use bellwether_core::record::RunOutcome;
use bellwether_runtime::control::Token;
use bellwether_runtime::control::client::Control;
use bellwether_runtime::coordinator::{
    self, Director, DirectorCommand, Endpoint, MeasureLinks, Options, RunEvent, RunStatus,
};

/// Ticks that must come while messages pour in: of a coordinator that only answers, none does.
const TICKS: u64 = 30;

/// They take a third of a second, unless the machine is busy or time stands still.
const PATIENCE: Duration = Duration::from_secs(30);

/// Counts how often time passes.
struct Clock(Arc<AtomicU64>);

impl Director for Clock {
    fn direct(&mut self, seen: RunEvent<'_>, _: &RunStatus<'_>) -> Vec<DirectorCommand> {
        self.0.fetch_add(u64::from(matches!(seen, RunEvent::Tick)), Ordering::Relaxed);
        Vec::new()
    }
}

/// How a run is coordinated to which all workers come by hand.
pub(crate) fn options(folder: &Path, token: Token) -> Options {
    let text = "name='x'\nsteps=100\n[model]\nkind='mlp'\nhidden=[]\n[data]\nkind='digits'\n\
                [batch]\nsize=8\nvirtual_nodes=4\n[optimizer]\nkind='sgd'\nlearning_rate=0.1";
    Options {
        job: parse::job(text, "", &[]).expect("a good job file"),
        run: "x-1".into(),
        folder: folder.to_path_buf(),
        token,
        listen: ([127, 0, 0, 1], 0).into(),
        data_listen: ([127, 0, 0, 1], 0).into(),
        workers: 1,
        min_workers: 1,
        max_workers: 4,
        schedule: Vec::new(),
        spawn: None,
        spawn_server: None,
        synchronisation: Synchronisation::default(),
        workload: None,
        initial_weights: None,
        offers_checkpoints: false,
        heartbeat_timeout: Duration::from_secs(5),
        grace: Duration::from_secs(4),
        last_checkpoint_wait: Duration::from_secs(300),
        accept_other_data: false,
        plain_transport: None,
        expected_step_s: None,
        replaces_alone: false,
        measure_links: MeasureLinks::Never,
        speeds: BTreeMap::new(),
        director: None,
    }
}

/// Where the coordinator of this run listens, once it does.
pub(crate) fn address(run: &Path) -> String {
    loop {
        let content = std::fs::read(run.join("endpoint.json")).unwrap_or_default();
        if let Ok(endpoint) = serde_json::from_slice::<Endpoint>(&content) {
            return endpoint.control.to_string();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks for the same again and again; how often it was answered.
fn pour(address: &str, token: &Token, over: &AtomicBool) -> u64 {
    let mut control = Control::connect(address, token).expect("the coordinator listens");
    let mut answers = 0;
    while !over.load(Ordering::Relaxed) {
        assert!(control.scale(2).expect("an answer").accepted);
        answers += 1;
    }
    answers
}

#[test]
fn time_passes_while_messages_pour_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = Token::random().expect("randomness");
    let ticks = Arc::new(AtomicU64::new(0));
    let mut options = options(folder.path(), token.clone());
    options.director = Some(Box::new(Clock(Arc::clone(&ticks))));
    let run = folder.path().to_path_buf();
    let flood = std::thread::spawn(move || {
        let address = address(&run);
        let over = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            let sources: Vec<_> = (0..8).map(|_| scope.spawn(|| pour(&address, &token, &over))).collect();
            std::thread::sleep(Duration::from_millis(300));
            let (before, began) = (ticks.load(Ordering::Relaxed), Instant::now());
            while ticks.load(Ordering::Relaxed) < before + TICKS && began.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            let passed = ticks.load(Ordering::Relaxed) - before;
            over.store(true, Ordering::Relaxed);
            let answers: u64 = sources.into_iter().map(|source| source.join().expect("it is answered")).sum();
            (passed, answers)
        });
        Control::connect(&address, &token).and_then(|mut control| control.stop()).expect("it stops");
        measured
    });
    let (_, how) = coordinator::run(options, &mut |_| {}).expect("it can begin");
    assert_eq!(how, RunOutcome::Stopped);
    let (ticks, answers) = flood.join().expect("the flood ends");
    assert!(ticks >= TICKS, "{ticks} ticks in {PATIENCE:?} with {answers} answers");
    assert!(answers >= TICKS, "{answers} answers do not make a flood");
}
