//! The odds of a plan's word, against closed forms; and what would keep it.

use std::collections::BTreeMap;

use bellwether_core::machines::{Obtain, Pool};
use bellwether_core::plan::{
    Basis, Candidate, Constraints, Kind, Machines, Market, PLAN_VERSION, Plan, TransientTerms,
};
use bellwether_sched::promise::{Answer, Now, Promise, RUNS};

const HOUR_S: f64 = 3600.0;

fn kind(machine: &str, rate: f64, price: f64, transient: Option<(f64, &str)>) -> Kind {
    Kind {
        machine: machine.into(),
        device: machine.into(),
        devices: 1,
        region: None,
        on_demand: Some(price),
        transient: transient
            .map(|(dollars_per_hour, law)| TransientTerms { dollars_per_hour, law: law.into() }),
        provision_s: 60.0,
        join_s: 40.0,
        limit: None,
        // Eight machines are a little less than eight times as fast as one.
        examples_per_s: (1..=8).map(|count| rate * f64::from(count).powf(0.95)).collect(),
        obtain: Obtain::default(),
    }
}

/// A plan of this many machines of the first kind.
fn plan(kinds: Vec<Kind>, market: Market, count: u32, deadline_s: Option<f64>, budget: Option<f64>) -> Plan {
    let first = &kinds[0];
    let machines = vec![Machines {
        machine: first.machine.clone(),
        count,
        device: first.device.clone(),
        devices: 1,
        region: None,
        market,
        dollars_per_hour: 1.0,
        virtual_nodes: Vec::new(),
    }];
    let chosen = Candidate {
        machines,
        workers: count,
        examples_per_s: first.examples_per_s[count as usize - 1],
        checkpoint_period_s: None,
        time_s: 1.0,
        p95_time_s: 1.0,
        cost_dollars: 1.0,
        p95_cost_dollars: 1.0,
        meets_deadline: None,
        losses: 0.0,
        runs: 0,
        way: None,
        staleness: None,
        work_factor: None,
        extrapolated: None,
    };
    let constraints = Constraints {
        deadline_s,
        budget_dollars: budget,
        confidence: 0.9,
        transient: true,
        max_workers: 8,
        regions: Vec::new(),
    };
    let basis = Basis { batch: 100, virtual_nodes: 8, checkpoint_s: 5.0, fixed_dollars_per_hour: 0.0, kinds };
    Plan {
        version: PLAN_VERSION,
        job: "made".into(),
        computation: None,
        samples: 1e6,
        constraints,
        choice: Some(0),
        reason: "a test".into(),
        relaxations: Vec::new(),
        candidates: vec![chosen],
        on_demand: Vec::new(),
        synchronisation: None,
        searched: 1,
        simulated: 0,
        basis: Some(basis),
    }
}

fn pool(machine: &str, market: Market) -> Pool {
    Pool { machine: machine.into(), market }
}

fn now(samples_left: f64, deadline_left_s: f64, running: &[(Pool, Vec<f64>)]) -> Now {
    Now {
        samples_left,
        deadline_left_s: Some(deadline_left_s),
        budget_left_dollars: None,
        pace: 1.0,
        ages_s: running.iter().cloned().collect::<BTreeMap<_, _>>(),
        seed: 5,
    }
}

#[test]
fn machines_on_demand_leave_nothing_to_chance() {
    let plan = plan(vec![kind("a", 100.0, 2.0, None)], Market::OnDemand, 2, Some(HOUR_S), None);
    let promise = Promise::of(&plan).unwrap();
    let (firm, rate) = (pool("a", Market::OnDemand), 100.0 * 2f64.powf(0.95));
    let groups = promise.chosen().clone();
    // They have yet to come: 100 s, and no price for the first 60 of them.
    let coming = promise.odds(&now(rate * 1000.0, 1101.0, &[]), &groups).unwrap();
    assert!((coming.time_s - 1100.0).abs() < 1e-6, "{coming:?}");
    assert!((coming.cost_dollars - 2.0 * 2.0 * 1040.0 / HOUR_S).abs() < 1e-6, "{coming:?}");
    assert_eq!(coming.meets_deadline, 1.0);
    // They are at work, at four fifths of the speed.
    let slow = Now { pace: 0.8, ..now(rate * 1000.0, 1249.0, &[(firm, vec![10.0, 5.0])]) };
    let there = promise.odds(&slow, &groups).unwrap();
    assert!((there.time_s - 1250.0).abs() < 1e-6, "{there:?}");
    assert_eq!(there.meets_deadline, 0.0);
    assert!(there.is_broken(0.9, &slow) && !coming.is_broken(0.9, &now(1.0, 1101.0, &[])));
}

#[test]
fn a_lone_transient_machine_lives_as_one_of_its_age() {
    // It lives for 10,000 s, or for up to 20,000: of those that are 10,000 s old half are gone after 5,000 more.
    let law = "points:10000s=0.5,20000s=1";
    let kinds = vec![kind("a", 100.0, 2.0, Some((0.5, law)))];
    let plan = plan(kinds, Market::Transient, 1, Some(HOUR_S), None);
    let promise = Promise::of(&plan).unwrap();
    let of_age = |age_s: f64| {
        let there = now(100.0 * 5000.0, 5000.5, &[(pool("a", Market::Transient), vec![age_s])]);
        promise.odds(&there, promise.chosen()).unwrap().meets_deadline
    };
    // Standard error of 400 runs: 2.5 points.
    let noise = 3.0 * (0.25 / f64::from(RUNS)).sqrt();
    assert!((of_age(0.0) - 0.75).abs() < noise, "{}", of_age(0.0));
    assert!((of_age(10_000.0) - 0.5).abs() < noise, "{}", of_age(10_000.0));
    assert!(of_age(15_000.0) < 0.02, "{}", of_age(15_000.0));
}

#[test]
fn what_would_keep_the_word_does() {
    let kinds = vec![
        kind("a", 100.0, 2.0, Some((0.4, "exponential:2h"))),
        kind("b", 250.0, 6.0, Some((1.5, "exponential:8h"))),
    ];
    let plan = plan(kinds, Market::Transient, 2, Some(HOUR_S), None);
    let promise = Promise::of(&plan).unwrap();
    let rate = promise.examples_per_s(promise.chosen());
    // An hour of work is left, and the run is at 0.7 of its speed.
    let slow = Now {
        pace: 0.7,
        ..now(rate * HOUR_S, 1.05 * HOUR_S, &[(pool("a", Market::Transient), vec![100.0, 90.0])])
    };
    let stay = promise.odds(&slow, promise.chosen()).unwrap();
    assert!(stay.is_broken(0.9, &slow), "{stay:?}");
    let Answer::Keeps(groups, found) = promise.better(&slow).unwrap() else { panic!("nothing keeps it") };
    let again = promise.odds(&slow, &groups).unwrap();
    assert_eq!(again, found);
    assert!(again.keeps(0.9, &slow), "{again:?}");
    // None of the same kind that is smaller does.
    let cheaper = |count| promise.odds(&slow, &[(groups[0].0.clone(), count)]).unwrap();
    let fewer = groups.iter().map(|(_, count)| count).sum::<u32>() - 1;
    assert!(groups.len() > 1 || !cheaper(fewer).keeps(0.9, &slow), "{groups:?}");
    // With no hope at all the nearest is named, and with a budget nothing that is beyond it.
    let hopeless = Now { deadline_left_s: Some(120.0), ..slow.clone() };
    assert!(matches!(promise.better(&hopeless), Ok(Answer::Nearest(_, odds)) if odds.meets_deadline < 0.9));
    let poor = Now { budget_left_dollars: Some(0.05), ..slow };
    assert!(matches!(promise.better(&poor), Ok(Answer::Nothing)), "{:?}", promise.better(&poor));
}

#[test]
fn a_plan_that_cannot_be_carried_out_says_why() {
    let made =
        |law: &str| plan(vec![kind("a", 100.0, 2.0, Some((0.4, law)))], Market::Transient, 2, None, None);
    let why = |plan: &Plan| Promise::of(plan).unwrap_err().to_string();
    assert!(why(&made("points:1h=2")).contains("kind a"), "{}", why(&made("points:1h=2")));
    assert!(why(&made("samples:mine.txt")).contains("names a file"));
    assert!(why(&Plan { basis: None, ..made("never") }).contains("earlier release"));
    assert!(why(&Plan { choice: None, ..made("never") }).contains("chose no machines"));
}
