//! What clients ask: checked against what is, written down, and granted.

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::job::{CheckedJob, WorkerRange};
use bellwether_core::parse::nearest;
use bellwether_core::policy::Fault;
use bellwether_core::profile::Profile;
use bellwether_runtime::run_dir::RunDir;
use bellwether_session::kind;

use super::{Accepted, Engine, profiled, ways};
use crate::clock::Clock;
use crate::ledger::{Entry, OpenWay, Outcome, Submitted, Task};
use crate::request::{Refusal, RefusalKind, Request, Submission};
use crate::runner::JobRunner;
use crate::state::server_slots;

/// A wish that was granted or not, and what ends the daemon.
pub(super) type Answered = Result<Result<Accepted, Refusal>, Fault>;

pub(super) fn refused(kind: RefusalKind, error: InputError) -> Refusal {
    Refusal { kind, error }
}

impl<C: JobRunner, T: Clock> Engine<C, T> {
    pub(super) fn request(&mut self, request: Request) -> Answered {
        let job = match request {
            Request::Submit(submission) => return self.submit(*submission),
            Request::Choose { policy, by } => return self.choose(policy, by),
            Request::Describe { job } => return Ok(self.find(&job).map(Accepted::Description)),
            Request::Divide { queues, by } => return self.divide(queues, by),
            Request::Limit { job, workers, weight } => return self.limit(&job, workers, weight),
            Request::Suspend { ref job, .. } | Request::Resume { ref job } | Request::Cancel { ref job } => {
                job
            }
        };
        let id = match self.find(job) {
            Ok(id) => id,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(record) = self.state.jobs.get(&id) else { return Ok(Err(self.unknown(job))) };
        let is_away = record.away.is_some();
        let entry = match (&request, &record.end) {
            (Request::Cancel { .. }, Some(end)) if end.outcome == Outcome::Cancelled => None,
            (_, Some(end)) => return Ok(Err(over(job, end.outcome))),
            _ if record.cancelled => match request {
                Request::Cancel { .. } => None,
                _ => return Ok(Err(over(job, Outcome::Cancelled))),
            },
            (Request::Cancel { .. }, None) => Some(Entry::Cancelled { job: id }),
            (Request::Suspend { by, .. }, None) => {
                (!is_away).then(|| Entry::Suspended { job: id, by: by.clone() })
            }
            _ => is_away.then_some(Entry::Resumed { job: id }),
        };
        if let Some(entry) = entry {
            self.write(entry)?;
        }
        Ok(Ok(Accepted::Job { job: id, created: false }))
    }

    fn find(&self, name: &str) -> Result<JobId, Refusal> {
        self.state.names.get(name).copied().ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Refusal {
        let names: Vec<String> = self.state.names.keys().cloned().collect();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`bellwether jobs` lists all jobs".into(),
        };
        refused(RefusalKind::Unknown, InputError::new(name, "there is no such job").hint(hint))
    }

    fn submit(&mut self, submission: Submission) -> Answered {
        if let Some(id) = submission.key.as_ref().and_then(|key| self.state.keys.get(key)) {
            return Ok(Ok(Accepted::Job { job: *id, created: false }));
        }
        let submitted = match self.admit(submission) {
            Ok(submitted) => submitted,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // `bellwether run` in the same state directory must not take the name while the job waits.
        if let Err(error) = std::fs::create_dir_all(self.options.folder.join(&submitted.name)) {
            let error =
                InputError::new(&submitted.name, format!("no folder can be made for its run: {error}"));
            return Ok(Err(refused(RefusalKind::Unavailable, error)));
        }
        let job = submitted.id;
        self.write(Entry::Submitted(Box::new(submitted)))?;
        Ok(Ok(Accepted::Job { job, created: true }))
    }

    /// What a submission becomes, if it can be accepted.
    pub(super) fn admit(&self, mut submission: Submission) -> Result<Submitted, Refusal> {
        let provision = submission.provision.take();
        if let Some(provision) = provision {
            return self.admit_elsewhere(submission, provision);
        }
        let Submission { job, name, workers, weight, deadline_s, task, protocols, servers, key, .. } =
            submission;
        let (queue, user) = (submission.queue, submission.user);
        let (profile, rates, profile_first) =
            (submission.profile, submission.rates, submission.profile_first);
        let invalid = |error| refused(RefusalKind::Invalid, error);
        let name = self.name_of(name, &job)?;
        let total_steps = steps_of(&job, task).map_err(invalid)?;
        let variants = ways::variants(&job, &protocols, servers, total_steps).map_err(invalid)?;
        let (ways, job) = match <[CheckedJob; 1]>::try_from(variants) {
            Ok([only]) => (Vec::new(), only),
            Err(several) => (several, job),
        };
        let nodes = job.batch.virtual_nodes;
        let of_ways = ways.iter().map(|way| server_slots(way, total_steps)).min();
        let servers = of_ways.unwrap_or_else(|| server_slots(&job, total_steps));
        let device_types = match &profile {
            Some(profile) => profiled::types_that_fit(profile, &self.state.machine).map_err(invalid)?,
            None => self.types_of_kind(&job),
        };
        self.check_queue(queue.as_deref()).map_err(invalid)?;
        let wanted = workers.unwrap_or(job.workers);
        let room = (&device_types[..], queue.as_deref());
        let workers = self.fitting(wanted, nodes, servers, room).map_err(invalid)?;
        check_wishes(weight, deadline_s).map_err(invalid)?;
        let profiled = match &profile {
            Some(profile) => profiled::rates(profile, &job, task, &self.state.machine).map_err(invalid)?,
            None => profiled::checked(rates, nodes).map_err(invalid)?,
        };
        let ways =
            self.open_ways(&ways, workers, profile.as_deref(), task, &device_types).map_err(invalid)?;
        let kind = match &ways[..] {
            [] => kind::of(&job),
            ways => kind::open(&ways.iter().map(|way| way.kind.as_str()).collect::<Vec<_>>()),
        };
        Ok(Submitted {
            id: self.state.next_job(),
            deadline_s: deadline_s.map(|s| self.now_s() + s * self.state.time_scale),
            kind,
            name,
            workers,
            weight,
            task,
            servers: if ways.is_empty() { servers } else { 0 },
            profiled: if ways.is_empty() { profiled } else { Vec::new() },
            device_types,
            ways,
            profile_first,
            key,
            queue,
            user,
            provision: None,
            job: job.into_job(),
        })
    }

    /// The name that a job gets.
    pub(super) fn name_of(&self, asked: Option<String>, job: &CheckedJob) -> Result<String, Refusal> {
        let Some(name) = asked else { return Ok(self.free_name(&job.name)) };
        let named = job.clone().edit(|job| job.name.clone_from(&name));
        named.map_err(|error| refused(RefusalKind::Invalid, error))?;
        if self.is_taken(&name) {
            let error = InputError::new("name", format!("`{name}` is taken"));
            let hint = "choose another name, or leave it out: the job gets a number then";
            return Err(refused(RefusalKind::Conflict, error.hint(hint)));
        }
        Ok(name)
    }

    /// The types of slot that can hold a worker of such a job, as an earlier profile of its kind said; empty for all.
    fn types_of_kind(&self, job: &CheckedJob) -> Vec<u16> {
        if self.state.machine.device_types.iter().all(|device| device.memory_bytes.is_none()) {
            return Vec::new();
        }
        let kind = kind::of(job);
        let known = self.state.jobs.values().rev().map(|record| &record.submitted);
        let mut of_kind = known.filter(|known| known.kind == kind && !known.device_types.is_empty());
        of_kind.next().map_or_else(Vec::new, |known| known.device_types.clone())
    }

    /// Several ways of a job, each with what its profile says of it; those for which there are too few slots are left
    /// out.
    fn open_ways(
        &self,
        ways: &[CheckedJob],
        workers: WorkerRange,
        profile: Option<&Profile>,
        task: Task,
        device_types: &[u16],
    ) -> Result<Vec<OpenWay>, InputError> {
        let mut open = Vec::new();
        for job in ways {
            let Some(profile) = profile else {
                let what = "several ways to train the job, and no profile that says how fast each is";
                return Err(InputError::new("profile", what)
                    .hint("measure it with `bellwether profile JOB -o PROFILE.json`, and submit it with `--profile`"));
            };
            let servers = server_slots(job, job.total_steps(task.training_samples));
            if workers.min.saturating_add(servers) <= self.state.widest(device_types) {
                let profiled = profiled::rates(profile, job, task, &self.state.machine)?;
                open.push(OpenWay { sync: job.sync.clone(), servers, kind: kind::of(job), profiled });
            }
        }
        Ok(open)
    }

    /// Numbers of workers that the job and the slots beside its servers' allow, by the types of slot that can hold it
    /// and by its queue.
    fn fitting(
        &self,
        workers: WorkerRange,
        virtual_nodes: u32,
        servers: u32,
        (device_types, queue): (&[u16], Option<&str>),
    ) -> Result<WorkerRange, InputError> {
        let widest = self.state.widest(device_types);
        if workers.min == 0 || workers.min > workers.max {
            return Err(InputError::new("workers", format!("{workers} is not a range"))
                .hint("write for example 1..4"));
        }
        if workers.max > virtual_nodes {
            let what = format!("{} workers cannot share {virtual_nodes} virtual nodes", workers.max);
            return Err(InputError::new("workers", what).hint(format!("choose at most {virtual_nodes}")));
        }
        let most = widest.saturating_sub(servers);
        if most == 0 {
            let what = format!("{servers} servers and a worker, and there are {widest} slots of one type");
            let hint = "choose fewer servers with --set sync.servers=N, or a daemon with more slots";
            return Err(InputError::new("sync.servers", what).hint(hint));
        }
        if workers.min > most {
            let beside = if servers > 0 { format!(" beside {servers} servers") } else { String::new() };
            let what =
                format!("at least {} workers{beside}, and there are {widest} slots of one type", workers.min);
            let hint = format!("choose at most {most}, for example with --min 1 --max {most}");
            return Err(InputError::new("workers", what).hint(hint));
        }
        self.check_limit(workers.min.saturating_add(servers), device_types, queue)?;
        Ok(WorkerRange { min: workers.min, max: workers.max.min(most) })
    }

    fn is_taken(&self, name: &str) -> bool {
        self.state.names.contains_key(name) || RunDir::at(self.options.folder.join(name)).job_file().exists()
    }

    fn free_name(&self, job: &str) -> String {
        let mut number = 1 + self.state.numbers.get(job).copied().unwrap_or(0);
        loop {
            let name = format!("{job}-{number}");
            if !self.is_taken(&name) {
                return name;
            }
            number += 1;
        }
    }

    fn limit(&mut self, name: &str, workers: Option<WorkerRange>, weight: Option<f64>) -> Answered {
        let id = match self.find(name) {
            Ok(id) => id,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(record) = self.state.jobs.get(&id) else { return Ok(Err(self.unknown(name))) };
        if record.submitted.provision.is_some() {
            return Ok(Err(not_limited(name)));
        }
        let seen = record.away.as_ref().or_else(|| self.state.view.jobs.get(&id));
        let Some(seen) = seen.filter(|_| !record.cancelled) else {
            let outcome = record.end.as_ref().map_or(Outcome::Cancelled, |end| end.outcome);
            return Ok(Err(over(name, outcome)));
        };
        let (now, servers) = (record.workers(seen), record.fewest_servers());
        let Submitted { job, device_types, queue, .. } = record.submitted.as_ref();
        let room = (&device_types[..], queue.as_deref());
        let wanted = self.fitting(workers.unwrap_or(now), job.batch.virtual_nodes, servers, room);
        let weight = weight.unwrap_or(seen.job.weight);
        let workers = match wanted {
            Ok(workers) if weight.is_finite() && weight > 0.0 && weight <= 1e6 => workers,
            Ok(_) => {
                let error = InputError::new("weight", format!("{weight} is not a weight"));
                let error = error.hint("write a number above 0, up to a million; 1 is usual");
                return Ok(Err(refused(RefusalKind::Invalid, error)));
            }
            Err(error) => return Ok(Err(refused(RefusalKind::Invalid, error))),
        };
        if workers != now || weight != seen.job.weight {
            self.write(Entry::Limited { job: id, workers, weight })?;
        }
        Ok(Ok(Accepted::Job { job: id, created: false }))
    }

    fn choose(&mut self, policy: String, by: String) -> Answered {
        if let Err(error) = self.options.registry.parse(&policy) {
            return Ok(Err(refused(RefusalKind::Invalid, error)));
        }
        if policy != self.state.policy {
            self.write(Entry::PolicyChosen { policy, by })?;
        }
        Ok(Ok(Accepted::Policy))
    }
}

/// A job that is over stays as it is.
fn over(name: &str, outcome: Outcome) -> Refusal {
    let how = match outcome {
        Outcome::Finished => "has finished",
        Outcome::Failed | Outcome::Refused => "has failed",
        Outcome::Cancelled => "was cancelled",
    };
    let error =
        InputError::new(name, format!("the job {how}")).hint("submit it again with `bellwether submit`");
    refused(RefusalKind::Conflict, error)
}

/// Its plan says how many workers such a job has, and changes that by itself.
fn not_limited(name: &str) -> Refusal {
    let error = InputError::new(name, "it has machines of its own, and its plan says how many");
    refused(RefusalKind::Conflict, error.hint("cancel it, and submit it again with another plan"))
}

/// Steps of a whole job, which has some.
pub(super) fn steps_of(job: &CheckedJob, task: Task) -> Result<u64, InputError> {
    match job.total_steps(task.training_samples) {
        0 => Err(InputError::new("epochs", "the job has no steps at all")),
        steps => Ok(steps),
    }
}

/// Refuses a share and a deadline that are none.
pub(super) fn check_wishes(weight: f64, deadline_s: Option<f64>) -> Result<(), InputError> {
    if !(weight.is_finite() && weight > 0.0 && weight <= 1e6) {
        let error = InputError::new("priority", format!("{weight} is not a weight"));
        return Err(error.hint("write a number above 0, up to a million; 1 is usual"));
    }
    if deadline_s.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
        return Err(InputError::new("deadline", "is not a time from now").hint("write for example 2h"));
    }
    Ok(())
}
