//! A session: everything that a run needs, gathered before it begins, and the run itself.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, CheckpointUrl, Reduce, WorkerRange};
use bellwether_core::plan::Plan;
use bellwether_core::record::{Planned, RunOutcome, Summary};
use bellwether_core::units::DollarsPerHour;
use bellwether_runtime::control::Token;
use bellwether_runtime::coordinator::{self, Director, MeasureLinks, Options};
use bellwether_runtime::membership::{WorkerId, WorkloadDescription};
use bellwether_runtime::optimizer::Optimizer;
use bellwether_runtime::run_dir::{RunDir, StateDir};
use bellwether_sched::synchronise::Setup;

use crate::begin::choose::{self, InitialSize};
use crate::begin::outset::{Asked, Outset};
use crate::begin::speed;
use crate::begin::store::{self, Origin};
use crate::director::autoscale::{Autoscale, Autoscaler};
use crate::director::revocations::{RevocationDirector, Vanishing};
use crate::director::shares::{ShareDirector, Sharing};
use crate::director::stop::StopRules;
use crate::director::stragglers::Replacer;
use crate::director::windows::Expected;
use crate::director::{batch, rung, servers, synchronise, together};
use crate::error::RunError;
use crate::options::{LOOPBACK, Timeouts, is_free, options, reachable};
use crate::outlook::Outlook;
use crate::pressure::Pressure;
use crate::{Note, Observe, Progress, Spawn, WorkloadBuilder, compare, export, initial};

pub(crate) mod builder;

/// A run that is about to begin. [`Session::builder`] makes one.
///
/// # Threads instead of processes
///
/// With [`Spawn::Threads`] workers are threads of this process. They train the same bits as processes do,
/// join, leave and are lost in the same way, and differ in this:
///
/// - One that is killed vanishes when it has computed its present micro-batch, not at once; one that computes
///   for ever is left behind when the run ends. One that panics is lost; one that aborts the process takes
///   the run with it.
/// - They end with this process: the run is taken up again from its last checkpoint, not from the workers'
///   memory.
/// - They share what a process has once: its allocator, a global pool of threads (a workload whose bits
///   depend on the number of threads in a kernel must fix it), the file descriptors, and the peak of resident
///   memory that the summary names.
pub struct Session {
    job: CheckedJob,
    workload: WorkloadBuilder,
    state_dir: Option<StateDir>,
    resumed: Option<RunDir>,
    /// Where the checkpoints are that a new run goes on from.
    origin: Option<CheckpointUrl>,
    spawn: Spawn,
    /// `None`: as the job says.
    workers: Option<WorkerRange>,
    start: Option<u32>,
    chooses: bool,
    schedule: Vec<(u64, u32)>,
    speeds: Vec<f64>,
    /// `None`: as the job's mode has it.
    sharing: Option<Sharing>,
    plan: Option<Plan>,
    price: Option<DollarsPerHour>,
    listen: Option<SocketAddr>,
    autoscale: Option<Autoscale>,
    stragglers_per_hour: Option<u32>,
    vanishing: Option<Vanishing>,
    directors: Vec<Box<dyn Director>>,
    timeouts: Timeouts,
    replaces_alone: bool,
    accept_other_data: bool,
    plain_transport: Option<String>,
    /// In place of one of the run's own.
    token: Option<Token>,
}

/// What was found out before the run began.
struct Beginning {
    outset: Outset,
    description: WorkloadDescription,
    planned: Option<Planned>,
    origin: Option<Origin>,
    /// Weights of another run that training begins with.
    weights: Option<Vec<f32>>,
    /// Workers at the start.
    initial: u32,
}

impl Session {
    /// Trains to the end of the job, or until the run is stopped or fails, and says how it ended. Nothing is
    /// printed; `observe` hears what happens.
    ///
    /// # Errors
    ///
    /// Returns an error if the run cannot begin. What goes wrong later is in the summary.
    pub fn run(mut self, observe: &mut Observe<'_>) -> Result<(Summary, RunOutcome), RunError> {
        self.check()?;
        let listen = self.listen_at()?;
        let begun = self.begin(observe)?;
        let Beginning { outset, description, planned, initial, .. } = &begun;
        let speeds = speed::known(&self.job, *initial, &self.speeds)?;
        let run = match self.resumed.clone() {
            Some(run) => run,
            None => self.find_state_dir()?.create(&self.job, self.plain_transport.is_some())?,
        };
        run.keep_schedule(&outset.schedule)?;
        if let Some(origin) = &begun.origin {
            run.keep_origin(&origin.url)?;
        }
        let initial_weights = match (&begun.weights, self.workload.initial_weights()) {
            (Some(values), _) => Some(run.keep_initial_values(values)?),
            (None, given) => given.map(|file| run.keep_initial_weights(&file)).transpose()?,
        };
        self.token.iter().try_for_each(|token| run.take_token(token))?;
        if run.renew_token()? {
            observe(Progress::Note(Note::NewToken(run.token_file())));
        }
        let provider = self.vanishing.take().map(RevocationDirector::new);
        let setup = synchronise::setup(&self.job, description, self.tuned_dir().as_ref())?;
        let mut directors: Vec<Box<dyn Director>> = planned.iter().map(InitialSize::director).collect();
        directors.extend(provider.iter().map(RevocationDirector::director).chain(batch::director(&self.job)));
        if let Some(asked) = &self.autoscale {
            directors.push(Box::new(Autoscaler::new(asked, &self.job, self.range(), &run)?));
        }
        directors.extend(self.share_director(description));
        directors.extend(self.straggler_director(&speeds));
        directors.extend(servers::director(&self.job, description));
        directors.extend(setup.map(synchronise::director));
        directors.extend(StopRules::director(&self.job, &run)?);
        directors.extend(rung::director(&run));
        directors.extend(self.spawn.director(&run)?);
        directors.append(&mut self.directors);
        let filled = Options {
            speeds,
            initial_weights,
            director: together(directors),
            ..self.options(&run, &begun, setup, listen)?
        };
        observe(Progress::Begins(&run));
        let pressure = Pressure::begin();
        let ended = coordinator::run(filled, &mut |seen| observe(Progress::Observed(seen)));
        let (mut summary, outcome) =
            ended.map_err(|source| RunError::Coordinator { run: run.clone(), source: Box::new(source) })?;
        let most = summary.workers.iter().copied().max().unwrap_or(0);
        summary.processor_wait = pressure.and_then(|pressure| pressure.share(most));
        observe(Progress::Ends);
        let (parameters, state) = (description.layout.parameter_count(), description.layout.state_count());
        let bytes = self.job.exchange.precision.bytes() * parameters as u64 + 4 * state as u64;
        let by_hand = matches!(self.spawn, Spawn::ByHand);
        let learnt = compare::learn(&run, &self.job, bytes, outset.first_step, by_hand);
        summary.predictions =
            learnt.as_ref().map_or(Vec::new(), |learnt| compare::comparisons(learnt, self.job.batch.size));
        summary.revocations =
            provider.map(|provider| provider.report(&self.job, &summary, learnt.as_ref(), self.price));
        summary.planned = begun.planned;
        if let Spawn::Machines(_, machines) = &self.spawn {
            summary.provisioned = machines.account();
        }
        summary.decisions = compare::decisions(&run);
        // Where it cannot be written, the caller has it all the same.
        let _ = run.keep_summary(&summary);
        Ok((summary, outcome))
    }

    /// What replaces workers that are slow for no known reason, where that was asked for.
    fn straggler_director(&self, speeds: &BTreeMap<WorkerId, f64>) -> Option<Box<dyn Director>> {
        let expected = match self.sharing_or_usual() {
            Sharing::Measured => Expected::SameTime,
            Sharing::Equal => Expected::Speeds(speeds.clone()),
        };
        self.stragglers_per_hour
            .map(|per_hour| Box::new(Replacer::new(per_hour, expected)) as Box<dyn Director>)
    }

    /// Finds out what the run begins with.
    fn begin(&self, observe: &mut Observe<'_>) -> Result<Beginning, RunError> {
        let mut outset = self.outset(observe)?;
        if self.spawn.is_on_cluster() {
            store::check_elsewhere(&self.job)?;
        }
        let origin = store::find(&self.job, self.origin.as_ref())?;
        outset.first_step = origin.as_ref().map_or(outset.first_step, |origin| origin.step);
        let mut workload = self.workload.build(&self.job)?;
        let description = WorkloadDescription::of(workload.as_ref());
        let weights = match &self.job.initial_weights {
            Some(file) if !self.has_checkpoint(&description) => {
                Some(initial::values(file, &self.job, workload.as_mut())?)
            }
            // Unlike machines may draw other weights from the same seed.
            None if self.job.is_open_to_any_class()
                && self.workload.initial_weights().is_none()
                && !self.has_checkpoint(&description) =>
            {
                Some(initial::drawn(&self.job, workload.as_mut()))
            }
            _ => None,
        };
        drop(workload);
        self.job.stop.check_measured(description.held_out_samples)?;
        let workers = outset.workers;
        let mut planned = None;
        if self.will_measure(&outset) {
            let trained = (&description, &self.workload);
            planned = Some(choose::choose(&self.job, trained, &self.spawn, workers, self.price, observe)?);
        }
        // A cluster gives what it has, and the run begins with that.
        let usual = match self.spawn {
            Spawn::Slurm(..) | Spawn::Machines(..) if !outset.is_scaled => workers.max,
            _ => workers.initial(),
        };
        let told = self.start.unwrap_or(usual);
        let initial = planned.as_ref().map_or(told, |planned| planned.workers);
        Ok(Beginning { outset, description, planned, origin, weights, initial })
    }

    /// Whether it goes on from a checkpoint of its own.
    fn has_checkpoint(&self, workload: &WorkloadDescription) -> bool {
        let optimizer = Optimizer::new(&self.job, 0);
        let newest = |run| export::newest(run, &self.job, &workload.layout, &optimizer.slots());
        self.resumed.as_ref().is_some_and(|run| matches!(newest(run), Ok(Some(_))))
    }

    fn outset(&self, observe: &mut Observe<'_>) -> Result<Outset, RunError> {
        let asked = Asked {
            workers: self.workers,
            range: self.job.workers,
            schedule: &self.schedule,
            autoscaled: self.autoscale.is_some(),
        };
        Outset::find(&asked, (&self.job, self.resumed.as_ref()), observe)
    }

    /// Whether a measurement chooses the number of workers at the start.
    fn will_measure(&self, outset: &Outset) -> bool {
        // A run that is taken up again, or has a schedule, begins as it was told.
        let is_told = self.resumed.is_some() || !outset.schedule.is_empty() || self.start.is_some();
        let is_range = outset.workers.min < outset.workers.max;
        // What a job of a cluster does here first, its own folder apart, would have to wait in the queue once more.
        let is_elsewhere = matches!(self.spawn, Spawn::ByHand) || self.spawn.is_on_cluster();
        self.chooses && !is_told && !is_elsewhere && is_range
    }

    /// Finds out what this session would start, and begins nothing.
    ///
    /// # Errors
    ///
    /// What [`run`](Session::run) would refuse before it begins.
    pub fn outlook(&self) -> Result<Outlook, RunError> {
        self.check()?;
        let outset = self.outset(&mut |_| {})?;
        let description = WorkloadDescription::of(self.workload.build(&self.job)?.as_ref());
        let mut outlook = Outlook::new(&self.job, &outset, &description);
        let first = self.start.unwrap_or(outset.workers.initial());
        outlook.initial_workers = (!self.will_measure(&outset)).then_some(first);
        match &self.resumed {
            Some(run) => outlook.resumes(run),
            None => outlook.begins(&self.find_state_dir()?, &self.job, self.plan.as_ref()),
        }
        Ok(outlook)
    }

    /// The options of the coordinator, but for who steers the run.
    fn options(
        &self,
        run: &RunDir,
        begun: &Beginning,
        setup: Option<Setup>,
        listen: SocketAddr,
    ) -> Result<Options, RunError> {
        let Beginning { outset, description, planned, initial, .. } = begun;
        let plan = self.plan.as_ref();
        Ok(Options {
            workers: *initial,
            min_workers: self.fewest(outset),
            max_workers: outset.workers.max,
            schedule: outset.schedule.clone(),
            spawn: self.spawn.workers(run, &self.workload)?,
            spawn_server: self.spawn.servers(run)?,
            synchronisation: synchronise::synchronisation(&self.job, description, setup.as_ref(), plan)?,
            heartbeat_timeout: self.timeouts.heartbeat,
            grace: self.timeouts.grace,
            last_checkpoint_wait: self.timeouts.last_checkpoint,
            accept_other_data: self.accept_other_data,
            plain_transport: self.plain_transport.clone(),
            expected_step_s: planned
                .as_ref()
                .map(|planned| self.job.batch.size as f64 / planned.examples_per_s),
            replaces_alone: self.replaces_alone,
            measure_links: match self.sharing_or_usual() {
                Sharing::Measured => MeasureLinks::OfOtherMachines,
                Sharing::Equal => MeasureLinks::Never,
            },
            ..options(run, self.job.clone(), description, listen)?
        })
    }

    /// How the workers share the virtual nodes: in mode `mixed` by what they take, unless it was said otherwise.
    fn sharing_or_usual(&self) -> Sharing {
        let usual = if self.job.mode.is_mixed() { Sharing::Measured } else { Sharing::Equal };
        self.sharing.unwrap_or(usual)
    }

    /// Who moves virtual nodes between workers, where it was asked for.
    fn share_director(&self, description: &WorkloadDescription) -> Option<Box<dyn Director>> {
        // Units of work are granted one by one at servers.
        let is_asked =
            self.sharing_or_usual() == Sharing::Measured && self.job.sync.reduce == Reduce::AllReduce;
        // Who is late is replaced, and the number of workers is another's to choose.
        let stay =
            self.stragglers_per_hour.is_some() || self.autoscale.is_some() || !self.schedule.is_empty();
        let fewest = if stay { usize::MAX } else { self.range().min as usize };
        let parameters = description.layout.parameter_count() as u64;
        let bytes = self.job.exchange.precision.bytes() * parameters;
        is_asked.then(|| Box::new(ShareDirector::new(self.job.batch.size, bytes, fewest)) as _)
    }

    /// The fewest workers to begin with while the others wait for machines: also where a daemon asks for a number, as
    /// much as the job itself allows.
    fn fewest(&self, outset: &Outset) -> u32 {
        outset.workers.min.min(self.job.workers.min)
    }

    /// The numbers of workers that are allowed.
    fn range(&self) -> WorkerRange {
        self.workers.unwrap_or(self.job.workers)
    }

    /// Where to listen: as asked for, or where the workers of a run that is taken up look.
    fn listen_at(&self) -> Result<SocketAddr, RunError> {
        let before = || self.resumed.as_ref().and_then(RunDir::endpoint).map(|endpoint| endpoint.control);
        let listen = self.listen.or_else(before).unwrap_or(LOOPBACK);
        reachable(listen)?;
        if self.resumed.is_none() {
            // An address that is not this machine's is refused before anything is measured or made.
            is_free(listen)?;
        }
        Ok(listen)
    }

    fn find_state_dir(&self) -> Result<StateDir, RunError> {
        self.state_dir.clone().map_or_else(|| Ok(StateDir::find(None)?), Ok)
    }

    /// Where the results of searches lie; of a run that is taken up from elsewhere beside it.
    fn tuned_dir(&self) -> Option<StateDir> {
        let beside = || self.resumed.as_ref().and_then(|run| run.path.parent()).map(Into::into);
        self.state_dir.clone().or_else(|| StateDir::find(beside()).ok())
    }

    /// Finds out, before anything is begun, whether the job can be trained by as many workers as were asked
    /// for.
    ///
    /// # Errors
    ///
    /// Returns an error for more workers than virtual nodes, or scheduled steps that do not rise.
    pub fn check(&self) -> Result<(), RunError> {
        let (nodes, workers) = (self.job.batch.virtual_nodes, self.range());
        let wrong = |place: &str, what: String, hint: String| {
            Err(RunError::Option(InputError::new(place, what).hint(hint)))
        };
        if workers.min == 0 || workers.min > workers.max {
            return wrong("workers", format!("{workers} is not a range of numbers from 1 on"), String::new());
        }
        if workers.max > nodes {
            let what = format!("{} workers cannot share {nodes} virtual nodes", workers.max);
            let hint = format!(
                "use at most {nodes}, or raise batch.virtual_nodes (this changes the job's identity)"
            );
            return wrong("workers", what, hint);
        }
        if let Some((step, count)) = self.schedule.iter().find(|(_, count)| *count > nodes) {
            let what = format!("{step}:{count}: {count} workers cannot share {nodes} virtual nodes");
            return wrong("resize", what, format!("use at most {nodes}"));
        }
        if !self.schedule.windows(2).all(|pair| pair[0].0 < pair[1].0) {
            return wrong("resize", "the steps do not rise".into(), "sort them, each step once".into());
        }
        Ok(())
    }
}
