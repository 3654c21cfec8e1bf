//! Which work of whom runs on whose units when all share everything.

use bellwether_numerics::production::cheapest;

use super::Affinity;

/// What work away from home is taken to cost beyond what it does, as a part of the public price: where home is as good,
/// work stays there.
const AWAY: f64 = 1e-6;

/// Parts of an amount that are rounding.
const ROUNDING: f64 = 1e-9;

/// Work of one member on units of one member.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Whose work it is.
    pub of: usize,
    /// Whose units do it: a loan where it is another member.
    pub on: usize,
    /// The class of the work.
    pub class: usize,
    /// The type of the units.
    pub device_type: usize,
    /// How many units.
    pub units: f64,
    /// What they do, in examples per second.
    pub examples_per_s: f64,
}

/// What runs where in the best federation of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is run, by member, class, owner and type.
    pub runs: Vec<Run>,
    /// Examples per second that go to the public cloud, by member and class.
    pub forwarded: Vec<Vec<f64>>,
    /// What the public cloud takes for them, in money per hour.
    pub cost: f64,
}

impl Plan {
    /// The units that one member lends to another, of all types; in their own unit.
    pub fn lent(&self, from: usize, to: usize) -> f64 {
        let loans = self.runs.iter().filter(|run| run.on == from && run.of == to && from != to);
        loans.map(|run| run.units).sum()
    }
}

impl Affinity {
    /// Which work of whom runs on whose units when all share everything. Work stays at home where that makes no
    /// difference; of plans that are equally good it is any, but always the same.
    pub fn plan(&self) -> Plan {
        let everyone: Vec<usize> = (0..self.members.len()).collect();
        let program = self.placed(&everyone, AWAY);
        let production = cheapest(&program.work, &program.capacity);
        let types = self.types.len();
        let mut plan = Plan { runs: Vec::new(), forwarded: Vec::new(), cost: 0.0 };
        for of in everyone {
            let mut forwarded = Vec::with_capacity(self.classes.len());
            for (class, described) in self.classes.iter().enumerate() {
                let at = program.work_at(of, class);
                let work = &program.work[at];
                for (way, &examples_per_s) in work.ways.iter().zip(&production.done[at]) {
                    if examples_per_s > ROUNDING * work.amount {
                        plan.runs.push(Run {
                            of,
                            on: way.resource / types,
                            class,
                            device_type: way.resource % types,
                            units: examples_per_s * way.units,
                            examples_per_s,
                        });
                    }
                }
                let undone = production.undone(at, &program.work[at]);
                let undone = if undone > ROUNDING * work.amount { undone } else { 0.0 };
                plan.cost += undone * described.public_price;
                forwarded.push(undone);
            }
            plan.forwarded.push(forwarded);
        }
        plan
    }
}
