//! A queue where jobs are: its policy, the part of the cluster that this policy sees, and what its jobs need.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::cluster::{Allocation, ClusterView, Job, JobId, JobView, Node, NodeId};
use bellwether_core::policy::{Action, Changes, Decision, Policy, PolicyInput};
use bellwether_core::prediction::StepModel;

use super::wide::Wide;

/// What a job needs, and on which types of device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need {
    /// The fewest devices that it runs on under the policy.
    least: u32,
    /// The most.
    most: u32,
    /// What its author asked for.
    asked: u32,
    /// The type that it holds; those that it accepts while it waits.
    kinds: Vec<u16>,
    waits: bool,
}

/// A queue without queues below it.
pub(super) struct Leaf {
    /// Its index in the tree.
    pub(super) queue: usize,
    policy: Box<dyn Policy + Send>,
    gangs: bool,
    /// What the policy sees. Nodes have the devices that this queue holds or may take; behind them stands each node
    /// again as a whole, down, so that the policy knows how large nodes are and how wide a job can become.
    pub(super) view: ClusterView,
    /// What happened since the policy was last asked.
    pub(super) changes: Changes,
    /// By node, devices that its jobs hold.
    pub(super) own: Vec<u32>,
    /// The same by type of device.
    pub(super) held: Vec<u32>,
    /// By type, the most that it may ever hold.
    pub(super) limits: Vec<u32>,
    /// Jobs whose authors let them have more.
    pub(super) wide: Wide,
    /// By type: devices that the policy might have taken when it was last asked, and did not.
    pub(super) left: Vec<u32>,
    /// By type, how wide the jobs are that the policy is shown; any, where it saw all devices or was not asked yet.
    rooms: Vec<u32>,
    needs: BTreeMap<JobId, Need>,
    /// By type and by the fewest devices: devices that jobs can use.
    demand: Vec<BTreeMap<u32, u64>>,
    /// The same of jobs that wait, and devices that they asked for.
    open: Vec<BTreeMap<u32, u64>>,
    /// Jobs that wait, by the fewest devices that they run on.
    waiting: BTreeSet<(u32, JobId)>,
    /// Jobs that wait and that the policy does not see, because its part of the cluster is too small for them.
    pub(super) hidden: BTreeMap<JobId, JobView>,
    /// When the policy wants to be asked again, in seconds.
    pub(super) wakeup_s: Option<f64>,
    /// Whether it is asked though nothing changed for it.
    is_woken: bool,
    /// How often it was asked for this decision.
    pub(super) asked: u32,
    /// Whether it was ever asked.
    begun: bool,
    /// Jobs that it left waiting.
    left_waiting: u32,
    /// Jobs whose devices the last decision changed.
    touched: BTreeSet<JobId>,
    /// Jobs that gave devices back and went on with fewer: what they held before, and what was left to them.
    pub(super) shrunk: BTreeMap<JobId, (u32, Allocation)>,
    /// Jobs of which the policy was told a speed that was not measured.
    guessed: BTreeSet<JobId>,
}

impl Leaf {
    pub(super) fn new(queue: usize, policy: Box<dyn Policy + Send>, gangs: bool) -> Leaf {
        Leaf {
            queue,
            policy,
            gangs,
            view: ClusterView::default(),
            changes: Changes::default(),
            own: Vec::new(),
            held: Vec::new(),
            limits: Vec::new(),
            wide: Wide::default(),
            left: Vec::new(),
            rooms: Vec::new(),
            needs: BTreeMap::new(),
            demand: Vec::new(),
            open: Vec::new(),
            shrunk: BTreeMap::new(),
            waiting: BTreeSet::new(),
            hidden: BTreeMap::new(),
            wakeup_s: None,
            is_woken: false,
            asked: 0,
            begun: false,
            left_waiting: 0,
            touched: BTreeSet::new(),
            guessed: BTreeSet::new(),
        }
    }

    /// Takes over what never changes of a cluster, with no devices of its own.
    pub(super) fn begin(&mut self, view: &ClusterView, limits: Vec<u32>) {
        self.limits = limits;
        let none = |node: &Node| Node { devices: 0, free: 0, ..*node };
        let behind = |node: &Node| Node { devices: 0, free: 0, up: false, ..*node };
        self.view = ClusterView {
            device_types: view.device_types.clone(),
            nodes: view.nodes.iter().map(none).chain(view.nodes.iter().map(behind)).collect(),
            jobs: BTreeMap::new(),
            link: view.link,
            local_link: view.local_link,
            restart_s: view.restart_s,
            packs: view.packs,
        };
        let types = view.device_types.len();
        self.own = vec![0; view.nodes.len()];
        (self.held, self.left) = (vec![0; types], vec![0; types]);
        self.demand = vec![BTreeMap::new(); types];
        self.open = vec![BTreeMap::new(); types];
    }

    /// Whether it has jobs, or had some.
    pub(super) fn is_used(&self) -> bool {
        self.begun || !self.needs.is_empty()
    }

    /// Jobs that wait after the last decision, seen or not.
    pub(super) fn waiting(&self) -> u32 {
        self.left_waiting + self.hidden.len() as u32
    }

    /// Whether the policy has to be asked: something changed, or it wants to be.
    pub(super) fn is_due(&self) -> bool {
        self.is_used() && (self.is_woken || !self.changes.is_empty())
    }

    /// Wakes the policy if it wanted to be asked by now, or in any case.
    pub(super) fn wake(&mut self, now_s: f64, in_any_case: bool) {
        self.is_woken |= in_any_case || self.wants_to_wake(now_s);
    }

    /// Whether the policy wanted to be asked by now.
    pub(super) fn wants_to_wake(&self, now_s: f64) -> bool {
        self.wakeup_s.is_some_and(|wakeup_s| wakeup_s <= now_s)
    }

    /// A job is other than it was before this decision.
    pub(super) fn touch(&mut self, id: JobId) {
        self.touched.insert(id);
    }

    /// Something else is known of a job.
    pub(super) fn revise(&mut self, id: JobId, seen: &JobView) {
        // One that was stopped just now is not as the cluster shows it.
        if !self.touched.contains(&id) {
            self.renew(id, seen);
        }
        if self.view.jobs.contains_key(&id) {
            self.changes.revised.push(id);
        } else {
            // It may no longer be too wide.
            self.is_woken = true;
        }
    }

    /// Devices of a type that jobs can use which run on at most `most` at least.
    pub(super) fn demand(&self, kind: usize, most: u32) -> u64 {
        let demand = self.demand.get(kind);
        demand.map_or(0, |demand| demand.range(..=most).map(|(_, devices)| devices).sum())
    }

    /// Devices of a type that jobs asked for which wait, and run on at most `most` at least.
    pub(super) fn open(&self, kind: usize, most: u32) -> u64 {
        self.open[kind].range(..=most).map(|(_, devices)| devices).sum()
    }

    /// Of jobs that need at most `most` devices, the number that the one needs which needs most; 0 without jobs.
    pub(super) fn widest(&self, kind: usize, most: u32) -> u32 {
        let demand = self.demand.get(kind);
        demand.and_then(|demand| demand.range(..=most).next_back()).map_or(0, |(least, _)| *least)
    }

    /// Whether jobs could use more devices of a type than they hold.
    pub(super) fn wants(&self, kind: usize) -> bool {
        self.demand(kind, u32::MAX) > u64::from(self.held[kind])
    }

    /// The fewest devices that a job runs on.
    pub(super) fn least(&self, job: &Job) -> u32 {
        if self.gangs { job.asked() } else { job.min_devices.max(1) }
    }

    fn need(&self, seen: &JobView) -> Need {
        let job = &seen.job;
        let least = self.least(job);
        let most = if self.gangs { job.asked() } else { job.max_devices.max(least) };
        let held = seen.allocation.shares().first();
        let kinds = match held {
            Some(share) => vec![self.view.nodes[share.node.0 as usize].device_type],
            None => (0..self.held.len() as u16).filter(|kind| job.accepts(*kind)).collect(),
        };
        Need { least, most, asked: job.asked(), kinds, waits: held.is_none() }
    }

    /// Forgets what a job needs.
    fn forget(&mut self, id: JobId) {
        let Some(need) = self.needs.remove(&id) else { return };
        let subtract = |by_least: &mut BTreeMap<u32, u64>, devices: u32| {
            if let Some(sum) = by_least.get_mut(&need.least) {
                *sum -= u64::from(devices);
                if *sum == 0 {
                    by_least.remove(&need.least);
                }
            }
        };
        for kind in need.kinds.iter().map(|kind| usize::from(*kind)) {
            subtract(&mut self.demand[kind], need.most);
            if need.waits {
                subtract(&mut self.open[kind], need.asked);
            }
        }
        self.waiting.remove(&(need.least, id));
    }

    /// Notes what a job needs now.
    pub(super) fn note(&mut self, id: JobId) {
        let Some(seen) = self.view.jobs.get(&id).or(self.hidden.get(&id)) else { return };
        let need = self.need(seen);
        if self.needs.get(&id) == Some(&need) {
            return;
        }
        self.forget(id);
        for kind in need.kinds.iter().map(|kind| usize::from(*kind)) {
            *self.demand[kind].entry(need.least).or_default() += u64::from(need.most);
            if need.waits {
                *self.open[kind].entry(need.least).or_default() += u64::from(need.asked);
            }
        }
        if need.waits {
            self.waiting.insert((need.least, id));
        }
        self.needs.insert(id, need);
    }

    /// A job comes, as the cluster shows it.
    pub(super) fn arrive(&mut self, id: JobId, seen: &JobView) {
        if seen.beside.is_none_or(|other| id < other) {
            let held = seen.allocation.clone();
            self.hold(&held);
        }
        let shown = self.shown(id, seen);
        self.view.jobs.insert(id, shown);
        self.changes.arrived.push(id);
        self.note(id);
    }

    /// A job goes, as it was last seen.
    pub(super) fn end(&mut self, id: JobId, seen: &JobView) {
        self.hidden.remove(&id);
        self.wide.forget(id);
        self.vacate(id);
        self.forget(id);
        let is_new = self.changes.arrived.contains(&id);
        self.changes.arrived.retain(|arrived| *arrived != id);
        if self.view.jobs.remove(&id).is_some() && !is_new {
            self.changes.ended.push((id, seen.clone()));
        }
    }

    /// A job lost its devices; `seen` is how the cluster shows it now, if it does.
    pub(super) fn lose(&mut self, id: JobId, freed: &Allocation, seen: Option<&JobView>) {
        self.vacate(id);
        if !self.hidden.contains_key(&id) && !self.changes.arrived.contains(&id) {
            self.changes.lost.push((id, freed.clone()));
        }
        match seen {
            Some(seen) => self.renew(id, seen),
            None => {
                self.wide.forget(id);
                self.forget(id);
                self.view.jobs.remove(&id);
                self.hidden.remove(&id);
            }
        }
    }

    /// Takes over how the cluster shows a job that holds what it held.
    pub(super) fn renew(&mut self, id: JobId, seen: &JobView) {
        if self.hidden.contains_key(&id) {
            let shown = self.shown(id, seen);
            self.hidden.insert(id, shown);
        } else if let Some(known) = self.view.jobs.get(&id) {
            if known.allocation != seen.allocation {
                self.correct(id, seen);
            }
            let shown = self.shown(id, seen);
            self.view.jobs.insert(id, shown);
        }
        self.note(id);
    }

    /// A job holds something else than it was given: the world did not carry out what was decided.
    fn correct(&mut self, id: JobId, seen: &JobView) {
        let freed = self.vacate(id);
        if seen.beside.is_none() {
            self.hold(&seen.allocation.clone());
        }
        for share in freed.shares().iter().chain(seen.allocation.shares()) {
            self.changes.nodes.push(share.node);
        }
        if seen.is_running() {
            self.changes.revised.push(id);
        } else {
            self.changes.lost.push((id, freed));
        }
    }

    /// Devices are its own from now on.
    fn hold(&mut self, allocation: &Allocation) {
        for share in allocation.shares() {
            let node = share.node.0 as usize;
            self.own[node] += share.devices;
            self.held[usize::from(self.view.nodes[node].device_type)] += share.devices;
        }
    }

    /// A job holds nothing from now on; returns what is free by that.
    pub(super) fn vacate(&mut self, id: JobId) -> Allocation {
        let freed = self.view.vacate(id);
        for share in freed.shares() {
            let node = share.node.0 as usize;
            self.own[node] -= share.devices;
            self.held[usize::from(self.view.nodes[node].device_type)] -= share.devices;
        }
        freed
    }

    /// Carries an action of the policy out in what it sees.
    pub(super) fn carry_out(&mut self, action: &Action, now_s: f64) {
        match action {
            Action::Allocate { job: id, allocation, batch, beside, way, .. } => {
                let Some(before) = self.view.jobs.get(id).map(|seen| seen.allocation.clone()) else { return };
                self.vacate(*id);
                if beside.is_none() {
                    self.hold(allocation);
                    self.view.take(allocation);
                }
                let restart_s = self.view.restart_s;
                let seen = self.view.jobs.get_mut(id).expect("it was there just now");
                (seen.allocation, seen.batch, seen.way) = (allocation.clone(), *batch, *way);
                seen.turn(&before, now_s, restart_s);
                seen.beside = *beside;
                if let Some(other) = beside.and_then(|other| self.view.jobs.get_mut(&other)) {
                    other.beside = Some(*id);
                }
                self.touched.insert(*id);
                self.wide.held_otherwise(*id);
                self.note(*id);
                // One that was revised to need more than there is: the policy must not keep its devices free for it.
                self.is_woken |= allocation.is_empty() && !self.fits(*id);
            }
            Action::Refuse { job, .. } => {
                self.wide.forget(*job);
                self.forget(*job);
                self.view.jobs.remove(job);
            }
        }
    }

    /// Shows the policy the nodes as they are, with these devices that it may take, by node.
    pub(super) fn present(&mut self, nodes: &[Node], offered: &[u32]) {
        let behind = nodes.len();
        for (place, node) in nodes.iter().enumerate() {
            let mut shown = *node;
            if node.up {
                (shown.devices, shown.free) = (self.own[place] + offered[place], offered[place]);
            }
            if self.view.nodes[place] != shown {
                self.view.nodes[place] = shown;
                self.changes.nodes.push(NodeId(place as u32));
            }
            let whole = if shown.devices < node.devices { node.devices } else { 0 };
            (self.view.nodes[behind + place].devices, self.view.nodes[behind + place].free) = (whole, whole);
        }
        let mut up = vec![0; self.held.len()];
        nodes
            .iter()
            .filter(|node| node.up)
            .for_each(|node| up[usize::from(node.device_type)] += node.devices);
        self.show_jobs(&up);
    }

    /// Hides jobs that need more devices than the policy sees, and shows those that no longer do. Where it sees all
    /// that are `up`, by type, other queues are not in the way.
    fn show_jobs(&mut self, up: &[u32]) {
        let room = |kind: usize| match self.view.devices(Some(kind as u16)) {
            devices if devices >= up[kind] => u32::MAX,
            devices => devices,
        };
        self.rooms = (0..self.held.len()).map(room).collect();
        let narrowest = self.rooms.iter().copied().min().unwrap_or(0);
        let wide = self.waiting.range((narrowest.saturating_add(1), JobId(0))..).map(|(_, id)| *id);
        let hides: Vec<JobId> = wide.filter(|id| !self.hidden.contains_key(id) && !self.fits(*id)).collect();
        let shows: Vec<JobId> = self.hidden.keys().copied().filter(|id| self.fits(*id)).collect();
        for id in hides {
            let Some(seen) = self.view.jobs.remove(&id) else { continue };
            let is_new = self.changes.arrived.contains(&id);
            self.changes.arrived.retain(|arrived| *arrived != id);
            // That it lost its devices says that it is gone, too.
            if !is_new && !self.changes.lost.iter().any(|(lost, _)| *lost == id) {
                self.changes.ended.push((id, seen.clone()));
            }
            self.hidden.insert(id, seen);
        }
        for id in shows {
            let seen = self.hidden.remove(&id).expect("it is hidden");
            self.view.jobs.insert(id, seen);
            self.changes.arrived.push(id);
        }
    }

    /// Whether the policy is shown a job that waits.
    fn fits(&self, id: JobId) -> bool {
        let need = &self.needs[&id];
        let room = |kind: &u16| self.rooms.get(usize::from(*kind)).copied().unwrap_or(u32::MAX);
        need.kinds.iter().any(|kind| room(kind) >= need.least)
    }

    /// A decision begins: jobs that the last one touched are as `view` shows them now.
    pub(super) fn follow(&mut self, view: &ClusterView) {
        self.asked = 0;
        for id in std::mem::take(&mut self.touched) {
            let Some(seen) = view.jobs.get(&id) else { continue };
            let other = seen.beside.or_else(|| self.view.jobs.get(&id)?.beside);
            self.renew(id, seen);
            if let Some((other, seen)) = other.and_then(|other| Some((other, view.jobs.get(&other)?))) {
                self.renew(other, seen);
            }
        }
        for id in std::mem::take(&mut self.guessed) {
            if self.view.jobs.contains_key(&id) && !self.changes.revised.contains(&id) {
                self.changes.revised.push(id);
            }
        }
    }

    /// Gives jobs that this decision started or changed the speed that is believed, before the policy is asked again.
    fn guess_speeds(&mut self, model: &dyn StepModel) {
        for &id in &self.touched {
            let Some(seen) = self.view.jobs.get(&id) else { continue };
            let configuration =
                self.view.configuration_in(seen.way(), &seen.job, &seen.allocation, seen.batch);
            let description = &seen.job.description;
            let runs = seen.is_running().then(|| model.predict(description, &configuration).ok()).flatten();
            let rate = runs.map_or(0.0, |found| {
                found.examples_per_s * model.efficiency(description, configuration.batch, seen.done)
            });
            self.view.jobs.entry(id).and_modify(|seen| seen.rate = rate);
            self.guessed.insert(id);
        }
    }

    /// Asks the policy.
    pub(super) fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        if self.asked > 0 {
            self.guess_speeds(input.model);
        }
        let seen = PolicyInput { view: &self.view, changes: &self.changes, ..*input };
        let decision = self.policy.decide(&seen);
        self.changes.clear();
        (self.begun, self.is_woken, self.asked) = (true, false, self.asked + 1);
        self.wakeup_s = decision.next_wakeup_s;
        self.left_waiting = decision.reason.waiting;
        decision
    }
}
