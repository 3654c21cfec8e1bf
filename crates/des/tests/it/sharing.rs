//! Shared resources against a slow reference that recomputes everything at every change.

use bellwether_des::fair::{FlowId, LinkId};
use bellwether_des::{MaxMinFair, ProcessorSharing};
use proptest::prelude::*;

/// Max-min fair rates by growing all flows in the smallest step that fills a link.
fn filled(capacities: &[f64], paths: &[Vec<usize>]) -> Vec<f64> {
    let mut rates = vec![0.0; paths.len()];
    let mut grows = vec![true; paths.len()];
    let mut used = vec![0.0; capacities.len()];
    while grows.contains(&true) {
        let growing =
            |link: usize| (0..paths.len()).filter(|f| grows[*f] && paths[*f].contains(&link)).count();
        let room = |link: usize| (capacities[link] - used[link]) / growing(link) as f64;
        let links = || (0..capacities.len()).filter(|link| growing(*link) > 0);
        let step = links().map(room).fold(f64::INFINITY, f64::min);
        let full: Vec<usize> = links().filter(|link| room(*link) <= step * (1.0 + 1e-12)).collect();
        for (flow, path) in paths.iter().enumerate() {
            if grows[flow] {
                rates[flow] += step;
                path.iter().for_each(|link| used[*link] += step);
            }
        }
        for (flow, path) in paths.iter().enumerate() {
            grows[flow] = grows[flow] && !path.iter().any(|link| full.contains(link));
        }
    }
    rates
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

#[derive(Debug, Clone)]
enum Deed {
    Start { path: Vec<usize>, work: f64 },
    Stop(usize),
    Work { which: usize, work: f64 },
    Finish { again: Option<f64> },
    Wait(f64),
}

fn deed(links: usize) -> impl Strategy<Value = Deed> {
    let path = prop::sample::subsequence((0..links).collect::<Vec<_>>(), 1..=links.min(3));
    prop_oneof![
        4 => (path.prop_shuffle(), 0.0..9.0f64).prop_map(|(path, work)| Deed::Start { path, work }),
        2 => any::<usize>().prop_map(Deed::Stop),
        1 => (any::<usize>(), 0.0..9.0f64).prop_map(|(which, work)| Deed::Work { which, work }),
        3 => prop::option::of(0.0..9.0f64).prop_map(|again| Deed::Finish { again }),
        2 => (0.0..0.5f64).prop_map(Deed::Wait),
    ]
}

fn scenario() -> impl Strategy<Value = (Vec<f64>, Vec<Deed>)> {
    // Capacities from a short list, so that equal shares and exact ties happen.
    let capacity = prop_oneof![Just(1.0), Just(2.0), Just(4.0), Just(100.0), 0.5..10.0f64];
    prop::collection::vec(capacity, 1..6)
        .prop_flat_map(|c| (Just(c.clone()), prop::collection::vec(deed(c.len()), 1..80)))
}

/// The system under test, and what each flow should have left.
struct Pair {
    links: MaxMinFair<usize>,
    ids: Vec<LinkId>,
    capacities: Vec<f64>,
    flows: Vec<(FlowId, Vec<usize>, f64)>,
    now_s: f64,
}

impl Pair {
    fn rates(&self) -> Vec<f64> {
        let paths: Vec<Vec<usize>> = self.flows.iter().map(|flow| flow.1.clone()).collect();
        filled(&self.capacities, &paths)
    }

    /// Earliest finish, were nothing to change: time and work left of each flow.
    fn next_finish(&self) -> Option<f64> {
        let waits =
            |((_, _, left), rate): (&(FlowId, Vec<usize>, f64), f64)| (*left >= 0.0).then(|| left / rate);
        let times = self.flows.iter().zip(self.rates()).filter_map(waits);
        times.min_by(f64::total_cmp).map(|wait_s| self.now_s + wait_s)
    }

    fn advance(&mut self, to_s: f64) {
        let rates = self.rates();
        for ((_, _, left), rate) in self.flows.iter_mut().zip(rates) {
            *left = (*left - rate * (to_s - self.now_s)).max(0.0);
        }
        self.now_s = to_s;
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let all: Vec<f64> = self.flows.iter().map(|flow| self.links.rate(flow.0)).collect();
        for (number, rate) in self.rates().into_iter().enumerate() {
            let (flow, path, left) = &self.flows[number];
            let got = all[number];
            prop_assert!(close(got, rate), "rate {} instead of {} on {:?}", got, rate, path);
            let got = self.links.left(self.now_s, *flow);
            prop_assert!((got - left.max(0.0)).abs() < 1e-7, "left {} instead of {}", got, left);
            // Pareto and max-min: some link is full, and no flow there gets more.
            let mut is_bottleneck = |link: &usize| {
                let full = close(self.links.load(self.ids[*link]), self.capacities[*link]);
                let mut others = self.flows.iter().zip(&all).filter(|(other, _)| other.1.contains(link));
                full && others.all(|(_, other)| *other <= rate * (1.0 + 1e-9))
            };
            prop_assert!(path.iter().any(&mut is_bottleneck), "{:?} has no bottleneck", path);
        }
        for (id, capacity) in self.ids.iter().zip(&self.capacities) {
            prop_assert!(self.links.load(*id) <= capacity * (1.0 + 1e-9), "above capacity");
        }
        match (self.links.next_time(), self.next_finish()) {
            (Some(a), Some(b)) => prop_assert!((a - b).abs() < 1e-7, "next at {} instead of {}", a, b),
            (a, b) => prop_assert_eq!(a.is_some(), b.is_some()),
        }
        Ok(())
    }

    fn perform(&mut self, deed: &Deed) -> Result<(), TestCaseError> {
        match deed {
            Deed::Start { path, work } => {
                let links: Vec<LinkId> = path.iter().map(|link| self.ids[*link]).collect();
                let flow = self.links.start(self.now_s, &links, *work, path.len());
                self.flows.push((flow, path.clone(), *work));
            }
            Deed::Stop(which) if !self.flows.is_empty() => {
                let (flow, _, left) = self.flows.swap_remove(which % self.flows.len());
                let got = self.links.stop(self.now_s, flow);
                prop_assert!((got - left.max(0.0)).abs() < 1e-7);
            }
            Deed::Work { which, work } if !self.flows.is_empty() => {
                let number = which % self.flows.len();
                self.links.set_work(self.now_s, self.flows[number].0, *work);
                self.flows[number].2 = *work;
            }
            Deed::Finish { again } => self.finish(*again)?,
            Deed::Wait(wait_s) => {
                let to_s = self.now_s + wait_s;
                if self.links.next_time().is_none_or(|next_s| next_s > to_s) {
                    self.advance(to_s);
                }
            }
            Deed::Stop(_) | Deed::Work { .. } => {}
        }
        Ok(())
    }

    fn finish(&mut self, again: Option<f64>) -> Result<(), TestCaseError> {
        let Some((time_s, flow)) = self.links.finish() else { return Ok(()) };
        self.advance(time_s.max(self.now_s));
        let number = self.flows.iter().position(|other| other.0 == flow).expect("a known flow");
        prop_assert!(self.flows[number].2.abs() < 1e-7, "finished with {} left", self.flows[number].2);
        match again {
            Some(work) => {
                self.links.extend(flow, work);
                self.flows[number].2 = work;
            }
            None => {
                self.flows.swap_remove(number);
                self.links.stop(self.now_s, flow);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn max_min_shares_are_those_of_progressive_filling((capacities, deeds) in scenario()) {
        let mut links = MaxMinFair::new();
        let ids = capacities.iter().map(|capacity| links.add_link(*capacity)).collect();
        let mut pair = Pair { links, ids, capacities, flows: Vec::new(), now_s: 0.0 };
        for (number, deed) in deeds.iter().enumerate() {
            pair.perform(deed)?;
            // Not always, so that several changes are found out about at once.
            if number % 3 != 1 {
                pair.check()?;
            }
        }
        pair.check()?;
    }

    #[test]
    fn processor_sharing_is_max_min_over_one_link(
        arrivals in prop::collection::vec((0.0..3.0f64, 0.0..5.0f64, any::<bool>()), 1..60),
        capacity in 0.5..4.0f64,
    ) {
        let mut sharing = ProcessorSharing::new(capacity);
        let mut links = MaxMinFair::new();
        let link = links.add_link(capacity);
        let (mut now_s, mut brought, mut taken) = (0.0f64, 0.0, 0.0);
        let mut there = Vec::new();
        for (name, (gap_s, work, leaves)) in arrivals.into_iter().enumerate() {
            let until_s = now_s + gap_s;
            while sharing.next_time().is_some_and(|next_s| next_s <= until_s) {
                let (time_s, gone) = sharing.depart().unwrap();
                let (other_s, flow) = links.finish().unwrap();
                prop_assert!((time_s - other_s).abs() < 1e-9);
                prop_assert_eq!(*links.customer(flow), gone);
                links.stop(other_s, flow);
                there.retain(|(name, _, _)| *name != gone);
            }
            now_s = until_s;
            brought += work;
            there.push((name, sharing.arrive(now_s, work, name), links.start(now_s, &[link], work, name)));
            if leaves {
                let (_, ticket, flow) = there.swap_remove(name % there.len());
                let (left, _) = sharing.leave(now_s, ticket).unwrap();
                prop_assert!((left - links.stop(now_s, flow)).abs() < 1e-9);
                taken += left;
            }
            prop_assert_eq!(sharing.len(), there.len());
        }
        while let Some((time_s, _)) = sharing.depart() {
            now_s = time_s;
        }
        // Work conserving: all that was brought and not taken away was done.
        prop_assert!(close(sharing.work_done(now_s), brought - taken));
    }
}

#[test]
fn a_customer_with_a_limit_leaves_capacity_unused() {
    let mut sharing = ProcessorSharing::with_limit(10.0, 4.0);
    sharing.arrive(0.0, 4.0, 'a');
    assert_eq!(sharing.next_time(), Some(1.0));
    sharing.arrive(0.0, 8.0, 'b');
    sharing.arrive(0.0, 8.0, 'c');
    assert!(close(sharing.rate(), 10.0 / 3.0));
    let (time_s, _) = sharing.depart().unwrap();
    assert!(close(time_s, 1.2));
    assert!(close(sharing.rate(), 4.0));
    sharing.set_capacity(1.2, 2.0);
    assert_eq!(sharing.depart().map(|(time_s, name)| (close(time_s, 5.2), name)), Some((true, 'b')));
}

#[test]
fn a_lone_customer_gets_all_of_a_capacity_that_has_grown() {
    let mut sharing = ProcessorSharing::new(10.0);
    sharing.arrive(0.0, 30.0, 'a');
    sharing.set_capacity(1.0, 20.0);
    assert_eq!(sharing.rate(), 20.0);
    assert_eq!(sharing.depart(), Some((2.0, 'a')));
}

#[test]
fn a_star_of_wide_branches_needs_no_filling() {
    let mut links = MaxMinFair::new();
    let trunk = links.add_link(1.0);
    let flows: Vec<FlowId> = (0..64)
        .map(|_| {
            let branch = links.add_link(1.0);
            links.start(0.0, &[branch, trunk], 1.0, ())
        })
        .collect();
    assert_eq!(links.refills(), 0);
    flows.iter().take(60).for_each(|flow| {
        links.stop(0.0, *flow);
    });
    assert_eq!(links.rate(flows[63]), 0.25);
    assert_eq!(links.refills(), 0);
}

#[test]
fn changes_take_effect_when_they_happen_and_not_when_somebody_asks() {
    // Two links cross in every pair of flows, so that no closed form applies.
    let mut links = MaxMinFair::new();
    let (a, b) = (links.add_link(1.0), links.add_link(2.0));
    let both = links.start(0.0, &[a, b], 10.0, "both");
    let wide = links.start(0.0, &[b], 10.0, "wide");
    links.stop(1.0, wide);
    let second = links.start(1.0, &[a, b], 10.0, "second");
    links.start(3.0, &[a], 10.0, "third");
    links.start(4.0, &[b], 10.0, "fourth");
    // Alone on the first link for 1 s, two of it for 2 s, three of it for 1 s.
    assert!(close(links.left(4.0, both), 10.0 - 1.0 - 1.0 - 1.0 / 3.0));
    assert!(close(links.left(4.0, second), 10.0 - 1.0 - 1.0 / 3.0));
}

#[test]
fn an_untouched_component_keeps_its_bits() {
    let mut links = MaxMinFair::new();
    let (here, there) = (links.add_link(3.0), links.add_link(7.0));
    links.start(0.0, &[here], 1.0, ());
    let far = links.start(0.1, &[there], 1.0, ());
    let next = links.left(0.15, far);
    links.start(0.15, &[here], 1.0, ());
    assert_eq!(links.left(0.15, far).to_bits(), next.to_bits());
}

#[test]
#[should_panic(expected = "carries nothing")]
fn a_link_without_capacity_is_refused() {
    MaxMinFair::<()>::new().add_link(0.0);
}

#[test]
#[should_panic(expected = "was not taken")]
fn a_departure_cannot_be_forgotten() {
    let mut sharing = ProcessorSharing::new(1.0);
    sharing.arrive(0.0, 1.0, ());
    sharing.arrive(2.0, 1.0, ());
}
