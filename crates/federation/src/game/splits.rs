//! Splits that do not look at sub-coalitions: Nash's bargain and the simple rules; and what a saving is as a part
//! of a cost.
//!
//! The three rules are the baselines of Song, Paolieri and Golubchik, CLOUD 2022. All of them give shares between 0 and
//! 1, so none can charge a member that does harm, as the Shapley value does; where no member has anything to count, the
//! shares are equal.

use super::Game;

/// What the rules look at in a member, before it joins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contribution {
    /// Servers that it shares.
    pub shared: f64,
    /// Part of its servers' time that is used, 0…1: [`utilisation`].
    pub utilisation: f64,
    /// What it forwards alone, in jobs per second.
    pub forwarded_per_s: f64,
}

/// Part of the time of servers that is used by the jobs that are not forwarded; 0 where there are no servers.
pub fn utilisation(arrivals_per_s: f64, forwarded_per_s: f64, servers: f64, service_per_s: f64) -> f64 {
    if servers > 0.0 { (arrivals_per_s - forwarded_per_s) / (servers * service_per_s) } else { 0.0 }
}

/// SR: in proportion to shared servers.
pub fn by_servers(total: f64, members: &[Contribution]) -> Vec<f64> {
    in_proportion(total, members, |member| member.shared)
}

/// SIR: in proportion to the shared servers that would be idle.
pub fn by_idle_servers(total: f64, members: &[Contribution]) -> Vec<f64> {
    in_proportion(total, members, |member| member.shared * (1.0 - member.utilisation))
}

/// SIRW: half as [`by_idle_servers`], half in proportion to what members forward alone.
///
/// ```
/// use bellwether_federation::game::splits::{Contribution, by_idle_and_work};
/// let idle = Contribution { shared: 10.0, utilisation: 0.5, forwarded_per_s: 0.0 };
/// let busy = Contribution { shared: 10.0, utilisation: 1.0, forwarded_per_s: 5.0 };
/// assert_eq!(by_idle_and_work(8.0, &[idle, busy]), [4.0, 4.0]);
/// ```
pub fn by_idle_and_work(total: f64, members: &[Contribution]) -> Vec<f64> {
    let work = in_proportion(total, members, |member| member.forwarded_per_s);
    by_idle_servers(total, members).iter().zip(work).map(|(idle, work)| f64::midpoint(*idle, work)).collect()
}

fn in_proportion(total: f64, members: &[Contribution], count: impl Fn(&Contribution) -> f64) -> Vec<f64> {
    let all: f64 = members.iter().map(&count).sum();
    let share = |member| if all > 0.0 { count(member) / all } else { 1.0 / members.len() as f64 };
    members.iter().map(|member| total * share(member)).collect()
}

/// Nash's bargaining solution: each gets what it is worth alone, and a part of what all are worth beyond that, in
/// proportion to positive `weights` (bargaining power; equal ones give equal parts). `None` where all are worth less
/// together than each alone, as then no member signs. Sub-coalitions do not count: some may gain by leaving.
///
/// # Panics
///
/// When there is not a positive weight for each member.
pub fn nash(game: &Game, weights: &[f64]) -> Option<Vec<f64>> {
    assert!(
        weights.len() == game.members() && weights.iter().all(|&weight| weight > 0.0),
        "weights are positive"
    );
    let alone = game.alone();
    let surplus = game.value(game.everyone()) - alone.iter().sum::<f64>();
    let all: f64 = weights.iter().sum();
    let paid = alone.iter().zip(weights).map(|(alone, weight)| alone + surplus * weight / all).collect();
    (surplus >= -game.tolerance()).then_some(paid)
}

/// The part of its cost that a member saves: what it is paid, over its bill for forwarded jobs and the cost of its
/// own servers alone, all in one unit; negative where it is charged, 0 where it has no cost and no payment.
pub fn relative_cost_cut(payment: f64, public_cost: f64, own_cost: f64) -> f64 {
    if payment == 0.0 { 0.0 } else { payment / (public_cost + own_cost) }
}
