//! The linear production game with each member playing for itself: units are offered at posted rents.
//!
//! Each member says what part of its units of each type it offers. What is offered is one pool, in which a unit of type
//! k costs the rent y_k, its owner too; what is kept runs the owner's work only. Then work goes where it is done for
//! least, the public price and the rents together; an indifferent member rents. Owners are paid for the part of the
//! pool that is in use, in proportion to what they offer.
//!
//! At the rents of [Owen's payments](super::Owen), and without transfer costs, that all offer everything is an
//! equilibrium that pays the least: no member can use a unit so that it saves more than its rent, and all units with a
//! rent are in use. At other rents some trade is missed, because it does not pay for the owner or not for the one who
//! rents. With transfer costs, a unit of the pool is away from home for everyone.

use bellwether_core::InputError;
use bellwether_numerics::production::{Way, Work, cheapest};

use super::Affinity;
use crate::game::Coalition;

/// The part by which a rent looks lower to the member that pays it, so that an indifferent member rents.
const EAGER: f64 = 1e-7;

/// Choices that a member may have.
const MOST_LEVELS: u64 = 1_000_000;

/// A federation with posted rents. A member's choice is a number, its level, as in [`play`](crate::game::play).
#[derive(Debug, Clone)]
pub struct Posted<'a> {
    federation: &'a Affinity,
    rents: Vec<f64>,
    parts: u32,
    alone: Vec<f64>,
}

impl<'a> Posted<'a> {
    /// A federation in which a unit of each type costs one of `rents`, in money per hour, and members offer 0, 1,
    /// ... or all `parts` equal parts of what they own of each type.
    ///
    /// # Errors
    ///
    /// Returns an error if the rents are not one number of 0 or more for each type, there are no parts, or a member
    /// would have more than a million choices.
    pub fn new(federation: &'a Affinity, rents: Vec<f64>, parts: u32) -> Result<Posted<'a>, InputError> {
        super::numbers("rents", "rents", &rents, federation.types.len(), "type of unit")?;
        if parts == 0 {
            return Err(InputError::new("parts", "what is offered has 0 parts").hint("give 1 or more"));
        }
        let alone = (0..federation.members.len()).map(|i| federation.cost(Coalition::of([i]))).collect();
        let posted = Posted { federation, rents, parts, alone };
        for (i, member) in federation.members.iter().enumerate() {
            let choices = (u64::from(parts) + 1).saturating_pow(posted.owned(i).count() as u32);
            if choices > MOST_LEVELS {
                let what = format!("{choices} choices of what to offer are more than {MOST_LEVELS}");
                return Err(InputError::new(format!("member {}", member.name), what)
                    .hint("let units be offered in fewer parts"));
            }
        }
        Ok(posted)
    }

    /// The types of which a member has any.
    fn owned(&self, member: usize) -> impl Iterator<Item = usize> {
        let owned = &self.federation.members[member].owned;
        (0..owned.len()).filter(|&k| owned[k] > 0.0)
    }

    /// The highest level of each member, at which it offers everything. At level 0 it offers nothing.
    pub fn most(&self) -> Vec<u32> {
        let highest = |i: usize| (self.parts + 1).pow(self.owned(i).count() as u32) - 1;
        (0..self.alone.len()).map(highest).collect()
    }

    /// The units of each type that a member offers at a level: its digits, one for each type that it owns, are parts.
    pub fn offered(&self, member: usize, level: u32) -> Vec<f64> {
        let owned = &self.federation.members[member].owned;
        let mut offered = vec![0.0; owned.len()];
        let mut rest = level;
        for k in self.owned(member) {
            offered[k] = owned[k] * f64::from(rest % (self.parts + 1)) / f64::from(self.parts);
            rest /= self.parts + 1;
        }
        offered
    }

    /// What each member pays at these levels, to the public cloud and to others, in money per hour; less than 0 for
    /// who is paid more. Rents cancel out, so the sum goes to the public cloud.
    ///
    /// # Panics
    ///
    /// When there is not one level for each member.
    pub fn costs(&self, levels: &[u32]) -> Vec<f64> {
        let Affinity { types, classes, members } = self.federation;
        assert_eq!(levels.len(), members.len(), "a level for each member");
        let offers: Vec<Vec<f64>> =
            levels.iter().enumerate().map(|(i, &level)| self.offered(i, level)).collect();
        let pool = members.len() * types.len();
        let mut capacity = Vec::with_capacity(pool + types.len());
        for (member, offered) in members.iter().zip(&offers) {
            capacity
                .extend(member.owned.iter().zip(offered).map(|(owned, offered)| (owned - offered).max(0.0)));
        }
        capacity.extend((0..types.len()).map(|k| offers.iter().map(|offered| offered[k]).sum::<f64>()));
        let work: Vec<Work> = (0..members.len()).flat_map(|i| self.work_of(i, pool)).collect();
        let production = cheapest(&work, &capacity);
        let mut costs = vec![0.0; members.len()];
        let mut rented = vec![0.0; types.len()];
        for (at, (work, done)) in work.iter().zip(&production.done).enumerate() {
            let of = at / classes.len();
            costs[of] += production.undone(at, work) * work.price;
            for (way, amount) in work.ways.iter().zip(done).filter(|(way, _)| way.resource >= pool) {
                let (k, units) = (way.resource - pool, amount * way.units);
                costs[of] += units * self.rents[k];
                rented[k] += units;
            }
        }
        for (cost, offered) in costs.iter_mut().zip(&offers) {
            for (k, offered) in offered.iter().enumerate().filter(|(_, offered)| **offered > 0.0) {
                *cost -= self.rents[k] * rented[k] * offered / capacity[pool + k];
            }
        }
        costs
    }

    /// What each member saves at these levels against being alone, in money per hour.
    ///
    /// # Panics
    ///
    /// As [`costs`](Posted::costs).
    pub fn savings(&self, levels: &[u32]) -> Vec<f64> {
        self.alone.iter().zip(self.costs(levels)).map(|(alone, together)| alone - together).collect()
    }

    /// A member's work: at home on what it keeps, or in the pool for rent.
    fn work_of(&self, member: usize, pool: usize) -> impl Iterator<Item = Work> {
        let types = self.federation.types.len();
        let classes = self.federation.classes.iter().enumerate();
        classes.map(move |(j, class)| {
            let mut ways = Vec::with_capacity(2 * types);
            for (k, speed) in class.speeds.iter().enumerate().filter(|(_, speed)| **speed > 0.0) {
                let units = (1.0 + class.transfer) / speed;
                let rent = units * self.rents[k] * (1.0 - EAGER);
                ways.push(Way { resource: member * types + k, units: 1.0 / speed, extra: 0.0 });
                ways.push(Way { resource: pool + k, units, extra: rent });
            }
            let amount = self.federation.members[member].demand[j];
            Work { amount, price: class.public_price, ways }
        })
    }
}
