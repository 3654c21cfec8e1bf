//! The clusters that a price catalogue allows: kinds of machines, their numbers, and how many of them are transient.

use bellwether_core::InputError;

use crate::plan::{Catalogue, Machine};

/// Most candidates that may be asked for.
const CANDIDATES_MAX: usize = 1_000_000;

/// Quarters of the machines of a kind that may be transient.
const QUARTERS: [u32; 5] = [0, 1, 2, 3, 4];

/// Which clusters are wished for.
#[derive(Debug, Clone, Copy)]
pub struct Wishes<'a> {
    /// Most machines of a cluster.
    pub max_machines: u32,
    /// Most kinds of machines in one cluster.
    pub max_kinds: u32,
    /// Whether machines may be transient.
    pub transient: bool,
    /// Regions that are allowed; all when empty.
    pub regions: &'a [String],
}

/// The machines of one kind in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The kind: its place in the catalogue.
    pub kind: usize,
    /// Those on demand.
    pub on_demand: u32,
    /// Those that their provider may take away.
    pub transient: u32,
}

impl Part {
    /// Machines, of both markets.
    pub fn machines(&self) -> u32 {
        self.on_demand + self.transient
    }
}

/// All candidates: each cluster under each policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Clusters; machines of one kind are in one part.
    pub clusters: Vec<Vec<Part>>,
    /// How many policies there are.
    pub policies: usize,
}

impl Grid {
    /// Every cluster that `catalogue` and `wishes` allow, under each of `policies` policies.
    ///
    /// # Errors
    ///
    /// Returns an error where no machine is left, or where there are too many candidates.
    ///
    /// ```
    /// use bellwether_sched::capacity::{Grid, Wishes};
    /// use bellwether_sched::plan::Catalogue;
    /// let text = "[[machine]]\ndevice = \"k80\"\nprice = \"$0.72/h\"\n";
    /// let catalogue = Catalogue::read(text, "prices.toml", &|_| unreachable!("no file is named"))?;
    /// let wishes = Wishes { max_machines: 8, max_kinds: 1, transient: false, regions: &[] };
    /// assert_eq!(Grid::new(&catalogue, &wishes, 3)?.len(), 24);
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    pub fn new(catalogue: &Catalogue, wishes: &Wishes<'_>, policies: usize) -> Result<Grid, InputError> {
        let allowed = |machine: &Machine| {
            let is_near = wishes.regions.is_empty()
                || machine.region.as_ref().is_some_and(|region| wishes.regions.contains(region));
            is_near && (machine.on_demand.is_some() || wishes.transient)
        };
        let kinds: Vec<usize> =
            (0..catalogue.machines.len()).filter(|kind| allowed(&catalogue.machines[*kind])).collect();
        if kinds.is_empty() {
            return Err(InputError::new("catalogue", "no machine is left to choose from").hint(
                "say --transient: without it only machines with a `price` count; or name other regions",
            ));
        }
        let mut builder =
            Builder { catalogue, wishes, most: CANDIDATES_MAX / policies.max(1), found: Vec::new() };
        for size in 1..=wishes.max_kinds.max(1) {
            builder.extend(&kinds, size, wishes.max_machines, &mut Vec::new())?;
        }
        Ok(Grid { clusters: builder.found, policies })
    }

    /// How many candidates there are.
    pub fn len(&self) -> usize {
        self.clusters.len() * self.policies
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cluster of a candidate, and the number of its policy.
    ///
    /// # Panics
    ///
    /// When there is no such candidate.
    pub fn candidate(&self, number: usize) -> (&[Part], usize) {
        (&self.clusters[number / self.policies], number % self.policies)
    }
}

struct Builder<'a> {
    catalogue: &'a Catalogue,
    wishes: &'a Wishes<'a>,
    /// Most clusters.
    most: usize,
    found: Vec<Vec<Part>>,
}

impl Builder<'_> {
    /// Adds every cluster that has the parts so far and `more` further kinds of `kinds`.
    fn extend(
        &mut self,
        kinds: &[usize],
        more: u32,
        machines: u32,
        so_far: &mut Vec<Part>,
    ) -> Result<(), InputError> {
        if more == 0 {
            if self.found.len() >= self.most {
                let what = format!("there are more than {CANDIDATES_MAX} candidates");
                return Err(InputError::new("catalogue", what)
                    .hint("say less with --max-machines, --kinds, --region or --policy"));
            }
            self.found.push(so_far.clone());
            return Ok(());
        }
        for (place, &kind) in kinds.iter().enumerate() {
            let machine = &self.catalogue.machines[kind];
            let is_far = so_far
                .first()
                .is_some_and(|part| self.catalogue.machines[part.kind].region != machine.region);
            if is_far {
                continue;
            }
            // Each of the further kinds needs a machine, too.
            let most = machines.saturating_sub(more - 1).min(machine.limit);
            for count in 1..=most {
                for transient in transient_counts(machine, count, self.wishes.transient) {
                    so_far.push(Part { kind, on_demand: count - transient, transient });
                    self.extend(&kinds[place + 1..], more - 1, machines - count, so_far)?;
                    so_far.pop();
                }
            }
        }
        Ok(())
    }
}

/// How many of `count` machines may be transient: quarters of them, rounded to the nearest.
fn transient_counts(machine: &Machine, count: u32, is_allowed: bool) -> Vec<u32> {
    match (&machine.transient, machine.on_demand) {
        (Some(_), None) if is_allowed => vec![count],
        (Some(_), Some(_)) if is_allowed => {
            let mut counts: Vec<u32> = QUARTERS
                .iter()
                .filter_map(|quarters| u32::try_from((u64::from(count) * u64::from(*quarters) + 2) / 4).ok())
                .collect();
            counts.dedup();
            counts
        }
        _ => vec![0],
    }
}
