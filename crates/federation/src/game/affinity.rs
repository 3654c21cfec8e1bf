//! Federations of datacenters whose devices suit different jobs: the linear production game.
//!
//! # Model
//!
//! ```text
//! c(S) = least  sum_j P_j u_j
//!        where  sum_k s_jk x_jk + u_j >= sum_{i in S} d_ij,   sum_j x_jk <= sum_{i in S} n_ik,   x, u >= 0
//! charge of member i = sum_j z_j d_ij - sum_k y_k n_ik
//! ```
//!
//! | symbol | meaning                                                         | unit                          |
//! |--------|-----------------------------------------------------------------|-------------------------------|
//! | d_ij   | work of class j that member i has to do                         | examples/s                    |
//! | n_ik   | units of type k that member i owns                              | units                         |
//! | s_jk   | speed of class j on a unit of type k; 0 where it cannot run     | examples/s                    |
//! | P_j    | what a public cloud takes for class j                           | money/h for each example/s    |
//! | u_j    | work that goes to the public cloud                              | examples/s                    |
//! | x_jk   | units of type k that run class j                                | units                         |
//! | z_j    | dual of the work: what another example/s of class j costs       | money/h for each example/s    |
//! | y_k    | dual of the units: what another unit of type k saves, its rent  | money/h                       |
//! | t_j    | share of capacity more that class j takes away from home        | 1                             |
//!
//! The saving of a coalition is what its members pay the public cloud alone less c(S). There is something to save
//! where one member is short of what another has to spare, and, with nothing to spare, only by *comparative* advantage:
//! if `s_jk = a_j b_k`, then units of all types are the same good in different amounts and only load can be balanced.
//!
//! Owen's payments charge each member for its work at z and pay it for its units at y. They add up to c(N), and no
//! coalition does better alone: z and y satisfy the dual of every coalition's program, so what its members are
//! charged is at most its own c(S). Where many duals are optimal, the
//! [middle](bellwether_numerics::production::Prices::middle) between the lowest and the highest prices is taken,
//! which is one itself and treats alike whatever is alike.
//!
//! With a transfer cost, work of class j that runs on another member's units takes (1 + t_j) / s_jk of them for each
//! example/s. This is still a linear production game, in which each member's units and each member's work are goods of
//! their own: its core holds Owen's payments too. Only prices differ by member then.
//!
//! # Source
//!
//! Owen, "On the core of linear production games", Mathematical Programming 9, 1975. That datacenters and deep-learning
//! jobs play this game, the transfer cost and the choice of the duals are this project's.
//!
//! # Assumes
//!
//! Work and units are as divisible as water: no queue, no gang, no whole unit. Speeds add up over units.
//!
//! # Complexity
//!
//! One simplex for each coalition, with a row for each type (with a transfer cost: for each type of each of its
//! members); 2^n of them for the game of all.

mod plan;
mod posted;

use bellwether_core::InputError;
use bellwether_numerics::production::{Duals, Way, Work, cheapest, prices};

pub use self::plan::{Plan, Run};
pub use self::posted::Posted;
use super::{Coalition, Game};

/// The most members of whom [`Affinity::game`] makes a game: 2^15 linear programs.
pub const MOST_MEMBERS: usize = 15;

/// How far the program and its dual may differ by rounding, as part of the cost.
const ROUNDING: f64 = 1e-6;

/// Differences of costs, as parts of the price of all work, that are rounding.
const TOLERANCE: f64 = 1e-9;

/// Jobs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Its name, for errors.
    pub name: String,
    /// Examples per second on a unit of each type; 0 where it cannot run. Steps do as well, if demand is in steps too.
    pub speeds: Vec<f64>,
    /// Money per hour for each example/s that a public cloud serves.
    pub public_price: f64,
    /// The share of capacity more that work takes on the units of another member; 0 for none.
    pub transfer: f64,
}

/// A datacenter.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Its name, for errors.
    pub name: String,
    /// Units of each type.
    pub owned: Vec<f64>,
    /// Examples per second of each class.
    pub demand: Vec<f64>,
}

/// A federation: who has what, who needs what, and what runs how fast where.
#[derive(Debug, Clone, PartialEq)]
pub struct Affinity {
    types: Vec<String>,
    classes: Vec<Class>,
    members: Vec<Member>,
}

/// Owen's payments: a split in the core.
#[derive(Debug, Clone, PartialEq)]
pub struct Owen {
    /// What all pay the public cloud together, in money per hour.
    pub cost: f64,
    /// What each member pays in all, to the public cloud and to others; less than 0 for who is paid more. Money per
    /// hour.
    pub charges: Vec<f64>,
    /// What work is charged for each example/s, by member and class, in money per hour. All members alike without
    /// transfer costs. Of a class that no member needs, what a little of its work would cost.
    pub work: Vec<Vec<f64>>,
    /// The rent of a unit, by member and type, in money per hour. All members alike without transfer costs. Of a type
    /// that no member owns, what the first unit would save.
    pub rents: Vec<Vec<f64>>,
    /// The lowest rents at which all is as it should be, by member and type.
    pub lowest_rents: Vec<Vec<f64>>,
    /// The highest rents at which all is as it should be, by member and type. With work at its highest value too.
    pub highest_rents: Vec<Vec<f64>>,
    /// By how much the duals miss the cost, in money per hour: rounding.
    pub gap: f64,
}

impl Affinity {
    /// A federation of these members, over types of unit with these names.
    ///
    /// ```
    /// use bellwether_federation::game::Coalition;
    /// use bellwether_federation::game::affinity::{Affinity, Class, Member};
    /// let class = |name: &str, speeds: [f64; 2]| Class {
    ///     name: name.to_string(), speeds: speeds.to_vec(), public_price: 1.0, transfer: 0.0,
    /// };
    /// let member = |name: &str, owned: [f64; 2], demand: [f64; 2]| Member {
    ///     name: name.to_string(), owned: owned.to_vec(), demand: demand.to_vec(),
    /// };
    /// // Each has the units that suit the other's jobs.
    /// let federation = Affinity::new(
    ///     vec!["a".to_string(), "b".to_string()],
    ///     vec![class("1", [2.0, 1.0]), class("2", [1.0, 2.0])],
    ///     vec![member("A", [100.0, 0.0], [0.0, 150.0]), member("B", [0.0, 100.0], [150.0, 0.0])],
    /// )?;
    /// assert_eq!(federation.cost(Coalition::of([0])), 50.0);
    /// assert_eq!(federation.cost(Coalition::of([0, 1])), 0.0);
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if a number is negative or not finite, a list has not one entry for each type or class, or a
    /// member needs a class that no unit of any member can run: sharing has nothing to say about it.
    pub fn new(
        types: Vec<String>,
        classes: Vec<Class>,
        members: Vec<Member>,
    ) -> Result<Affinity, InputError> {
        let federation = Affinity { types, classes, members };
        federation.check_numbers()?;
        for (j, class) in federation.classes.iter().enumerate() {
            let needed = federation.members.iter().find(|member| member.demand[j] > 0.0);
            let owned = |k: usize| federation.members.iter().any(|member| member.owned[k] > 0.0);
            let runs = class.speeds.iter().enumerate().any(|(k, &speed)| speed > 0.0 && owned(k));
            if let Some(member) = needed.filter(|_| !runs) {
                let what = format!("{} needs it, and no member has a unit that can run it", member.name);
                return Err(InputError::new(format!("job class {}", class.name), what).hint(
                    "give it a speed above 0 on a type that someone owns, or leave it out: it is forwarded in any case",
                ));
            }
        }
        Ok(federation)
    }

    fn check_numbers(&self) -> Result<(), InputError> {
        if self.members.is_empty() {
            return Err(InputError::new("federation", "it has no members").hint("give it two or more"));
        }
        let (types, classes) = (self.types.len(), self.classes.len());
        for class in &self.classes {
            let at = format!("job class {}", class.name);
            numbers(&at, "speeds", &class.speeds, types, "type of unit")?;
            numbers(&at, "public price", &[class.public_price], 1, "class")?;
            numbers(&at, "transfer cost", &[class.transfer], 1, "class")?;
        }
        for member in &self.members {
            let at = format!("member {}", member.name);
            numbers(&at, "owned units", &member.owned, types, "type of unit")?;
            numbers(&at, "demand", &member.demand, classes, "job class")?;
        }
        Ok(())
    }

    /// The names of the types of unit.
    pub fn types(&self) -> &[String] {
        &self.types
    }

    /// The job classes.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The members.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// What a coalition pays the public cloud when it shares everything, in money per hour.
    ///
    /// # Panics
    ///
    /// When it has a member that is not there.
    pub fn cost(&self, coalition: Coalition) -> f64 {
        let program = self.program(coalition);
        cheapest(&program.work, &program.capacity).cost
    }

    /// The savings of all coalitions, in money per hour.
    ///
    /// # Errors
    ///
    /// Returns an error if there are more than [`MOST_MEMBERS`].
    pub fn game(&self) -> Result<Game, InputError> {
        let members = self.members.len();
        if members > MOST_MEMBERS {
            let what = format!("{members} members have more than 2^{MOST_MEMBERS} coalitions");
            return Err(InputError::new("federation", what)
                .hint("take Owen's payments, which need no coalitions, or sample the Shapley value"));
        }
        let costs: Vec<f64> =
            (0..1_u32 << members).map(|bits| self.cost(Coalition::from_bits(bits))).collect();
        self.game_of(&costs)
    }

    /// The same from the [cost](Affinity::cost) of each coalition, at the place that its bits say: a caller with
    /// threads asks for those at once.
    ///
    /// # Errors
    ///
    /// Same errors as [`Game::savings`].
    pub fn game_of(&self, costs: &[f64]) -> Result<Game, InputError> {
        // Costs are what is left of the price of all work, and have its rounding.
        Ok(Game::savings(self.members.len(), costs)?.with_tolerance(TOLERANCE * self.price_of_all()))
    }

    /// Owen's payments for the federation of all.
    ///
    /// # Errors
    ///
    /// Returns an error if the numbers lie too many orders of magnitude apart to find prices.
    pub fn owen(&self) -> Result<Owen, InputError> {
        let program = self.program(Coalition::everyone(self.members.len()));
        let production = cheapest(&program.work, &program.capacity);
        let range = prices(&program.work, &program.capacity);
        let middle = range.middle();
        let missed = |duals: &Duals| (duals.worth(&program.work, &program.capacity) - production.cost).abs();
        let gap = [&range.lowest, &range.highest, &middle].map(missed).into_iter().fold(0.0, f64::max);
        if gap.is_nan() || gap > ROUNDING * self.price_of_all() {
            return Err(InputError::new("federation", "its prices could not be found").hint(
                "choose units so that speeds, demands and prices are fewer orders of magnitude apart",
            ));
        }
        let (work, rents) = (self.by_class(&program, &middle), self.by_type(&program, &middle));
        let charge = |(i, member): (usize, &Member)| {
            let pays: f64 = member.demand.iter().zip(&work[i]).map(|(demand, value)| demand * value).sum();
            let earns: f64 = member.owned.iter().zip(&rents[i]).map(|(units, rent)| units * rent).sum();
            pays - earns
        };
        Ok(Owen {
            cost: production.cost,
            charges: self.members.iter().enumerate().map(charge).collect(),
            lowest_rents: self.by_type(&program, &range.lowest),
            highest_rents: self.by_type(&program, &range.highest),
            gap,
            work,
            rents,
        })
    }

    /// What the public cloud would take for all work, in money per hour.
    fn price_of_all(&self) -> f64 {
        let demand = |j: usize| self.members.iter().map(|member| member.demand[j]).sum::<f64>();
        self.classes.iter().enumerate().map(|(j, class)| demand(j) * class.public_price).sum()
    }

    fn by_class(&self, program: &Program, duals: &Duals) -> Vec<Vec<f64>> {
        let of = |i: usize| (0..self.classes.len()).map(|j| duals.work[program.work_at(i, j)]).collect();
        (0..self.members.len()).map(of).collect()
    }

    fn by_type(&self, program: &Program, duals: &Duals) -> Vec<Vec<f64>> {
        let of =
            |i: usize| (0..self.types.len()).map(|k| duals.resources[program.resource_at(i, k)]).collect();
        (0..self.members.len()).map(of).collect()
    }

    fn program(&self, coalition: Coalition) -> Program {
        if self.classes.iter().all(|class| class.transfer == 0.0) {
            self.pooled(coalition)
        } else {
            self.placed(&coalition.members().collect::<Vec<_>>(), 0.0)
        }
    }

    /// The program in which units of a type are one good, and so is the work of a class.
    fn pooled(&self, coalition: Coalition) -> Program {
        let sum =
            |of: &dyn Fn(&Member) -> f64| coalition.members().map(|i| of(&self.members[i])).sum::<f64>();
        let work = self.classes.iter().enumerate().map(|(j, class)| {
            let runs = class.speeds.iter().enumerate().filter(|(_, speed)| **speed > 0.0);
            Work {
                amount: sum(&|member| member.demand[j]),
                price: class.public_price,
                ways: runs.map(|(k, speed)| Way { resource: k, units: 1.0 / speed, extra: 0.0 }).collect(),
            }
        });
        Program {
            work: work.collect(),
            capacity: (0..self.types.len()).map(|k| sum(&|member| member.owned[k])).collect(),
            strides: None,
        }
    }

    /// The program in which each member's units and each member's work are goods of their own. Work away from home
    /// costs a part `away` of its price, to prefer home where it makes no difference.
    fn placed(&self, members: &[usize], away: f64) -> Program {
        let mut work = Vec::new();
        for &home in members {
            for (j, class) in self.classes.iter().enumerate() {
                let mut ways = Vec::new();
                for (at, &owner) in members.iter().enumerate() {
                    let is_home = owner == home;
                    let slower = if is_home { 1.0 } else { 1.0 + class.transfer };
                    let extra = if is_home { 0.0 } else { away * class.public_price };
                    for (k, speed) in class.speeds.iter().enumerate().filter(|(_, speed)| **speed > 0.0) {
                        ways.push(Way { resource: at * self.types.len() + k, units: slower / speed, extra });
                    }
                }
                work.push(Work { amount: self.members[home].demand[j], price: class.public_price, ways });
            }
        }
        Program {
            work,
            capacity: members.iter().flat_map(|&i| self.members[i].owned.iter().copied()).collect(),
            strides: Some((self.classes.len(), self.types.len())),
        }
    }
}

/// The program of some members in numbers.
struct Program {
    work: Vec<Work>,
    capacity: Vec<f64>,
    /// Works and resources of each member, where they are goods of their own.
    strides: Option<(usize, usize)>,
}

impl Program {
    /// The work of a class of a member; the member counts among those of the program.
    fn work_at(&self, member: usize, class: usize) -> usize {
        self.strides.map_or(class, |(classes, _)| member * classes + class)
    }

    /// The units of a type of a member.
    fn resource_at(&self, member: usize, of_type: usize) -> usize {
        self.strides.map_or(of_type, |(_, types)| member * types + of_type)
    }
}

fn numbers(at: &str, what: &str, given: &[f64], needed: usize, each: &str) -> Result<(), InputError> {
    if given.len() != needed {
        let wrong = format!(
            "the {what} are {} numbers, and there has to be one for each {each}: {needed}",
            given.len()
        );
        return Err(InputError::new(at, wrong));
    }
    match given.iter().find(|number| !(number.is_finite() && **number >= 0.0)) {
        Some(number) => {
            Err(InputError::new(at, format!("the {what}: {number} is not a number of 0 or more")))
        }
        None => Ok(()),
    }
}
