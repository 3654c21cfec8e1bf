//! The way uphill: one job after another takes the best devices that it can pay for.

use bellwether_core::cluster::{NodeId, Share};

use super::Problem;
use super::hull::Tables;
use super::layout::{Layout, Row, gains};
use super::pairs::repack;

/// Rounds over all jobs at most; a search that still gains after this many gains little.
const ROUNDS: usize = 30;
/// Wishes that are tried, times jobs: one takes the longer, the more jobs there are.
const WISHES: usize = 40;
/// Pairs of nodes that are packed with jobs that span nodes: each takes some 20 us.
const SPANNING_PAIRS: u64 = 150;
/// Goes uphill until neither a job, two jobs nor a pair of nodes gains, or until `goal` is reached, beyond which there
/// is nothing.
pub(super) fn climb(problem: &Problem, tables: &Tables, layout: &mut Layout, goal: f64) {
    Climber::new(problem, tables, layout).settle(goal, 0);
}

/// Lets jobs take what they would like best, without a price, those first who miss most; the others find a way around
/// it. Where that gains in the end it stays.
pub(super) fn wish(problem: &Problem, tables: &Tables, layout: &mut Layout, goal: f64) {
    let jobs = problem.jobs.len();
    let mut climber = Climber::new(problem, tables, layout);
    let missing = |job: usize| {
        let most = (0..=tables.most(job))
            .map(|devices| tables.packed(job, devices))
            .fold(tables.held[job], f64::max);
        (most - climber.layout.worths[job], job)
    };
    let mut order: Vec<(f64, usize)> = (0..jobs).map(missing).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, job) in order.into_iter().take(WISHES / jobs.max(1)) {
        if !gains(climber.layout.worth(), goal) {
            break;
        }
        climber.wish(job, goal);
    }
}

/// What it costs to free devices of a node, in worth that their holders lose.
#[derive(Clone)]
struct Price {
    /// By devices that are to be freed, beyond those that are free.
    alone: Vec<f64>,
    /// The same when the job that spans nodes has to leave this one.
    shared: Vec<f64>,
}

/// Devices for a job, what they are worth, and what is left of that after all others are paid.
struct Offer {
    row: Row,
    worth: f64,
    gain: f64,
}

impl Offer {
    /// Keeps the offer with more gain.
    fn consider(&mut self, gain: f64, offer: impl FnOnce() -> (Row, f64)) {
        if gain > self.gain {
            let (row, worth) = offer();
            *self = Offer { row, worth, gain };
        }
    }
}

fn nodes(row: &[Share]) -> Vec<usize> {
    row.iter().map(|share| share.node.0 as usize).collect()
}

struct Climber<'a> {
    problem: &'a Problem<'a>,
    tables: &'a Tables,
    layout: &'a mut Layout,
    prices: Vec<Price>,
    /// By node: the last move that changed it.
    changed: Vec<u64>,
    moves: u64,
    /// Pairs of nodes that were packed with jobs that span nodes.
    solved: u64,
}

/// What a job pays for devices that others hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Terms {
    /// It takes only what is free.
    Free,
    /// What their holders lose.
    Paid,
    /// Nothing.
    Taken,
}

impl<'a> Climber<'a> {
    fn new(problem: &'a Problem<'a>, tables: &'a Tables, layout: &'a mut Layout) -> Climber<'a> {
        let nodes = problem.nodes.len();
        let mut climber = Climber {
            problem,
            tables,
            layout,
            prices: Vec::new(),
            changed: vec![0; nodes],
            moves: 0,
            solved: 0,
        };
        climber.prices = (0..nodes).map(|node| climber.price(node)).collect();
        climber
    }

    /// Goes uphill; of pairs of nodes only those of which one changed at move `since` or later are looked at.
    fn settle(&mut self, goal: f64, mut since: u64) {
        for _ in 0..ROUNDS {
            if !gains(self.layout.worth(), goal) {
                break;
            }
            for _ in 0..ROUNDS {
                if (0..self.problem.jobs.len()).filter(|&job| self.improve(job)).count() == 0 {
                    break;
                }
            }
            let begin = self.moves;
            let exchanged = self.exchange();
            if !self.repack(since) && !exchanged {
                break;
            }
            since = begin;
        }
    }

    fn wish(&mut self, job: usize, goal: f64) {
        let before = self.layout.clone();
        let prices = self.prices.clone();
        let since = self.moves + 1;
        let (row, worth) = self.layout.lift(self.tables, job);
        let offer = self.offer(job, Terms::Taken);
        if gains(worth, offer.gain) {
            let mut undo = vec![(job, row, worth)];
            self.take(job, offer, &mut undo);
            self.refresh(self.touched(&undo));
            self.settle(goal, since);
        }
        if !gains(before.worth(), self.layout.worth()) {
            *self.layout = before;
            self.prices = prices;
        }
    }

    /// Gives a job the best devices that it can pay for; `false` when that gains nothing.
    ///
    /// A job that holds nothing also tries what it would like best: its holders may find another place, which no price
    /// tells.
    fn improve(&mut self, job: usize) -> bool {
        self.attempt(job, Terms::Paid)
            || (self.layout.rows[job].is_empty() && self.attempt(job, Terms::Taken))
    }

    fn attempt(&mut self, job: usize, terms: Terms) -> bool {
        let (row, worth) = self.layout.lift(self.tables, job);
        let own = nodes(&row);
        let fresh: Vec<Price> = own.iter().map(|&node| self.price(node)).collect();
        let kept: Vec<Price> = own
            .iter()
            .zip(fresh)
            .map(|(&node, price)| std::mem::replace(&mut self.prices[node], price))
            .collect();
        let offer = self.offer(job, terms);
        let mut undo = vec![(job, row, worth)];
        if gains(worth, offer.gain) {
            self.take(job, offer, &mut undo);
            let before: f64 = undo.iter().map(|(_, _, worth)| worth).sum();
            let after: f64 = undo.iter().map(|&(changed, ..)| self.layout.worths[changed]).sum();
            if gains(before, after) {
                self.refresh(self.touched(&undo));
                return true;
            }
        }
        for &(changed, ..) in &undo {
            self.layout.lift(self.tables, changed);
        }
        for (changed, row, worth) in undo {
            self.layout.put(changed, row, worth);
        }
        for (&node, price) in own.iter().zip(kept) {
            self.prices[node] = price;
        }
        false
    }

    /// Lets any two jobs exchange all that they hold; `false` when no two gain.
    fn exchange(&mut self) -> bool {
        let begin = self.moves;
        for one in 0..self.problem.jobs.len() {
            for other in one + 1..self.problem.jobs.len() {
                let worth = |job: usize, from: usize| {
                    let row = &self.layout.rows[from];
                    self.layout.worth_of(self.problem, self.tables, job, row)
                };
                let before = self.layout.worths[one] + self.layout.worths[other];
                if self.layout.rows[one].is_empty() && self.layout.rows[other].is_empty()
                    || !gains(before, worth(one, other) + worth(other, one))
                    || !self.may(one, other)
                    || !self.may(other, one)
                {
                    continue;
                }
                let worths = [worth(one, other), worth(other, one)];
                let (first, _) = self.layout.lift(self.tables, one);
                let (second, _) = self.layout.lift(self.tables, other);
                let touched = nodes(&first).into_iter().chain(nodes(&second)).collect();
                self.layout.put(one, second, worths[0]);
                self.layout.put(other, first, worths[1]);
                self.refresh(touched);
            }
        }
        self.moves > begin
    }

    /// Whether a job may hold as many devices as another one does.
    fn may(&self, job: usize, other: usize) -> bool {
        let devices: u32 = self.layout.rows[other].iter().map(|share| share.devices).sum();
        devices == 0 || (self.problem.jobs[job].min_devices..=self.tables.most(job)).contains(&devices)
    }

    /// Packs each pair of nodes again if one of them changed at move `since` or later; `false` when no pair gains.
    fn repack(&mut self, since: u64) -> bool {
        let spanning = self.layout.spread.iter().any(Option::is_some);
        let begin = self.moves;
        for one in 0..self.problem.nodes.len() {
            for other in one + 1..self.problem.nodes.len() {
                let pair = [one, other];
                let is_due = pair.iter().any(|&node| self.changed[node] >= since);
                let touched = pair.map(|node| self.layout.guests[node].clone());
                let spanning = spanning && self.solved < SPANNING_PAIRS;
                self.solved += u64::from(is_due && spanning);
                if is_due && repack(self.problem, self.tables, self.layout, pair, spanning) {
                    let rows = touched.iter().flatten().flat_map(|&job| &self.layout.rows[job]);
                    let nodes = rows.map(|share| share.node.0 as usize).chain(pair).collect();
                    self.refresh(nodes);
                }
            }
        }
        self.moves > begin
    }

    /// Works out the prices of nodes that changed.
    fn refresh(&mut self, mut nodes: Vec<usize>) {
        nodes.sort_unstable();
        nodes.dedup();
        self.moves += 1;
        for node in nodes {
            self.changed[node] = self.moves;
            self.prices[node] = self.price(node);
        }
    }

    /// Carries an offer out: holders give up what is needed, and look for something else among what is free then. Each
    /// job that changes is added to `undo` as it was before.
    fn take(&mut self, job: usize, offer: Offer, undo: &mut Vec<(usize, Row, f64)>) {
        for share in &offer.row {
            let node = share.node.0 as usize;
            for (guest, devices) in self.payers(node, share.devices, offer.row.len() > 1) {
                let less = self.layout.without(self.problem, guest, node, devices);
                let (row, worth) = self.layout.lift(self.tables, guest);
                let left = self.layout.worth_of(self.problem, self.tables, guest, &less);
                self.layout.put(guest, less, left);
                if undo.iter().all(|&(changed, ..)| changed != guest) {
                    undo.push((guest, row, worth));
                }
            }
        }
        self.layout.put(job, offer.row, offer.worth);
        for &(guest, ..) in &undo[1..] {
            self.layout.lift(self.tables, guest);
            let Offer { row, worth, .. } = self.offer(guest, Terms::Free);
            self.layout.put(guest, row, worth);
        }
    }

    /// Nodes of jobs that changed, before and now.
    fn touched(&self, undo: &[(usize, Row, f64)]) -> Vec<usize> {
        let now = undo.iter().flat_map(|&(changed, ..)| nodes(&self.layout.rows[changed]));
        undo.iter().flat_map(|(_, row, _)| nodes(row)).chain(now).collect()
    }

    /// The best offer for a job that holds nothing now.
    fn offer(&self, job: usize, terms: Terms) -> Offer {
        let nothing = self.tables.nothing;
        let mut best = Offer { row: Row::new(), worth: nothing, gain: nothing };
        let current = self.problem.jobs[job].current.shares();
        if !current.is_empty() {
            let spans = current.len() > 1;
            let ask = |share: &Share| self.ask(share.node.0 as usize, share.devices, spans, terms);
            let worth = self.tables.held[job];
            best.consider(worth - current.iter().map(ask).sum::<f64>(), || (current.to_vec(), worth));
        }
        // A job that would keep nothing of its speed is worth nothing on any other devices.
        if self.tables.moves(job) {
            self.offer_one(job, terms, &mut best);
            self.offer_several(job, terms, &mut best);
        }
        best
    }

    /// Price of `wanted` devices of a node, for a job that spans nodes or for one that does not.
    fn ask(&self, node: usize, wanted: u32, spans: bool, terms: Terms) -> f64 {
        let free = self.layout.free[node];
        if wanted == 0 || terms == Terms::Taken {
            0.0
        } else if terms == Terms::Paid {
            let Price { alone, shared } = &self.prices[node];
            (if spans { shared } else { alone })[wanted.saturating_sub(free) as usize]
        } else if wanted > free || (spans && self.layout.spread[node].is_some()) {
            f64::INFINITY
        } else {
            0.0
        }
    }

    /// Offers within one node; of equal ones that which leaves least room.
    fn offer_one(&self, job: usize, terms: Terms, best: &mut Offer) {
        let most = self.tables.most(job);
        let mut found: Option<(f64, u32, Share)> = None;
        for (node, &free) in self.layout.free.iter().enumerate() {
            for devices in self.problem.jobs[job].min_devices.max(1)..=most.min(self.problem.nodes[node]) {
                let worth = self.tables.fresh(self.problem, job, 1, devices);
                let gain = worth - self.ask(node, devices, false, terms);
                let closer =
                    |&(best, room, _): &(f64, u32, Share)| gain > best || (gain == best && free < room);
                if found.as_ref().is_none_or(closer) {
                    found = Some((gain, free, Share { node: NodeId(node as u32), devices }));
                }
            }
        }
        if let Some((gain, _, share)) = found {
            best.consider(gain, || (vec![share], self.tables.fresh(self.problem, job, 1, share.devices)));
        }
    }

    /// Offers over several nodes: the cheapest devices first, as many as pay.
    fn offer_several(&self, job: usize, terms: Terms, best: &mut Offer) {
        let (least, most) = (self.problem.jobs[job].min_devices, self.tables.most(job));
        if most < 2 {
            return;
        }
        let mut pieces: Vec<Piece> =
            (0..self.prices.len()).flat_map(|node| self.pieces(node, terms)).collect();
        pieces.sort_by(|a, b| a.slope.total_cmp(&b.slope).then(b.to.cmp(&a.to)).then(a.node.cmp(&b.node)));
        let mut taken: Vec<Share> = Vec::new();
        let (mut devices, mut paid) = (0, 0.0);
        for Piece { node, from, to, .. } in pieces {
            let id = NodeId(node as u32);
            let rest: Row = taken.iter().filter(|share| share.node != id).copied().collect();
            let before = devices - from;
            let already = self.ask(node, from, true, terms);
            for wanted in from + 1..=to.min(most.saturating_sub(before)) {
                let count = before + wanted;
                if rest.is_empty() || count < least {
                    continue;
                }
                let worth = self.tables.fresh(self.problem, job, rest.len() as u32 + 1, count);
                best.consider(worth - (paid + self.ask(node, wanted, true, terms) - already), || {
                    let mut row = rest.clone();
                    row.push(Share { node: id, devices: wanted });
                    row.sort_unstable();
                    (row, worth)
                });
            }
            taken = rest;
            taken.push(Share { node: id, devices: to });
            devices = before + to;
            paid += self.ask(node, to, true, terms) - already;
            if devices >= most {
                break;
            }
        }
    }

    /// A node's devices in steps whose price per device rises.
    fn pieces(&self, node: usize, terms: Terms) -> Vec<Piece> {
        let price = |wanted: u32| self.ask(node, wanted, true, terms);
        let slope = |from: u32, to: u32| (price(to) - price(from)) / f64::from(to - from);
        let mut pieces: Vec<Piece> = Vec::new();
        for to in 1..=self.problem.nodes[node] {
            if price(to) == f64::INFINITY {
                break;
            }
            let mut from = to - 1;
            while let Some(last) = pieces.last().filter(|last| last.slope >= slope(from, to)) {
                from = last.from;
                pieces.pop();
            }
            pieces.push(Piece { node, from, to, slope: slope(from, to) });
        }
        pieces
    }

    fn price(&self, node: usize) -> Price {
        let width = (self.problem.nodes[node] - self.layout.free[node]) as usize;
        let curve = |leaves: Option<usize>| {
            let ledger = self.ledger(node, leaves);
            let mut curve = ledger[ledger.len() - 1 - width..].to_vec();
            for freed in (0..width).rev() {
                curve[freed] = curve[freed].min(curve[freed + 1]);
            }
            curve
        };
        let alone = curve(None);
        let shared = self.layout.spread[node].map_or_else(|| alone.clone(), |guest| curve(Some(guest)));
        Price { alone, shared }
    }

    /// Least loss by devices freed, of no guest, of the first guest, of the first two ...; a row of numbers each.
    /// The guest that `leaves` frees all that it has.
    fn ledger(&self, node: usize, leaves: Option<usize>) -> Vec<f64> {
        let guests = &self.layout.guests[node];
        let width = (self.problem.nodes[node] - self.layout.free[node]) as usize + 1;
        let mut ledger = vec![f64::INFINITY; (guests.len() + 1) * width];
        ledger[0] = 0.0;
        for (index, &guest) in guests.iter().enumerate() {
            let (before, after) = ledger[index * width..].split_at_mut(width);
            for devices in self.options(guest, node, leaves) {
                let loss = self.loss(guest, node, devices);
                for freed in devices as usize..width {
                    let with = before[freed - devices as usize] + loss;
                    after[freed] = after[freed].min(with);
                }
            }
        }
        ledger
    }

    /// How many devices a guest may be asked to free.
    fn options(&self, guest: usize, node: usize, leaves: Option<usize>) -> std::ops::RangeInclusive<u32> {
        let holds = |share: &&Share| share.node.0 as usize == node;
        let all = self.layout.rows[guest].iter().find(holds).map_or(0, |share| share.devices);
        if leaves == Some(guest) { all..=all } else { 0..=all }
    }

    fn loss(&self, guest: usize, node: usize, devices: u32) -> f64 {
        if devices == 0 {
            return 0.0;
        }
        let less = self.layout.without(self.problem, guest, node, devices);
        self.layout.worths[guest] - self.layout.worth_of(self.problem, self.tables, guest, &less)
    }

    /// Who frees how many devices of `node`, so that `wanted` are free.
    fn payers(&self, node: usize, wanted: u32, spans: bool) -> Vec<(usize, u32)> {
        let leaves = self.layout.spread[node].filter(|_| spans);
        let guests = &self.layout.guests[node];
        let width = (self.problem.nodes[node] - self.layout.free[node]) as usize + 1;
        let ledger = self.ledger(node, leaves);
        let needed = wanted.saturating_sub(self.layout.free[node]) as usize;
        let last = &ledger[guests.len() * width..];
        let cheapest = (needed..width).min_by(|&a, &b| last[a].total_cmp(&last[b]));
        let mut freed = cheapest.expect("a node has no fewer devices than are wanted of it");
        let mut payers = Vec::new();
        for (index, &guest) in guests.iter().enumerate().rev() {
            let before = &ledger[index * width..(index + 1) * width];
            let price = |devices: u32| match freed.checked_sub(devices as usize) {
                Some(rest) => before[rest] + self.loss(guest, node, devices),
                None => f64::INFINITY,
            };
            let options = self.options(guest, node, leaves);
            let devices = options.min_by(|&a, &b| price(a).total_cmp(&price(b))).unwrap_or(0);
            freed -= devices as usize;
            payers.extend((devices > 0).then_some((guest, devices)));
        }
        payers
    }
}

/// Devices of a node and what each of them costs.
struct Piece {
    node: usize,
    from: u32,
    to: u32,
    slope: f64,
}
