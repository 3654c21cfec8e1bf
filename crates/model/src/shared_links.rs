//! How much jobs slow each other down whose exchanges go over the same links.
//!
//! # Model
//!
//! ```text
//! T(f)     step with 1/f of the links' bandwidth while it exchanges, of the step with all of it; by any step model
//! x        = dT/df for large f: the exchange with all of the bandwidth, where no computing hides it
//! z(f)     = max(0, T(f) - x f): the part of a step in which nothing is exchanged
//! f_j      = time in which j exchanges / what it exchanges then;   kept_j = 1 / T_j(f_j)
//!
//! few      the chain of the sets S of jobs that exchange, P its probabilities:
//!          j joins S at the rate 1 / z_j(f_j), and leaves it at r_j(S) / x_j
//!          f_j = sum over S with j of P(S) / sum over S with j of P(S) r_j(S)
//! many     f_j = E[1 + most others that exchange over one of the links of j], k for the part p_kj of the time
//!          p_kj = x_k f_kj / (x_k f_kj + z_k(f_k)),   f_kj as f_k, but without j
//! ```
//!
//! | symbol | meaning                                                                              | unit |
//! |--------|--------------------------------------------------------------------------------------|------|
//! | T      | step, relative to the step with the links for itself                                 | 1    |
//! | f      | stretch of an exchange: how many times as long it takes as with all of the bandwidth | 1    |
//! | x, z   | exchange, and the rest of a step, in steps with the links for itself                 | 1    |
//! | r_j(S) | max-min fair part of the bandwidth that j gets of all its links while S exchange     | 1    |
//! | p_kj   | part of the time in which j finds k exchanging                                       | 1    |
//! | kept   | part of its speed alone that a job keeps                                             | 1    |
//!
//! A job that is slowed down exchanges for more of the time, so these are equations for `f`. They are solved from
//! below, where all are alone: more of one makes no other smaller, so the rounds rise to the smallest solution. Few
//! are up to [`FEW`] jobs that are connected through links; the chain has a state for each set of them.
//!
//! # Source
//!
//! This project's. Many: what a job finds at its links is what would happen there without it, the arrival theorem of
//! closed queueing networks (Reiser and Lavenberg, Mean-value analysis, JACM 1980), here for each pair, as in the
//! cavity method. Max-min fairness: Bertsekas and Gallager, Data Networks, section 6.5.2. That jobs slow each other
//! down by how their exchanges fall together: Rajasekaran et al., CASSINI, NSDI 2024.
//!
//! # Assumes
//!
//! An exchange loads all links of its job alike, and for its whole time. The links of nodes are the only bottlenecks:
//! the network between them carries whatever they send. How the steps of two jobs lie to each other changes all the
//! time: no scheduler of the network keeps it at what is best, and their steps are not equally long for long. The
//! chain draws exponential times; on one link their law changes nothing (queues that share their server are
//! insensitive to it), over several links little.
//!
//! # Valid
//!
//! Where the step model tells the exchange from the rest. One that ignores the links says `T(f) = 1`: such jobs
//! neither slow others down nor are slowed down. Two jobs with constant steps of one length stay as they began, and
//! lose nothing, or more than the mean.
//!
//! # Checked by
//!
//! `tests/it/shared_links.rs`: cases by hand; simulations of every exchange, on one link and over several. Steps of
//! few jobs are right to 0.6 % with exponential times, to 1.5 % with uniform ones and to 3 % with constant ones; of
//! more, and where computing hides a part of the exchange, to 4 %.
//!
//! ```
//! use bellwether_model::shared_links::{Exchange, Flow, kept};
//! // Half of a step is exchange, and the other job always exchanges: f = 2, so a step takes 0.5 + 2 * 0.5.
//! let (half, whole) = (Exchange::in_turn(0.5), Exchange::in_turn(1.0));
//! let flows = [Flow { links: vec![0, 1], exchange: &half }, Flow { links: vec![1, 2], exchange: &whole }];
//! let kept = kept(&flows);
//! assert!((kept[0] - 1.0 / 1.5).abs() < 1e-6);
//! ```

mod chain;
mod exchange;
mod fullest;

pub use exchange::Exchange;

/// Most connected jobs for which all sets of them are looked at.
pub const FEW: usize = 6;

/// Change of a part of the time, or of a step, at which the equations are solved, ...
const SETTLED: f64 = 1e-7;

/// ... or given up as solved well enough: a round leaves a part of the error that depends on the load.
const ROUNDS_MAX: u32 = 200;

/// A job that exchanges over links.
#[derive(Debug, Clone)]
pub struct Flow<'a> {
    /// Its links, by any numbers, each once.
    pub links: Vec<u32>,
    /// What a part of the links makes of its step.
    pub exchange: &'a Exchange,
}

/// The part of its speed alone that each of some jobs keeps while all of them are there; 1 where it shares no link.
pub fn kept(flows: &[Flow<'_>]) -> Vec<f64> {
    let mut kept = vec![1.0; flows.len()];
    for members in connected(flows) {
        let group: Vec<&Flow<'_>> = members.iter().map(|member| &flows[*member]).collect();
        let stretches =
            if group.len() <= FEW { chain::stretches(&group) } else { fullest::stretches(&group) };
        for (member, stretch) in members.into_iter().zip(stretches) {
            kept[member] = 1.0 / flows[member].exchange.step(stretch);
        }
    }
    kept
}

/// Groups of two or more jobs that are connected through links, of those that exchange at all.
fn connected(flows: &[Flow<'_>]) -> Vec<Vec<usize>> {
    let mut by_link = std::collections::BTreeMap::<u32, Vec<usize>>::new();
    for (number, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.exchange.waits_for_links()) {
        flow.links.iter().for_each(|link| by_link.entry(*link).or_default().push(number));
    }
    let mut met = vec![false; flows.len()];
    let mut groups = Vec::new();
    for first in by_link.values().flatten() {
        if std::mem::replace(&mut met[*first], true) {
            continue;
        }
        let mut group = vec![*first];
        let mut next = 0;
        while next < group.len() {
            for other in flows[group[next]].links.iter().flat_map(|link| &by_link[link]) {
                if !std::mem::replace(&mut met[*other], true) {
                    group.push(*other);
                }
            }
            next += 1;
        }
        if group.len() > 1 {
            group.sort_unstable();
            groups.push(group);
        }
    }
    groups
}
