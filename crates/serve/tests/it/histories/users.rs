//! Users, who ask for anything at any time, and remember what they were promised.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::job::{CheckedJob, SyncPolicy, WorkerRange};
use bellwether_core::parse;
use bellwether_core::profile::Profile;
use bellwether_core::queue::QueuesFile;
use bellwether_serve::ledger::Task;
use bellwether_serve::request::{Refusal, Reply, Request, Submission};
use serde_json::{Value, json};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::POLICIES;
use super::world::World;
use crate::elsewhere::provision;
use bellwether_testkit::Random;

/// Jobs of a history.
const JOBS_MAX: u64 = 10;

type Answer = oneshot::Receiver<Result<Reply, Refusal>>;

#[derive(Default)]
pub(crate) struct Users {
    /// Submissions that were sent, by name.
    sent: u64,
    /// What was asked of the living daemon, and not answered yet.
    waiting: Vec<(Request, Answer)>,
    /// Submissions that a daemon did not answer before it died: they are sent again.
    unanswered: Vec<Submission>,
    /// Names that were accepted.
    pub(crate) accepted: BTreeSet<String>,
    /// Names that were asked to be cancelled, whether that was answered or not.
    pub(crate) cancelled: BTreeSet<String>,
    template: Option<CheckedJob>,
    /// Whether their daemon has queues.
    has_queues: bool,
}

/// One of two ways to divide the slots among two queues and the default one.
pub(super) fn queues(which: u64) -> QueuesFile {
    let text = match which % 2 {
        0 => {
            "half_life = \"100s\"\n[[queues]]\nname = \"a\"\nguarantee = \"50%\"\n\
            [[queues]]\nname = \"b\"\nguarantee = \"25%\"\nlimit = \"75%\"\nweight = 2\n"
        }
        _ => {
            "[[queues]]\nname = \"a\"\nguarantee = \"25%\"\n[[queues]]\nname = \"b\"\n\
            [[queues]]\nname = \"default\"\nguarantee = \"25%\"\n"
        }
    };
    parse::document(text, "test").expect("a file of queues")
}

fn protocol(word: &str) -> SyncPolicy {
    word.parse().expect("a policy")
}

/// Eight virtual nodes of 10 ms, over a link that is full with a few asynchronous workers, each of this size.
pub(super) fn profile(peak_resident_bytes: u64) -> Box<Profile> {
    let compute = |node: usize| {
        let after: Vec<usize> = node.checked_sub(1).into_iter().collect();
        json!({ "name": node.to_string(), "kind": "compute", "after": after })
    };
    let mut operations: Vec<Value> = (0..8).map(compute).collect();
    operations.push(json!({ "name": "send", "kind": { "upload": 0 }, "after": [7] }));
    operations.push(json!({ "name": "update", "kind": { "update": 0 }, "after": [8] }));
    let operations_s = [vec![0.01; 8], vec![0.0; 2]].concat();
    let text = json!({
        "version": 1, "job": "job", "source": "by hand", "device": "box", "batch": 8, "virtual_nodes": 8,
        "parameter_bytes": 1024, "parts": [{ "name": "all", "bytes": 1024 }], "operations": operations,
        "steps": vec![json!({ "step_s": 0.08, "operations_s": operations_s }); 3],
        "peak_resident_bytes": peak_resident_bytes, "network": { "bandwidth_bytes_per_s": 2e5, "latency_s": 0.0 },
    });
    Box::new(Profile::read(&text.to_string(), "test").expect("a profile"))
}

impl Users {
    pub(crate) fn new(has_queues: bool) -> Users {
        Users { has_queues, ..Users::default() }
    }

    /// One of the queues, or none.
    fn queue(&self, random: &mut Random) -> Option<String> {
        let queues = if self.has_queues { ["a", "b"].as_slice() } else { &[] };
        queues.get(random.below(3) as usize).map(ToString::to_string)
    }

    fn job(&mut self) -> CheckedJob {
        let text = "name = \"job\"\nsteps = 100\n[model]\nkind = \"synthetic\"\nstep_time = \"10ms\"\nparameters = \"1KiB\"\n\
            [data]\nkind = \"indices\"\nsamples = 800\n[batch]\nsize = 8\nvirtual_nodes = 8\n\
            [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
        self.template.get_or_insert_with(|| parse::job(text, "test", &[]).expect("a job")).clone()
    }

    fn request(&mut self, random: &mut Random) -> Request {
        let name = |random: &mut Random, sent: u64| format!("job-{}", random.below(sent.max(1)));
        let range = |random: &mut Random| {
            let min = 1 + random.below(3) as u32;
            WorkerRange { min, max: min + random.below(3) as u32 }
        };
        match random.below(10) {
            0..=3 if self.sent < JOBS_MAX => {
                self.sent += 1;
                let number = self.sent - 1;
                // Some leave open how their workers are kept together.
                let is_open = random.below(3) == 0;
                // Some have machines of their own.
                if random.below(5) == 0 {
                    return self.elsewhere(number);
                }
                let servers = |most| WorkerRange { min: 1, max: most };
                Request::Submit(Box::new(Submission {
                    job: self.job(),
                    name: Some(format!("job-{number}")),
                    workers: Some(range(random)),
                    weight: 1.0 + random.below(3) as f64,
                    deadline_s: (random.below(4) == 0).then(|| 1.0 + random.below(100) as f64),
                    task: Task { training_samples: 800, bytes: 1024 },
                    profile: is_open.then(|| profile(1 << 20)),
                    rates: Vec::new(),
                    protocols: if is_open { vec![protocol("asp"), protocol("bsp")] } else { Vec::new() },
                    servers: is_open.then(|| servers(1 + random.below(2) as u32)),
                    profile_first: !is_open && random.below(3) == 0,
                    key: Some(format!("key-{number}")),
                    queue: self.queue(random),
                    user: None,
                    provision: None,
                }))
            }
            0 | 4 => Request::Suspend { job: name(random, self.sent), by: "its user".into() },
            1 | 5 | 6 => Request::Resume { job: name(random, self.sent) },
            7 if self.sent > 2 => Request::Cancel { job: name(random, self.sent) },
            2 | 8 => {
                Request::Limit { job: name(random, self.sent), workers: Some(range(random)), weight: None }
            }
            _ if self.has_queues && random.below(2) == 0 => {
                let which = random.below(3);
                let queues = (which < 2).then(|| queues(which));
                Request::Divide { queues, by: "an operator".into() }
            }
            _ => Request::Choose {
                policy: POLICIES[random.below(POLICIES.len() as u64) as usize].into(),
                by: "an operator".into(),
            },
        }
    }

    fn elsewhere(&mut self, number: u64) -> Request {
        let named = Submission::named(
            self.job(),
            Task { training_samples: 800, bytes: 1024 },
            &format!("job-{number}"),
            format!("key-{number}"),
        );
        Request::Submit(Box::new(Submission { provision: provision("here"), ..named.expect("a name") }))
    }

    /// Whether a user has asked something and has no answer.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.unanswered.is_empty()
    }

    /// Hears what was answered.
    fn hear(&mut self) {
        for (request, mut answer) in std::mem::take(&mut self.waiting) {
            match answer.try_recv() {
                Err(TryRecvError::Empty) => self.waiting.push((request, answer)),
                Ok(Ok(_)) => {
                    if let Request::Submit(submission) = request {
                        self.accepted.extend(submission.name);
                    }
                }
                Ok(Err(_)) => {}
                Err(TryRecvError::Closed) => self.again(request),
            }
        }
    }

    fn again(&mut self, request: Request) {
        if let Request::Submit(submission) = request {
            self.unanswered.push(*submission);
        }
    }
}

impl World {
    /// The daemon is dead: users that wait for an answer have heard none.
    pub(crate) fn hang_up(&mut self) {
        self.users.hear();
        for (request, _) in std::mem::take(&mut self.users.waiting) {
            self.users.again(request);
        }
    }

    /// Users ask something, most of the time nothing.
    pub(crate) fn ask_something(&mut self) {
        self.users.hear();
        if let Some(submission) = self.users.unanswered.pop() {
            self.ask(Request::Submit(Box::new(submission)));
        }
        if self.calm {
            // Every user that waits for an answer gets it.
            if self.calm_turns % 200 == 1 {
                (0..self.users.sent).for_each(|job| self.ask(Request::Resume { job: format!("job-{job}") }));
            }
        } else if self.random.below(12) == 0 {
            let request = self.users.request(&mut self.random);
            self.ask(request);
        }
    }

    fn ask(&mut self, request: Request) {
        match &request {
            Request::Cancel { job } => drop(self.users.cancelled.insert(job.clone())),
            // Once it was asked for, it may begin at any time.
            Request::Resume { .. } => self.runs.values_mut().for_each(|run| run.stopped_by_hand = false),
            _ => {}
        }
        self.tell(|| match &request {
            Request::Submit(submission) => format!("asked: submit {:?}", submission.name),
            request => format!("asked: {request:?}"),
        });
        let (sender, receiver) = oneshot::channel();
        if let Some(ends) = &self.ends
            && ends.engine.requests.send((request.clone(), sender)).is_ok()
        {
            self.users.waiting.push((request, receiver));
        } else {
            self.users.again(request);
        }
    }

    /// What the promises are about, by name.
    pub(crate) fn promised(&self) -> BTreeMap<String, bool> {
        let cancelled = |name: &String| self.users.cancelled.contains(name);
        self.users.accepted.iter().map(|name| (name.clone(), cancelled(name))).collect()
    }
}
