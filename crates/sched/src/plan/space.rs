//! Which configurations are looked at.
//!
//! Of each kind of machine every number up to 32, and above it steps of a sixteenth; on demand, transient, or 1, 2, 4,
//! 8, … of them on demand and the others transient. Of two kinds in one region, of other devices, up to 8 machines
//! each. Kinds are paired if one of them alone comes near the best or is scarce: a pair of others would not come near
//! either. All that in each way that the question names, but pairs only in the first that is synchronous without
//! servers.

use bellwether_core::plan::Market;

use super::Question;
use super::catalogue::Catalogue;
use super::speed::Speeds;

/// Up to this number of machines none is left out.
const EVERY: u32 = 32;
/// Numbers of machines of each of two kinds.
const PAIRED: [u32; 6] = [1, 2, 3, 4, 6, 8];
/// Most pairs of kinds.
const PAIRS_MAX: usize = 32;

/// Machines to be rented: one group, or two.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setup {
    /// Number of the way in the question.
    pub(super) way: usize,
    pub(super) groups: Vec<Group>,
}

/// Machines of one kind that are rented alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    /// Number of the machine in the catalogue.
    pub(super) kind: usize,
    pub(super) market: Market,
    /// Machines.
    pub(super) count: u32,
}

impl Setup {
    /// The two kinds of a mixture of devices.
    pub(super) fn kinds(&self) -> Option<(usize, usize)> {
        match self.groups[..] {
            [first, second] if first.kind != second.kind => Some((first.kind, second.kind)),
            _ => None,
        }
    }

    pub(super) fn is_transient(&self) -> bool {
        self.groups.iter().any(|group| group.market == Market::Transient)
    }

    pub(super) fn workers(&self, catalogue: &Catalogue) -> u32 {
        self.groups.iter().map(|group| group.count * catalogue.machines[group.kind].devices).sum()
    }
}

/// Configurations of one kind of machine.
pub(super) fn of_one_kind(question: &Question, catalogue: &Catalogue, speeds: &Speeds) -> Vec<Setup> {
    let mut setups = Vec::new();
    let ways = || 0..question.ways.len().max(1);
    for (way, kind) in
        ways().flat_map(|way| kinds(question, catalogue).into_iter().map(move |kind| (way, kind)))
    {
        let machine = &catalogue.machines[kind];
        let group = |market, count| Group { kind, market, count };
        // A machine holds one server at most.
        let servers = question.ways.get(way).map_or(0, |way| way.servers);
        for count in counts(speeds.most(way, kind)) {
            if speeds.alone(way, kind, count).is_none() || count < servers {
                continue;
            }
            if machine.on_demand.is_some() {
                setups.push(Setup { way, groups: vec![group(Market::OnDemand, count)] });
            }
            if !(question.transient && machine.transient.is_some()) {
                continue;
            }
            setups.push(Setup { way, groups: vec![group(Market::Transient, count)] });
            if machine.on_demand.is_some() {
                let firm = (0..31).map(|power| 1u32 << power).take_while(|firm| *firm < count);
                setups.extend(firm.map(|firm| Setup {
                    way,
                    groups: vec![group(Market::OnDemand, firm), group(Market::Transient, count - firm)],
                }));
            }
        }
    }
    setups
}

/// Configurations of two kinds of machines, of which one is among the `promising`.
pub(super) fn of_two_kinds(
    question: &Question,
    catalogue: &Catalogue,
    speeds: &mut Speeds,
    promising: &[usize],
) -> Vec<Setup> {
    let mut setups = Vec::new();
    // Uneven shares of a batch are for those who all wait for all.
    let Some(way) = speeds.together_way() else { return setups };
    for (first, second) in pairs(question, catalogue, promising).into_iter().take(PAIRS_MAX) {
        let most = |kind| speeds.most(way, kind).min(PAIRED[PAIRED.len() - 1]);
        let most = (most(first), most(second));
        speeds.prepare((first, second), most);
        let devices = |kind: usize| catalogue.machines[kind].devices;
        for i in PAIRED.into_iter().filter(|count| *count <= most.0) {
            for j in PAIRED.into_iter().filter(|count| *count <= most.1) {
                let workers = i * devices(first) + j * devices(second);
                if workers > question.max_workers || !speeds.is_worth_mixing((first, second), (i, j)) {
                    continue;
                }
                for one in markets(question, catalogue, first) {
                    for other in markets(question, catalogue, second) {
                        let groups = [(first, one, i), (second, other, j)];
                        let group = |(kind, market, count)| Group { kind, market, count };
                        setups.push(Setup { way, groups: groups.map(group).to_vec() });
                    }
                }
            }
        }
    }
    setups
}

/// Pairs of kinds with other devices in one region.
fn pairs(question: &Question, catalogue: &Catalogue, promising: &[usize]) -> Vec<(usize, usize)> {
    let kinds = kinds(question, catalogue);
    let scarce = |kind: usize| {
        let machine = &catalogue.machines[kind];
        machine.limit.saturating_mul(machine.devices) < question.max_workers
    };
    let counts = |kind: usize| promising.contains(&kind) || scarce(kind);
    let mut pairs = Vec::new();
    for (place, &first) in kinds.iter().enumerate() {
        for &second in &kinds[place + 1..] {
            let (one, other) = (&catalogue.machines[first], &catalogue.machines[second]);
            if one.region == other.region && one.device != other.device && counts(first) && counts(second) {
                pairs.push((first, second));
            }
        }
    }
    pairs
}

/// Kinds of machines in the regions that were asked for, and to be had.
fn kinds(question: &Question, catalogue: &Catalogue) -> Vec<usize> {
    let here = |kind: &usize| {
        let region = catalogue.machines[*kind].region.as_ref();
        let wanted = question.regions.is_empty() || region.is_some_and(|r| question.regions.contains(r));
        wanted && !markets(question, catalogue, *kind).is_empty()
    };
    (0..catalogue.machines.len()).filter(here).collect()
}

/// How a kind may be rented.
fn markets(question: &Question, catalogue: &Catalogue, kind: usize) -> Vec<Market> {
    let machine = &catalogue.machines[kind];
    let on_demand = machine.on_demand.map(|_| Market::OnDemand);
    let transient = machine.transient.as_ref().filter(|_| question.transient).map(|_| Market::Transient);
    on_demand.into_iter().chain(transient).collect()
}

/// Numbers of machines up to a most, which is one of them.
fn counts(most: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = (1..=most.min(EVERY)).collect();
    while let Some(last) = counts.last().copied().filter(|last| *last < most) {
        counts.push((last + last / 16).min(most));
    }
    counts
}
