//! Talks to Slurm for one run, on a thread of its own: submits jobs, watches and ends them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_runtime::run_dir::{Endpoint, RunDir, Ticket};

use super::answers::{self, JobStage, NODE_COLUMNS, NodeState, QUEUE_COLUMNS, QueuedJob, SlurmNode};
use super::board::{Post, Role, Shared, Stage, Wish};
use super::ticket::Tickets;
use crate::programs::{Call, ProgramError};

mod submit;

/// Time between two looks at the queue while jobs come or go, and while nothing happens.
const LOOK_EAGER: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_secs(5);

/// Time between two looks at the nodes.
const LOOK_AT_NODES: Duration = Duration::from_secs(10);

/// Time between two looks at where jobs are placed.
const LOOK_AT_PLACEMENT: Duration = Duration::from_millis(200);

/// The longest time between two attempts to submit a job, while the controller is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long jobs of an earlier coordinator wait for somebody who needs them.
const SPARE_PATIENCE: Duration = Duration::from_secs(60);

/// How long jobs whose workers were told that the run is over may take to end by themselves.
const LEAVING_PATIENCE: Duration = Duration::from_secs(5);

/// How long to try to end jobs when the coordinator ends.
const CLOSING_PATIENCE: Duration = Duration::from_secs(20);

/// Makes the script of a job of this role, for this post, with this ticket.
pub(super) type ScriptText = Box<dyn Fn(Role, &Post, &Path) -> String + Send>;

/// How a job of each role is submitted.
pub(super) struct Script {
    /// The options of `sbatch`.
    pub(super) options: Vec<OsString>,
    /// The whole script of a job with this ticket.
    pub(super) text: ScriptText,
    /// Further variables of the job.
    pub(super) environment: Vec<(OsString, OsString)>,
}

/// Talks to Slurm.
pub(super) struct Clerk {
    shared: Arc<Shared>,
    /// The beginning of the comments of this run's jobs.
    mark: String,
    run: RunDir,
    tickets: Tickets,
    script: Script,
    /// Whether the jobs of an earlier coordinator are still to be found.
    adopts: bool,
    /// Tickets of jobs of an earlier coordinator that run and are still to be told where this one is.
    untold: Vec<u64>,
    /// Jobs of an earlier coordinator that wait: those that come next take them.
    spare: BTreeMap<u64, (Role, u64)>,
    adopted_at: Instant,
    queue_at: Instant,
    nodes_at: Instant,
    placement_at: Instant,
    /// Whether the controller did not answer last.
    is_away: bool,
}

impl Clerk {
    pub(super) fn new(shared: Arc<Shared>, key: &str, run: RunDir, script: Script) -> Clerk {
        let now = Instant::now();
        let tickets = Tickets::of(&run);
        Clerk {
            shared,
            mark: mark(key),
            run,
            adopts: !tickets.is_empty(),
            untold: Vec::new(),
            tickets,
            script,
            spare: BTreeMap::new(),
            adopted_at: now,
            queue_at: now,
            nodes_at: now,
            placement_at: now,
            is_away: false,
        }
    }

    /// Works until the desk closes.
    pub(super) fn work(mut self) {
        loop {
            self.place();
            self.look();
            self.tell_where();
            self.take_up();
            self.submit();
            self.dismiss();
            if self.shared.lock().is_closing {
                return self.close();
            }
            self.shared.wait(LOOK_AT_PLACEMENT);
        }
    }

    /// Where jobs may run, if the coordinator was told.
    fn place(&mut self) {
        if Instant::now() < self.placement_at {
            return;
        }
        self.placement_at = Instant::now() + LOOK_AT_PLACEMENT;
        let Ok(Some(placement)) = self.run.placement() else { return };
        let mut board = self.shared.lock();
        let is_new = board.placement.as_ref() != Some(&placement);
        board.placement = Some(placement);
        if !is_new {
            return;
        }
        // What waits for a node that is another's now is submitted again, for another node.
        let mut astray = board.without_room();
        astray.retain(|ticket| matches!(board.posts[ticket].stage, Stage::Waits { .. }));
        drop(board);
        for ticket in astray {
            self.withdraw(ticket);
        }
    }

    /// Takes a waiting job out of the queue; its post is submitted again.
    fn withdraw(&mut self, ticket: u64) {
        let job = self.shared.lock().posts.get(&ticket).and_then(|post| post.stage.job());
        let Some(job) = job else { return };
        // One that begins meanwhile has to be seen first.
        if cancel(&[job], &["--state=PENDING"]).is_err() {
            return;
        }
        let Ok(jobs) = self.queue() else { return };
        if jobs.iter().any(|seen| seen.job == job && seen.state.stage() == JobStage::Runs) {
            return;
        }
        if let Some(post) = self.shared.lock().posts.get_mut(&ticket) {
            (post.stage, post.node) = (Stage::NEW, None);
        }
    }

    /// Tells Slurm which jobs should end.
    fn dismiss(&mut self) {
        for wish in [Wish::Vanish, Wish::Go] {
            let due: Vec<(u64, u64)> = {
                let board = self.shared.lock();
                let is_due = |post: &Post| post.wish == wish && !post.is_told;
                let due = board.posts.iter().filter(|(_, post)| is_due(post));
                due.filter_map(|(ticket, post)| Some((*ticket, post.stage.job()?))).collect()
            };
            if due.is_empty() {
                continue;
            }
            let jobs: Vec<u64> = due.iter().map(|(_, job)| *job).collect();
            let told = match wish {
                // What waits is not signalled, and ends all the same.
                Wish::Vanish => cancel(&jobs, &["--signal=KILL", "--full"]).and_then(|()| cancel(&jobs, &[])),
                _ => cancel(&jobs, &[]),
            };
            match told {
                Ok(()) => {
                    let mut board = self.shared.lock();
                    for (ticket, _) in due {
                        board.posts.entry(ticket).and_modify(Post::told);
                    }
                    self.queue_at = self.queue_at.min(Instant::now() + LOOK_EAGER);
                }
                Err(error) => self.lament(&error),
            }
        }
        if self.adopted_at.elapsed() > SPARE_PATIENCE && !self.spare.is_empty() {
            let spare: Vec<u64> = self.spare.keys().copied().collect();
            if cancel(&spare, &["--state=PENDING"]).is_ok() {
                self.spare.clear();
            }
        }
        let mut board = self.shared.lock();
        for post in board.posts.values_mut() {
            // One that was never submitted, and never will be.
            if post.wish != Wish::Stay && post.stage == Stage::NEW {
                post.stage = Stage::Over { how: "it was not needed any more".into() };
            }
        }
    }

    /// Looks at the queue and the nodes, when it is time to.
    fn look(&mut self) {
        let now = Instant::now();
        let has_jobs = self.shared.lock().posts.values().any(|post| post.stage.job().is_some());
        if now < self.queue_at || !(has_jobs || self.adopts) {
            return;
        }
        match self.queue() {
            Ok(jobs) => self.queue_is(&jobs),
            Err(error) => self.lament(&error),
        }
        if has_jobs && now >= self.nodes_at {
            self.nodes_at = now + LOOK_AT_NODES;
            if let Err(error) = self.nodes() {
                self.lament(&error);
            }
        }
        let is_calm = |post: &Post| !matches!(post.stage, Stage::Unsubmitted { .. } | Stage::Waits { .. });
        let calm = self.shared.lock().posts.values().all(is_calm);
        self.queue_at = Instant::now() + if calm { LOOK } else { LOOK_EAGER };
    }

    /// The jobs of this run in the queue.
    fn queue(&mut self) -> Result<Vec<QueuedJob>, ProgramError> {
        let jobs = jobs_of(&self.mark)?;
        self.answers();
        Ok(jobs)
    }

    fn queue_is(&mut self, jobs: &[QueuedJob]) {
        if std::mem::take(&mut self.adopts) {
            self.adopt(jobs);
        }
        let now = Instant::now();
        let by_number: BTreeMap<u64, &QueuedJob> = jobs.iter().map(|job| (job.job, job)).collect();
        let mut missing = Vec::new();
        {
            let mut board = self.shared.lock();
            for (ticket, post) in &mut board.posts {
                let Some(number) = post.stage.job() else { continue };
                // A controller that has forgotten what it did last gives numbers again.
                let seen = by_number.get(&number).filter(|seen| seen.comment == post.mark);
                match seen.map(|seen| (seen, seen.state.stage())) {
                    Some((seen, JobStage::Waits)) => {
                        post.stage = Stage::Waits { job: number, reason: seen.reason.clone() };
                    }
                    Some((seen, JobStage::Runs)) => {
                        post.stage = Stage::Runs {
                            job: number,
                            node: seen.nodes.clone(),
                            until: seen.left_s.map(|left_s| now + Duration::from_secs_f64(left_s)),
                            is_preempted: seen.is_preempted,
                        };
                    }
                    None if matches!(post.stage, Stage::Forgotten { .. }) => {}
                    Some((_, JobStage::Leaves | JobStage::Over)) | None => {
                        missing.push((*ticket, number, post.mark.clone()));
                    }
                }
            }
        }
        for (ticket, job, mark) in missing {
            self.ask_about(ticket, job, &mark);
        }
    }

    /// What the coordinator before this one left: jobs that wait are taken over by those that come next; those that run
    /// are its workers and servers, which look for their coordinator where their tickets say.
    fn adopt(&mut self, jobs: &[QueuedJob]) {
        self.adopted_at = Instant::now();
        for job in jobs {
            let mut words = job.comment[self.mark.len()..].split_whitespace();
            let role = match words.next() {
                Some("worker") => Role::Worker,
                Some("server") => Role::Server,
                _ => continue,
            };
            let Some(ticket) = words.next().and_then(|ticket| ticket.parse().ok()) else { continue };
            self.tickets.skip(ticket);
            match job.state.stage() {
                JobStage::Waits => drop(self.spare.insert(job.job, (role, ticket))),
                JobStage::Runs => self.keep(role, ticket, job),
                JobStage::Leaves | JobStage::Over => {}
            }
        }
    }

    /// A job of an earlier coordinator that runs is watched as our own are.
    fn keep(&mut self, role: Role, ticket: u64, job: &QueuedJob) {
        let Ok(Ticket { join, number }) = Ticket::read(&self.tickets.file(ticket)) else { return };
        let Ok(join) = join.parse() else { return };
        let stage = Stage::Waits { job: job.job, reason: String::new() };
        let post = Post { mark: job.comment.clone(), stage, ..Post::new(role, number, join) };
        self.shared.lock().posts.insert(ticket, post);
        self.untold.push(ticket);
    }

    /// Writes into the tickets of jobs that run where their coordinator is now, once that is known.
    fn tell_where(&mut self) {
        if self.untold.is_empty() {
            return;
        }
        let own = |endpoint: &Endpoint| endpoint.process == std::process::id();
        let Some(endpoint) = self.run.endpoint().filter(own) else { return };
        let mut board = self.shared.lock();
        for ticket in std::mem::take(&mut self.untold) {
            let Some(post) = board.posts.get_mut(&ticket) else { continue };
            post.join = endpoint.control;
            let told = Ticket { join: endpoint.control.to_string(), number: post.number };
            // Where the disk is full the worker looks where the coordinator was, and ends in the end.
            let _ = self.tickets.write(ticket, &told);
        }
    }

    /// Finds out how a job ended that is not in the queue.
    fn ask_about(&mut self, ticket: u64, job: u64, mark: &str) {
        let call = Call::new("scontrol", ["--oneliner", "show", "job", &job.to_string()]);
        let how = match call.answer() {
            Ok(text) => match answers::record(&text) {
                Ok(_) if !text.contains(mark) => None,
                Ok((state, code)) if matches!(state.stage(), JobStage::Over | JobStage::Leaves) => {
                    let code = code.map_or(String::new(), |code| format!(" (exit code {code})"));
                    Some(format!("its Slurm job {job} is over: {state}{code}"))
                }
                // It was not in the queue for a moment.
                Ok(_) => return,
                Err(what) => return self.lament(&ProgramError::Garbled { program: "scontrol", what }),
            },
            Err(ProgramError::Refused { why, .. }) if why.contains("Invalid job id") => None,
            Err(error) => return self.lament(&error),
        };
        let mut board = self.shared.lock();
        let Some(post) = board.posts.get_mut(&ticket) else { return };
        match how {
            None if matches!(post.stage, Stage::Runs { .. }) && post.wish == Wish::Stay => {
                post.stage = Stage::Forgotten { job };
            }
            how => {
                let how = how.unwrap_or_else(|| format!("its Slurm job {job} is gone"));
                post.stage = Stage::Over { how };
                self.tickets.remove(ticket);
            }
        }
    }

    /// Which nodes of ours take no more jobs.
    fn nodes(&mut self) -> Result<(), ProgramError> {
        let drained = nodes_of(None)?.into_iter().filter(|node| node.state == NodeState::Drains);
        self.shared.lock().drained = drained.map(|node| (node.name, node.reason)).collect();
        Ok(())
    }

    /// Ends what has not ended. Workers have been told that the run is over, and leave by themselves.
    fn close(&mut self) {
        let since = Instant::now();
        let is_theirs = |jobs: &[QueuedJob]| jobs.iter().any(|job| job.state.stage() == JobStage::Runs);
        let has_posts = !self.shared.lock().posts.is_empty();
        if !has_posts && self.spare.is_empty() && !self.adopts {
            return;
        }
        let mut pause = Duration::from_millis(100);
        while since.elapsed() < CLOSING_PATIENCE {
            let Ok(jobs) = self.queue() else {
                // Which have ended is not known: none is left by asking once more for all of them.
                std::thread::sleep(LOOK_EAGER);
                let known: Vec<u64> = {
                    let board = self.shared.lock();
                    board.posts.values().filter_map(|post| post.stage.job()).collect()
                };
                let known: Vec<u64> = known.into_iter().chain(self.spare.keys().copied()).collect();
                if known.is_empty() || cancel(&known, &[]).is_ok() {
                    break;
                }
                continue;
            };
            let ended = |job: &QueuedJob| matches!(job.state.stage(), JobStage::Leaves | JobStage::Over);
            let leaves = since.elapsed() < LEAVING_PATIENCE;
            let may_stay = |job: &QueuedJob| leaves && job.state.stage() == JobStage::Runs;
            let late: Vec<u64> =
                jobs.iter().filter(|job| !ended(job) && !may_stay(job)).map(|job| job.job).collect();
            let done = late.is_empty() || cancel(&late, &[]).is_ok();
            if done && !(leaves && is_theirs(&jobs)) {
                break;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOK_EAGER);
        }
    }

    /// Slurm does not do what it was asked for now; told once until it answers again.
    fn lament(&mut self, error: &ProgramError) {
        self.queue_at = Instant::now() + LOOK_EAGER;
        if !std::mem::replace(&mut self.is_away, true) {
            let note = format!("{error}; workers go on, and it is asked again until it answers");
            self.shared.lock().notes.push(note);
        }
    }

    fn answers(&mut self) {
        if std::mem::take(&mut self.is_away) {
            self.shared.lock().notes.push("Slurm answers again".into());
        }
    }
}

/// The beginning of the comments of the jobs of a run with this key.
pub(super) fn mark(key: &str) -> String {
    format!("bellwether {key} ")
}

/// Jobs of this user in the queue whose comments begin like this.
pub(crate) fn jobs_of(mark: &str) -> Result<Vec<QueuedJob>, ProgramError> {
    let user = format!("--user={}", rustix::process::geteuid().as_raw());
    let text = Call::new("squeue", ["--noheader", "--all", &user, "-O", QUEUE_COLUMNS]).answer()?;
    answers::queue(&text, mark).map_err(|what| ProgramError::Garbled { program: "squeue", what })
}

/// The nodes of a partition, or of all.
pub(crate) fn nodes_of(partition: Option<&str>) -> Result<Vec<SlurmNode>, ProgramError> {
    let partition = partition.map(|name| format!("--partition={name}"));
    let usual = ["--noheader", "--Node", "-o", NODE_COLUMNS].map(str::to_owned);
    let text = Call::new("sinfo", usual.into_iter().chain(partition)).answer()?;
    answers::nodes(&text).map_err(|what| ProgramError::Garbled { program: "sinfo", what })
}

/// Ends jobs. Those that have ended are as they should be.
pub(crate) fn cancel(jobs: &[u64], options: &[&str]) -> Result<(), ProgramError> {
    let numbers = jobs.iter().map(u64::to_string);
    let arguments = options.iter().map(ToString::to_string).chain(numbers);
    match Call::new("scancel", arguments).answer() {
        Err(ProgramError::Refused { why, .. })
            if ["Invalid job id", "already completing", "not pending", "not running"]
                .iter()
                .any(|words| why.contains(words)) =>
        {
            Ok(())
        }
        other => other.map(drop),
    }
}
