//! Queues around any policy: each has its guaranteed share as soon as its jobs need it, and lends what it does not use.
//!
//! Every [queue](bellwether_core::queue) where jobs are has a policy of its own, which sees a smaller cluster: the
//! devices that its jobs hold, those that are free, and those that it may claim although another queue has borrowed
//! them. So policies need not know of queues, whatever they remember and however they decide.
//!
//! - What a queue may claim are whole devices of each type: its guarantee as far as its jobs can use it, then its part
//!   of the surplus by weight, within limits. What no queue claims is lent, first to those who had least of late.
//! - A claim is what a policy does with the devices that it sees. Only then are they taken from those who hold more
//!   than they are entitled to, and only as many: jobs that can go on with fewer devices shrink before others stop.
//!   A job that must give devices back is shown to the policy of its own queue as one that lost them.
//! - A job that needs more devices than its queue can have now is not shown to the policy, so that it does not hold up
//!   those behind it.
//! - A job whose author asked for more than its queue may hold asks for the most within the limit that the believed
//!   model can speak of.
//!
//! A decision costs O(nodes + queues) beside what the policies cost that are asked: those whose queues something
//! changed for.

use std::collections::BTreeMap;

use bellwether_core::cluster::{ClusterView, JobId, JobView, Node};
use bellwether_core::policy::{Action, Decision, Policy, PolicyInput};
use bellwether_core::queue::QueueTree;

use crate::speed::Speeds;

mod account;
mod draft;
mod follow;
mod give_back;
mod history;
mod leaf;
mod narrow;
mod offered;
mod reclaim;
mod rights;
mod wide;

pub use account::Account;
use account::Standing;
use draft::Draft;
pub use history::History;
use leaf::Leaf;
use reclaim::Lent;
use rights::Rights;
pub use wide::{most_known, most_within};

/// What queues are entitled to stays as it was when a round of a decision began. Otherwise they would push each other
/// from type to type: jobs that lose devices of one want those of another, and jobs that lose these want the first. In
/// the last round entitlements follow the jobs, and are guarantees only: a queue that holds no more than its guarantee
/// loses nothing.
const ROUNDS: [Round; 3] = [
    Round { deals_surplus: true, asks_max: 4 },
    Round { deals_surplus: true, asks_max: 6 },
    Round { deals_surplus: false, asks_max: 12 },
];

/// A part of a decision.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// Whether queues may claim their part of what no guarantee needs.
    deals_surplus: bool,
    /// A policy is asked no more often than this, earlier rounds included.
    asks_max: u32,
}

/// After this many seconds a decision goes on in which a policy was asked most often and could use more.
const AGAIN_S: f64 = 1.0;

/// A policy in every queue.
pub struct WithQueues {
    tree: QueueTree,
    leaves: Vec<Leaf>,
    /// By queue, its place among the leaves.
    places: BTreeMap<usize, usize>,
    /// By job, the place of its queue among the leaves.
    of_job: BTreeMap<JobId, usize>,
    history: History,
    /// By leaf, with where it stood after the last decision.
    accounts: Vec<(Account, Standing)>,
    /// When the last decision was, in seconds.
    last_s: Option<f64>,
    begun: bool,
    /// The cluster's nodes, with what is free as far as this decision has got.
    nodes: Vec<Node>,
    /// By type of device, what queues are entitled to.
    rights: Vec<Rights>,
    /// By type, devices that are free.
    idle: Vec<u32>,
    /// By type and leaf, devices that it may claim.
    claims: Vec<Vec<u32>>,
    /// What is believed of jobs that are wider than their queues.
    speeds: Speeds,
}

impl WithQueues {
    /// Queues that are divided by `tree`, with a policy from `make` (which is told the queue's name) in each where jobs
    /// are. With `gangs`, a job holds as many devices as it [asks for](bellwether_core::cluster::Job::asked); without,
    /// any number within its limits.
    ///
    /// The tree should [fit the cluster](QueueTree::check_cluster). A job of a queue that is not there is in the
    /// [default one](bellwether_core::queue::DEFAULT_QUEUE).
    pub fn new(
        tree: QueueTree,
        gangs: bool,
        mut make: impl FnMut(&str) -> Box<dyn Policy + Send>,
    ) -> WithQueues {
        let leaf = |queue: usize| Leaf::new(queue, make(&tree.queues()[queue].name), gangs);
        let leaves: Vec<Leaf> = tree.leaves().map(leaf).collect();
        let places = leaves.iter().enumerate().map(|(place, leaf)| (leaf.queue, place)).collect();
        let history = History::new(&tree);
        let of_job = BTreeMap::new();
        let accounts = vec![(Account::default(), Standing::default()); leaves.len()];
        let (nodes, rights, idle, claims) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        WithQueues {
            tree,
            leaves,
            places,
            of_job,
            history,
            accounts,
            last_s: None,
            begun: false,
            nodes,
            rights,
            idle,
            claims,
            speeds: Speeds::new(),
        }
    }

    /// What queues have had of late. All else that it remembers follows from what it is shown.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The names of the queues where jobs are, and what became of their guarantees.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, Account)> {
        let name = |place: usize| self.tree.queues()[self.leaves[place].queue].name.as_str();
        self.accounts.iter().enumerate().map(move |(place, (account, _))| (name(place), *account))
    }

    /// Counts what was since the last decision, and what is from now on.
    fn count(&mut self, now_s: f64) {
        let seconds = self.last_s.map_or(0.0, |last_s| (now_s - last_s).max(0.0));
        for (place, (account, standing)) in self.accounts.iter_mut().enumerate() {
            account.pass(*standing, seconds);
            *standing = Standing::default();
            let leaf = &self.leaves[place];
            for (kind, rights) in self.rights.iter().enumerate() {
                let guarantee = rights.guarantee[leaf.queue];
                standing.add(leaf.held[kind], guarantee, leaf.open(kind, guarantee));
            }
        }
        self.last_s = Some(now_s);
    }

    /// Goes on from what queues had before, as [`history`](WithQueues::history) of the same tree told it.
    #[must_use]
    pub fn with_history(mut self, history: History) -> WithQueues {
        if history.queues() == self.tree.queues().len() {
            self.history = history;
        }
        self
    }

    /// Devices of a type that the jobs of a queue and of those below it hold.
    fn held(&self, queue: usize, kind: usize) -> u32 {
        match self.places.get(&queue) {
            Some(place) => self.leaves[*place].held.get(kind).copied().unwrap_or(0),
            None => self.tree.queues()[queue].children.iter().map(|below| self.held(*below, kind)).sum(),
        }
    }

    /// What each queue is entitled to by the jobs that are there now, and where it stands.
    fn entitle(&mut self, view: &ClusterView, round: Round) {
        let kinds = 0..view.device_types.len();
        self.rights = kinds.map(|kind| self.rights_to(view, kind, round)).collect();
        self.weigh();
    }

    /// What is free, and what each queue may claim of what it is entitled to.
    fn weigh(&mut self) {
        let kinds = 0..self.rights.len();
        self.idle = vec![0; kinds.len()];
        for node in self.nodes.iter().filter(|node| node.up) {
            self.idle[usize::from(node.device_type)] += node.free;
        }
        self.claims = kinds.map(|kind| self.claims_to(kind)).collect();
    }

    fn rights_to(&self, view: &ClusterView, kind: usize, round: Round) -> Rights {
        let name = &view.device_types[kind];
        let up = view.devices(Some(kind as u16));
        let whole = view.devices_with_down(kind as u16);
        let bounds = (self.tree.guarantees(name, up), self.tree.limits(name, whole));
        let leaf = |queue: usize| &self.leaves[self.places[&queue]];
        let demand = |queue: usize, most: u32| leaf(queue).demand(kind, most);
        let widest = |queue: usize, most: u32| leaf(queue).widest(kind, most);
        let order = |queue: usize, width: u32| {
            let holds = leaf(queue).held.get(kind).is_some_and(|held| *held >= width);
            (!holds, self.history.place(&self.tree, queue))
        };
        Rights::new(&self.tree, bounds, (up, round.deals_surplus), demand, widest, order)
    }

    /// By leaf, devices of a type that it lacks of what it is entitled to, as far as they are free or lent.
    fn claims_to(&self, kind: usize) -> Vec<u32> {
        let claim = |leaf: usize| {
            let own = &self.leaves[leaf];
            let entitled = self.rights[kind].entitled[own.queue];
            let lacks = entitled.saturating_sub(own.held.get(kind).copied().unwrap_or(0));
            if lacks == 0 {
                return 0;
            }
            let free = self.idle[kind].min(self.headroom(leaf, kind)).min(lacks);
            let lent: u32 = self.lent(leaf, kind, lacks, free).iter().map(|lent| lent.excess).sum();
            lacks.min(free + lent)
        };
        (0..self.leaves.len()).map(claim).collect()
    }

    /// By leaf, what `leaf` may claim back of a type, when it lacks this many devices and `free` of them are free.
    /// Where a queue above has room for fewer, the others have to come from below it.
    fn lent(&self, leaf: usize, kind: usize, lacks: u32, free: u32) -> Vec<Lent> {
        let path: Vec<usize> = self.tree.path(self.leaves[leaf].queue).collect();
        let room = |at: &usize| self.rights[kind].limit[*at].saturating_sub(self.held(*at, kind));
        let mut rooms: Vec<u32> = path.iter().map(|at| room(at).saturating_sub(free)).collect();
        // How many of the queues on the path another leaf is not below: what it gives is new to them.
        let outside = |other: usize| {
            let is_above = |at: &usize| self.tree.path(self.leaves[other].queue).any(|above| above == *at);
            path.iter().position(is_above).unwrap_or(path.len())
        };
        let others = (0..self.leaves.len()).filter(|other| *other != leaf);
        let mut others: Vec<(usize, usize)> = others.map(|other| (outside(other), other)).collect();
        others.sort_unstable();
        let mut lent = vec![Lent::default(); self.leaves.len()];
        for (outside, other) in others {
            let own = &self.leaves[other];
            let excess = own.held[kind].saturating_sub(self.rights[kind].entitled[own.queue]);
            let room = rooms[..outside].iter().copied().min().unwrap_or(u32::MAX);
            lent[other] = Lent { excess, turn: 0 };
            if room < lacks.saturating_sub(free) {
                let excess = excess.min(room);
                lent[other] = Lent { excess, turn: outside };
                rooms[..outside].iter_mut().for_each(|room| *room -= excess);
            }
        }
        lent
    }

    /// Devices of a type that a leaf may hold beyond those that it holds, by its limit and those above it.
    fn headroom(&self, leaf: usize, kind: usize) -> u32 {
        let path = self.tree.path(self.leaves[leaf].queue);
        let room = |at: usize| self.rights[kind].limit[at].saturating_sub(self.held(at, kind));
        path.map(room).min().unwrap_or(0)
    }

    /// Free devices of a type that a leaf may take: all within its limits, but for what others may claim that have not
    /// decided yet.
    fn free(&self, leaf: usize, kind: usize) -> u32 {
        let (idle, claim) = (self.idle[kind], self.claims[kind][leaf]);
        let is_undecided = |other: &usize| {
            let own = &self.leaves[*other];
            let more = self.claims[kind][*other] > own.left[kind] && own.wants(kind);
            *other != leaf && own.asked == 0 && (own.is_due() || more)
        };
        let others = (0..self.leaves.len()).filter(is_undecided).map(|other| self.claims[kind][other]);
        let reserved = others.fold(0, u32::saturating_add);
        idle.saturating_sub(reserved).max(claim.min(idle)).min(self.headroom(leaf, kind))
    }

    /// Whether a leaf has something to decide: something changed, or it may have more than it left last time.
    fn is_open(&self, leaf: usize) -> bool {
        let own = &self.leaves[leaf];
        let has_more = |kind: usize| {
            own.wants(kind) && self.claims[kind][leaf].max(self.free(leaf, kind)) > own.left[kind]
        };
        own.is_due() || (0..self.rights.len()).any(has_more)
    }

    /// The leaf that is asked next: one that has a claim before others, then one that had less of late.
    fn next(&self, round: Round) -> Option<usize> {
        let may_ask = |at: &usize| self.leaves[*at].asked < round.asks_max && self.is_open(*at);
        let open = (0..self.leaves.len()).filter(may_ask);
        open.min_by_key(|at| {
            let claims = self.claims.iter().any(|claims| claims[*at] > 0);
            (!claims, self.history.place(&self.tree, self.leaves[*at].queue))
        })
    }

    /// Asks the policy of a leaf, and takes from others what it claims.
    fn ask(&mut self, place: usize, input: &PolicyInput<'_>, draft: &mut Draft) {
        let (free, offers) = self.offer(place, input.view);
        let mut offered = free.clone();
        for share in offers.iter().flat_map(|offer| &offer.shares) {
            offered[share.node.0 as usize] += share.devices;
        }
        let leaf = &mut self.leaves[place];
        leaf.present(&self.nodes, &offered);
        let decision = leaf.decide(input);
        let before = leaf.own.clone();
        for action in &decision.actions {
            if let Action::Refuse { job, .. } = action {
                self.of_job.remove(job);
            }
            leaf.carry_out(action, input.now_s);
        }
        for (kind, left) in leaf.left.iter_mut().enumerate() {
            *left = leaf.view.free(Some(kind as u16));
        }
        let after = leaf.own.clone();
        // What it took of a node beyond the free devices that it was offered there.
        let overdraft =
            |((before, after), free): ((&u32, &u32), u32)| after.saturating_sub(*before).saturating_sub(free);
        let mut lacking: Vec<u32> = before.iter().zip(&after).zip(free).map(overdraft).collect();
        for offer in &offers {
            self.collect(offer, &mut lacking, input, draft);
        }
        for leaf in &mut self.leaves {
            leaf.narrow(input, &mut self.speeds);
        }
        for (node, (before, after)) in self.nodes.iter_mut().zip(before.iter().zip(&after)) {
            node.free = (node.free + before).saturating_sub(*after);
        }
        draft.add(decision);
    }

    /// Takes back what is lacking, as far as this job was to give it.
    fn collect(
        &mut self,
        offer: &reclaim::Offer,
        lacking: &mut [u32],
        input: &PolicyInput<'_>,
        draft: &mut Draft,
    ) {
        let mut given = offer.shares.clone();
        for share in &mut given {
            share.devices = share.devices.min(lacking[share.node.0 as usize]);
        }
        given.retain(|share| share.devices > 0);
        let leaf = &mut self.leaves[offer.leaf];
        let Some(seen) = leaf.view.jobs.get(&offer.job).filter(|_| !given.is_empty()) else { return };
        let rest = if offer.stops { None } else { reclaim::remainder(leaf, seen, &given, input) };
        let before = seen.allocation.devices();
        if let Some((rest, _)) = &rest {
            // What it had before the first time counts.
            let had = leaf.shrunk.get(&offer.job).filter(|(_, left)| *left == seen.allocation);
            let had = had.map_or(before, |(had, _)| *had);
            leaf.shrunk.insert(offer.job, (had, rest.clone()));
        }
        let freed = reclaim::take_back(leaf, offer.job, rest, input.now_s, draft.forced());
        for share in freed.shares() {
            let node = share.node.0 as usize;
            draft.reclaimed += share.devices.min(lacking[node]);
            lacking[node] = lacking[node].saturating_sub(share.devices);
            self.nodes[node].free += share.devices;
        }
    }
}

impl Policy for WithQueues {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let held: Vec<u32> = (0..self.tree.queues().len())
            .map(|queue| (0..input.view.device_types.len()).map(|kind| self.held(queue, kind)).sum())
            .collect();
        self.history.follow(input.now_s, self.tree.half_life_s, |queue| held[queue]);
        let mut draft = Draft::default();
        self.follow(input, &mut draft);
        for round in ROUNDS {
            self.entitle(input.view, round);
            let mut is_settled = true;
            while let Some(leaf) = self.next(round) {
                self.ask(leaf, input, &mut draft);
                match round.deals_surplus {
                    true => self.weigh(),
                    false => self.entitle(input.view, round),
                }
                is_settled = false;
            }
            if is_settled {
                break;
            }
        }
        let is_unfinished = (0..self.leaves.len()).any(|leaf| self.is_open(leaf));
        let again_s = is_unfinished.then(|| (input.now_s + AGAIN_S).max(input.now_s.next_up()));
        // Their policies hear of it when they are next asked.
        self.give_back(input, &mut draft);
        self.count(input.now_s);
        let wakeups = self.leaves.iter().filter_map(|leaf| leaf.wakeup_s).chain(again_s);
        let waiting = self.leaves.iter().map(Leaf::waiting).sum();
        draft.finish(input.view, waiting, wakeups.min_by(f64::total_cmp))
    }
}

/// A job as it is when it has just lost all that it held.
fn stopped(seen: &JobView, now_s: f64) -> JobView {
    let mut seen = seen.clone();
    let before = std::mem::take(&mut seen.allocation);
    seen.settle(&before, now_s);
    (seen.allocated_s, seen.progress_s, seen.rate, seen.beside) = (now_s, now_s, 0.0, None);
    seen
}
