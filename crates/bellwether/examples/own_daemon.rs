//! Lets a scheduling policy of its own decide about real jobs, in a daemon:
//! `cargo run --release -p bellwether --example own_daemon -- target/release/bellwether`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::PathBuf;
use std::thread;

use bellwether::client::{Client, Endpoint, JobState, Submit};
use bellwether::policy::{
    About, Decision, DecisionBuilder, FreeDevices, Policy, PolicyInput, Promises, Registry, Rule,
};
use bellwether::serve::{Daemon, Machine, Options, Simulated};
use bellwether::session::StateDir;

/// One job at a time, the newest first.
struct NewestFirst;

impl Policy for NewestFirst {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let view = input.view;
        let mut free = FreeDevices::new(view);
        let mut decision = DecisionBuilder::new(&mut free);
        let mut waiting = view.jobs.iter().filter(|(_, seen)| !seen.is_running()).count();
        let is_idle = view.jobs.values().all(|seen| !seen.is_running());
        if let Some((id, seen)) = view.jobs.iter().next_back().filter(|_| is_idle) {
            waiting -= usize::from(decision.start_on(*id, seen, seen.job.asked()));
        }
        decision.finish(Rule::Custom, waiting, None)
    }
}

const NEWEST_FIRST: About = About {
    name: "newest_first",
    idea: "one job at a time, the newest first",
    options: &[],
    bad_when: "jobs keep coming: the first one never runs",
    gangs: true,
    needs_remaining: false,
    promises: Promises { work_conserving: false, starvation_free: false },
    make: |_| Ok(Box::new(NewestFirst)),
};

const JOB: &str = r#"
name = "digits"
steps = 200
[model]
kind = "mlp"
hidden = [32]
[data]
kind = "digits"
[batch]
size = 64
virtual_nodes = 4
[optimizer]
kind = "sgd"
learning_rate = 0.1
"#;

/// All policies that the daemon knows, its own among them.
pub(crate) fn registry() -> Result<Registry, Box<dyn std::error::Error>> {
    let mut registry = Registry::built_in();
    registry.register(NEWEST_FIRST)?;
    Ok(registry)
}

/// Two jobs under the policy, as they ended. `command` is the program `bellwether`, whose processes train.
pub(crate) fn train(
    state_dir: StateDir,
    command: PathBuf,
) -> Result<Vec<JobState>, Box<dyn std::error::Error>> {
    let client = Client::new(Endpoint::StateDir(state_dir.make()?));
    let registry = registry()?;
    let daemon = Daemon::open(Options {
        machine: Some(Machine::slots(2)),
        policy: Some("newest_first".into()),
        outlook: Some(Box::new(Simulated { registry: registry.clone() })),
        registry,
        ..Options::new(state_dir, command)
    })?;
    let stopper = daemon.stopper();
    thread::scope(|scope| {
        let running = scope.spawn(move || daemon.run());
        let ended = follow(&client);
        // Whatever the client met, the daemon ends; its jobs would go on.
        stopper.stop();
        running.join().expect("it does not panic")?;
        ended
    })
}

/// What any client of a daemon does: it submits, follows, and asks.
fn follow(client: &Client) -> Result<Vec<JobState>, Box<dyn std::error::Error>> {
    let names = ["one", "two"].map(String::from);
    for name in &names {
        let (name, job_toml) = (Some(name.clone()), Some(JOB.into()));
        // With a key of its own a job is accepted once, even where an answer is lost and the request is sent again.
        client.submit(&Submit { key: name.clone(), name, job_toml, ..Submit::default() })?;
    }
    Ok(client.follow(&names, |_| true)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let command = std::env::args_os().nth(1).unwrap_or_else(|| "bellwether".into());
    for job in train(StateDir::find(None)?, command.into())? {
        println!("{}: {}, {} steps, loss {:?}", job.name, job.state.name(), job.step, job.loss);
    }
    Ok(())
}
