//! Federations that trade: the linear production game against a general solver and against every coalition, and markets
//! in which each member does what is best for itself.

use std::convert::Infallible;

use bellwether_federation::game::affinity::{Affinity, Class, Member, Posted};
use bellwether_federation::game::play::{Ending, Rules, deviations, play};
use bellwether_federation::game::prices::{Market, Performance, Site, Terms, fluid, utility, welfare};
use bellwether_federation::game::sharing::{Effort, Found};
use bellwether_federation::game::{Coalition, Game};
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions};
use proptest::prelude::*;

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|place| format!("{prefix}{place}")).collect()
}

fn federation(
    speeds: &[Vec<f64>],
    prices: &[f64],
    transfer: f64,
    owned: &[Vec<f64>],
    demand: &[Vec<f64>],
) -> Affinity {
    let class = |(j, speeds): (usize, &Vec<f64>)| Class {
        name: format!("class {j}"),
        speeds: speeds.clone(),
        public_price: prices[j],
        transfer,
    };
    let member = |(i, (owned, demand)): (usize, (&Vec<f64>, &Vec<f64>))| Member {
        name: format!("member {i}"),
        owned: owned.clone(),
        demand: demand.clone(),
    };
    let types = names("type ", owned[0].len());
    let classes = speeds.iter().enumerate().map(class).collect();
    let members = owned.iter().zip(demand).enumerate().map(member).collect();
    Affinity::new(types, classes, members).expect("a federation that makes sense")
}

/// Cases of each law; tried once with 100 times as many.
const CASES: u32 = 300;

/// Two datacenters, each with the units that suit the other's jobs.
fn swapped(demand: f64, price: f64) -> Affinity {
    let speeds = [vec![2.0, 1.0], vec![1.0, 2.0]];
    let owned = [vec![100.0, 0.0], vec![0.0, 100.0]];
    federation(&speeds, &[price; 2], 0.0, &owned, &[vec![0.0, demand], vec![demand, 0.0]])
}

/// The least cost of a coalition as a general solver finds it, with every unit and every work a good of its own.
fn general_cost(federation: &Affinity, coalition: Coalition) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let members: Vec<usize> = coalition.members().collect();
    let mut used = vec![vec![Vec::new(); federation.types().len()]; federation.members().len()];
    for &home in &members {
        for (j, class) in federation.classes().iter().enumerate() {
            let undone = problem.add_var(class.public_price, (0.0, f64::INFINITY));
            let mut served = vec![(undone, 1.0)];
            for &at in &members {
                for (k, &speed) in class.speeds.iter().enumerate() {
                    let units = problem.add_var(0.0, (0.0, f64::INFINITY));
                    let slower = if at == home { 1.0 } else { 1.0 + class.transfer };
                    served.push((units, speed / slower));
                    used[at][k].push((units, 1.0));
                }
            }
            problem.add_constraint(served, ComparisonOp::Ge, federation.members()[home].demand[j]);
        }
    }
    for &at in &members {
        for (units, &owned) in std::mem::take(&mut used[at]).into_iter().zip(&federation.members()[at].owned)
        {
            problem.add_constraint(units, ComparisonOp::Le, owned);
        }
    }
    let mut options = SolveOptions::default();
    options.tolerances.feasibility = 1e-10;
    let solution = problem.solve_with(options).ok().and_then(|outcome| outcome.into_solution().ok());
    solution.expect("it has an optimum").objective()
}

/// Few distinct numbers, so that ties and degenerate optima are common; and any at all.
fn number(simple: &'static [f64], most: f64) -> impl Strategy<Value = f64> {
    prop_oneof![3 => prop::sample::select(simple), 1 => 0.0..most]
}

fn matrix(
    rows: usize,
    columns: usize,
    entry: impl Strategy<Value = f64>,
) -> impl Strategy<Value = Vec<Vec<f64>>> {
    prop::collection::vec(prop::collection::vec(entry, columns), rows)
}

fn federations() -> impl Strategy<Value = Affinity> {
    (1_usize..=4, 1_usize..=3, 1_usize..=3).prop_flat_map(|(members, types, classes)| {
        let speeds = matrix(classes, types, number(&[0.0, 1.0, 1.0, 2.0], 5.0));
        let prices = prop::collection::vec(number(&[0.0, 1.0, 1.0, 2.0], 3.0), classes);
        let owned = matrix(members, types, number(&[0.0, 1.0, 2.0, 4.0], 9.0));
        let demand = matrix(members, classes, number(&[0.0, 1.0, 2.0, 4.0, 8.0], 30.0));
        let transfer = prop_oneof![Just(0.0), Just(0.5), 0.0_f64..2.0];
        (speeds, prices, owned, demand, transfer).prop_map(|(speeds, prices, owned, mut demand, transfer)| {
            for (j, speeds) in speeds.iter().enumerate() {
                let owned = |k: usize| owned.iter().any(|owned| owned[k] > 0.0);
                if !(0..speeds.len()).any(|k| speeds[k] > 0.0 && owned(k)) {
                    demand.iter_mut().for_each(|demand| demand[j] = 0.0);
                }
            }
            federation(&speeds, &prices, transfer, &owned, &demand)
        })
    })
}

/// Savings that the charges leave to each member.
fn payments(federation: &Affinity, charges: &[f64]) -> Vec<f64> {
    charges.iter().enumerate().map(|(i, charge)| federation.cost(Coalition::of([i])) - charge).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs() + b.abs())
}

#[test]
fn two_sites_swap_their_work() {
    let price = 3.0;
    let federation = swapped(150.0, price);
    let game = federation.game().unwrap();
    assert_eq!(game.values(), [0.0, 0.0, 0.0, 100.0 * price]);
    let owen = federation.owen().unwrap();
    assert_eq!(payments(&federation, &owen.charges), [50.0 * price; 2]);
    let plan = federation.plan();
    // All work stays at home that can do so without a payment: 50 of each, on slower units.
    assert_eq!(plan.cost, 0.0);
    assert!(near(plan.lent(0, 1), 50.0) && near(plan.lent(1, 0), 50.0), "{plan:?}");
}

#[test]
fn of_many_prices_the_middle_is_taken() {
    // All units are busy and all work is done: any rent from nothing to the worth of the work will do.
    let federation = swapped(200.0, 1.0);
    let owen = federation.owen().unwrap();
    assert_eq!((&owen.lowest_rents, &owen.highest_rents), (&vec![vec![0.0; 2]; 2], &vec![vec![2.0; 2]; 2]));
    assert_eq!((&owen.rents, &owen.work), (&vec![vec![1.0; 2]; 2], &vec![vec![0.5; 2]; 2]));
    assert_eq!(payments(&federation, &owen.charges), [100.0; 2]);
    // A hundredth less work than could be done, and units are worth nothing; a hundredth more, and they are worth all.
    assert_eq!(swapped(198.0, 1.0).owen().unwrap().rents, vec![vec![0.0; 2]; 2]);
    assert_eq!(swapped(202.0, 1.0).owen().unwrap().rents, vec![vec![2.0; 2]; 2]);
}

#[test]
fn a_transfer_cost_eats_the_saving() {
    let with = |transfer| {
        let speeds = [vec![2.0, 1.0], vec![1.0, 2.0]];
        let owned = [vec![100.0, 0.0], vec![0.0, 100.0]];
        federation(&speeds, &[1.0; 2], transfer, &owned, &[vec![0.0, 150.0], vec![150.0, 0.0]])
    };
    let both = Coalition::everyone(2);
    // Half as much again for work away: 100 units do 100 * 2 / 1.5 of it, and what is left stays at home.
    for (transfer, cost) in [(0.0, 0.0), (1.0 / 3.0, 0.0), (1.0, 100.0), (2.0, 100.0)] {
        assert!(near(with(transfer).cost(both), cost), "{transfer}: {}", with(transfer).cost(both));
    }
    let between = with(0.5).cost(both);
    assert!(between > 0.0 && near(between, general_cost(&with(0.5), both)), "{between}");
}

/// Rents of types that no member owns and values of work that no member has, which no payment depends on.
#[test]
fn what_no_member_has_is_priced_too() {
    let speeds = [vec![1.0, 3.0], vec![1.0, 0.0], vec![0.5, 0.0]];
    let owen = federation(&speeds, &[2.0, 10.0, 3.0], 0.0, &[vec![1.0, 0.0]], &[vec![5.0, 0.0, 0.0]])
        .owen()
        .unwrap();
    // Another unit of the first type would save 2, a first one of the second would do three times as much.
    assert_eq!(owen.rents, [[2.0, 6.0]]);
    // An example/s of the second class would take a unit from the first; of the third, two units, and the public
    // cloud is cheaper.
    assert_eq!(owen.work, [[2.0, 2.0, 3.0]]);
    assert_eq!(owen.charges, [8.0]);
}

/// Measured steps/s of four kinds of job on three types of device, each at home where it runs badly.
#[test]
fn measured_affinity_saves() {
    const TABLE: &[u8] = include_bytes!("../../../../data/gavel/simulation_throughputs.json");
    let table: serde_json::Value = serde_json::from_slice(TABLE).unwrap();
    let types = ["k80", "p100", "v100"];
    let kinds =
        ["ResNet-50 (batch size 64)", "LM (batch size 20)", "A3C", "Recommendation (batch size 1024)"];
    let speeds = kinds
        .map(|kind| types.map(|of| table[of][format!("('{kind}', 1)")]["null"].as_f64().unwrap()).to_vec());
    // A public V100 costs 1 per hour, and each site needs what 60 of these would do.
    let prices: Vec<f64> = speeds.iter().map(|speeds| 1.0 / speeds[2]).collect();
    let needs = [[60.0, 0.0, 0.0, 0.0], [0.0, 60.0, 0.0, 0.0], [0.0, 0.0, 40.0, 20.0]];
    let demand =
        needs.map(|needs| needs.iter().zip(&speeds).map(|(v100s, speeds)| v100s * speeds[2]).collect());
    let owned = [vec![100.0, 0.0, 0.0], vec![0.0, 50.0, 0.0], vec![0.0, 0.0, 50.0]];
    let federation = federation(&speeds, &prices, 0.0, &owned, &demand);
    let (game, owen) = (federation.game().unwrap(), federation.owen().unwrap());
    let paid = payments(&federation, &owen.charges);
    assert!(game.is_stable(&paid), "{paid:?} {:?}", game.blocking(&paid));
    // Of 71 V100s that they rent alone two thirds are saved: A3C runs on the K80s, ResNet-50 on the V100s.
    let alone: f64 = (0..3).map(|i| federation.cost(Coalition::of([i]))).sum();
    assert!((alone - 70.99).abs() < 0.01 && (owen.cost - 24.20).abs() < 0.01, "{alone} {}", owen.cost);
    let plan = federation.plan();
    assert!(plan.lent(0, 2) > 90.0 && plan.lent(2, 0) > 35.0 && plan.lent(1, 0) == 0.0, "{plan:?}");
    // The rents say what suits what: a K80 is worth a quarter of a V100, and a P100 nine tenths.
    let expected = [0.265, 0.899, 1.0];
    assert!(owen.rents[0].iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{:?}", owen.rents[0]);
}

#[test]
fn a_class_that_no_member_can_run_is_named() {
    let class = |name: &str, speeds: [f64; 2]| Class {
        name: name.to_string(),
        speeds: speeds.to_vec(),
        public_price: 1.0,
        transfer: 0.0,
    };
    let member = |owned: [f64; 2], demand: [f64; 2]| Member {
        name: "Ost".to_string(),
        owned: owned.to_vec(),
        demand: demand.to_vec(),
    };
    let with = |speeds, owned, demand| {
        Affinity::new(
            names("t", 2),
            vec![class("bert", [1.0, 1.0]), class("yolo", speeds)],
            vec![member(owned, demand)],
        )
    };
    for (speeds, owned) in [([0.0, 0.0], [1.0, 1.0]), ([0.0, 2.0], [1.0, 0.0])] {
        let error = with(speeds, owned, [1.0, 1.0]).unwrap_err();
        assert!(error.to_string().starts_with("job class yolo: Ost needs it"), "{error}");
        assert!(with(speeds, owned, [1.0, 0.0]).is_ok(), "no member needs it");
    }
    assert!(with([1.0, 1.0], [1.0, 1.0], [1.0, -1.0]).unwrap_err().to_string().contains("demand: -1"));
    assert!(with([f64::NAN, 1.0], [1.0, 1.0], [1.0, 1.0]).unwrap_err().to_string().contains("speeds: NaN"));
    assert!(with([1.0, 1.0], [1.0, f64::INFINITY], [1.0, 1.0]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn costs_are_those_of_a_general_solver(federation in federations()) {
        for coalition in Coalition::everyone(federation.members().len()).subsets().skip(1) {
            let (ours, general) = (federation.cost(coalition), general_cost(&federation, coalition));
            prop_assert!((ours - general).abs() <= 1e-6 * (1.0 + general), "{coalition:?}: {ours} {general}");
        }
    }

    /// Budget balance and no coalition that would rather leave, by looking at all of them.
    #[test]
    fn owens_payments_are_in_the_core(federation in federations()) {
        let (game, owen) = (federation.game().unwrap(), federation.owen().unwrap());
        let paid = payments(&federation, &owen.charges);
        prop_assert!(near(owen.charges.iter().sum(), owen.cost), "{owen:?}");
        prop_assert!(owen.gap <= 1e-9 * (1.0 + owen.cost), "{owen:?}");
        prop_assert!(game.is_stable(&paid), "{paid:?} {:?} {owen:?}", game.blocking(&paid));
        prop_assert_eq!(game.superadditivity().violations, 0);
        for i in 0..federation.members().len() {
            for (low, (middle, high)) in
                owen.lowest_rents[i].iter().zip(owen.rents[i].iter().zip(&owen.highest_rents[i]))
            {
                prop_assert!(*low >= 0.0 && *low <= middle + 1e-9 && *middle <= high + 1e-9, "{owen:?}");
            }
        }
    }

    /// Prices are such that no work is worth more than any way to do it costs.
    #[test]
    fn no_member_can_gain_at_these_prices(federation in federations()) {
        let owen = federation.owen().unwrap();
        for (home, values) in owen.work.iter().enumerate() {
            for (class, &value) in federation.classes().iter().zip(values) {
                prop_assert!(value >= 0.0 && value <= class.public_price + 1e-9);
                for (at, rents) in owen.rents.iter().enumerate() {
                    let slower = if at == home { 1.0 } else { 1.0 + class.transfer };
                    for (speed, rent) in class.speeds.iter().zip(rents).filter(|(speed, _)| **speed > 0.0) {
                        prop_assert!(value <= rent * slower / speed + 1e-9, "{owen:?}");
                    }
                }
            }
        }
    }

    /// A member that brings nothing and needs nothing gets nothing and pays nothing.
    #[test]
    fn a_member_without_anything_gets_nothing(federation in federations()) {
        let mut members = federation.members().to_vec();
        members.insert(0, Member {
            name: "idle".to_string(),
            owned: vec![0.0; federation.types().len()],
            demand: vec![0.0; federation.classes().len()],
        });
        let with = Affinity::new(federation.types().to_vec(), federation.classes().to_vec(), members).unwrap();
        let (before, after) = (federation.owen().unwrap(), with.owen().unwrap());
        prop_assert_eq!(after.charges[0], 0.0);
        for (a, b) in before.charges.iter().zip(&after.charges[1..]) {
            prop_assert!(near(*a, *b), "{before:?} {after:?}");
        }
    }

    /// Members in another order, and types and classes, pay what they paid.
    #[test]
    fn the_order_does_not_matter(federation in federations()) {
        let reversed = |row: &Vec<f64>| row.iter().rev().copied().collect::<Vec<f64>>();
        let classes = federation.classes().iter().rev().map(|class| Class { speeds: reversed(&class.speeds), ..class.clone() });
        let members = federation.members().iter().rev().map(|member| Member {
            owned: reversed(&member.owned),
            demand: reversed(&member.demand),
            ..member.clone()
        });
        let other = Affinity::new(federation.types().to_vec(), classes.collect(), members.collect()).unwrap();
        let (owen, other) = (federation.owen().unwrap(), other.owen().unwrap());
        for (a, b) in owen.charges.iter().zip(other.charges.iter().rev()) {
            prop_assert!(near(*a, *b), "{owen:?} {other:?}");
        }
    }

    /// What is run is what is needed, on what is there, for the least cost.
    #[test]
    fn the_plan_holds(federation in federations()) {
        let plan = federation.plan();
        let cost = federation.cost(Coalition::everyone(federation.members().len()));
        prop_assert!((plan.cost - cost).abs() <= 1e-5 * (1.0 + cost), "{} {cost}", plan.cost);
        for (i, member) in federation.members().iter().enumerate() {
            for (j, &demand) in member.demand.iter().enumerate() {
                let own = plan.runs.iter().filter(|run| run.of == i && run.class == j);
                let done: f64 = own.map(|run| run.examples_per_s).sum();
                prop_assert!((done + plan.forwarded[i][j] - demand).abs() <= 1e-6 * (1.0 + demand));
            }
            for (k, &owned) in member.owned.iter().enumerate() {
                let used = plan.runs.iter().filter(|run| run.on == i && run.device_type == k);
                prop_assert!(used.map(|run| run.units).sum::<f64>() <= owned * (1.0 + 1e-9));
            }
        }
        for run in &plan.runs {
            let class = &federation.classes()[run.class];
            let slower = if run.of == run.on { 1.0 } else { 1.0 + class.transfer };
            prop_assert!(near(run.units * class.speeds[run.device_type], run.examples_per_s * slower));
        }
    }

    /// Without affinity, types are one good in different amounts: members with the same load have nothing to trade,
    /// and a member that is short saves just what the other has to spare.
    #[test]
    fn without_affinity_only_load_matters(
        a in prop::collection::vec(0.5_f64..4.0, 2),
        b in prop::collection::vec(0.5_f64..4.0, 2),
        mix in 0.0_f64..1.0,
        sizes in prop::collection::vec(1.0_f64..50.0, 3),
        load in 0.2_f64..2.0,
    ) {
        let speeds: Vec<Vec<f64>> = a.iter().map(|a| b.iter().map(|b| a * b).collect()).collect();
        // Member 0 has only the first type, member 1 only the second, member 2 both; all of one load.
        let parts = [1.0, 0.0, 0.3];
        let owned: Vec<Vec<f64>> =
            sizes.iter().zip(parts).map(|(size, part)| vec![size * part / b[0], size * (1.0 - part) / b[1]]).collect();
        let needs = |size: f64| vec![size * mix * a[0], size * (1.0 - mix) * a[1]];
        let demand: Vec<Vec<f64>> = sizes.iter().map(|size| needs(size * load)).collect();
        let balanced = federation(&speeds, &[1.0 / a[0], 1.0 / a[1]], 0.0, &owned, &demand).game().unwrap();
        prop_assert!(balanced.values().iter().all(|value| value.abs() <= 1e-9 * 200.0), "{balanced:?}");
        let demand = vec![needs(1.5 * sizes[0]), needs(0.5 * sizes[1]), needs(sizes[2])];
        let uneven = federation(&speeds, &[1.0 / a[0], 1.0 / a[1]], 0.0, &owned, &demand).game().unwrap();
        let saved = 0.5 * sizes[0].min(sizes[1]);
        prop_assert!(near(uneven.value(uneven.everyone()), saved), "{uneven:?} {saved}");
    }
}

/// The check of the core is one: a payment that is off by a little is refused.
#[test]
fn a_wrong_split_is_blocked() {
    let federation = swapped(150.0, 1.0);
    let game: Game = federation.game().unwrap();
    assert!(
        game.is_stable(&[50.0, 50.0]) && !game.is_stable(&[-0.1, 100.1]) && !game.is_stable(&[50.0, 50.1])
    );
}

/// All offer everything for Owen's rents: no member would rather keep something, and all pay the least.
#[test]
fn at_owens_rents_the_market_is_efficient() {
    let federations = [swapped(150.0, 1.0), swapped(200.0, 1.0), swapped(230.0, 1.0), three_sites()];
    for federation in &federations {
        let owen = federation.owen().unwrap();
        let posted = Posted::new(federation, owen.rents[0].clone(), 4).unwrap();
        let (most, costs) = (posted.most(), posted.costs(&posted.most()));
        for (cost, charge) in costs.iter().zip(&owen.charges) {
            assert!((cost - charge).abs() <= 1e-4, "{costs:?} {owen:?}");
        }
        let gains = deviations(&most, &rules(&most), |all| savings(&posted, all)).unwrap();
        assert!(gains.is_empty(), "{gains:?}");
    }
}

fn three_sites() -> Affinity {
    let speeds = [vec![4.0, 1.0, 0.0], vec![1.0, 3.0, 2.0], vec![0.0, 2.0, 5.0]];
    let owned = [vec![10.0, 0.0, 0.0], vec![0.0, 10.0, 4.0], vec![2.0, 0.0, 10.0]];
    let demand = [vec![5.0, 20.0, 40.0], vec![40.0, 10.0, 0.0], vec![0.0, 10.0, 30.0]];
    federation(&speeds, &[1.0, 2.0, 1.5], 0.0, &owned, &demand)
}

fn rules(most: &[u32]) -> Rules {
    Rules { most: most.to_vec(), most_rounds: 50, least_gain: 1e-4, look_at_all: 1_000 }
}

fn savings(posted: &Posted, all: &[Vec<u32>]) -> Result<Vec<Vec<f64>>, Infallible> {
    Ok(all.iter().map(|levels| posted.savings(levels)).collect())
}

/// Where all offer everything for Owen's rents they stay. Where none does, an owner to whom the rent is just what its
/// unit is worth at home has no reason to begin: another equilibrium, and a worse one. At rents that no member pays all
/// are alone.
#[test]
fn rents_alone_do_not_bring_members_together() {
    let federation = three_sites();
    let (least, owen) = (federation.cost(Coalition::everyone(3)), federation.owen().unwrap());
    let alone: f64 = (0..3).map(|i| federation.cost(Coalition::of([i]))).sum();
    let settled = |factor: f64, from_all: bool| {
        let rents: Vec<f64> = owen.rents[0].iter().map(|rent| factor * rent).collect();
        let posted = Posted::new(&federation, rents, 4).unwrap();
        let start = if from_all { posted.most() } else { vec![0; 3] };
        let found = play(&start, &rules(&posted.most()), |all| savings(&posted, all)).unwrap();
        assert_eq!(found.ending, Ending::Equilibrium { proven: true }, "at {factor} times the rents");
        posted.costs(&found.levels).iter().sum::<f64>()
    };
    let near = |cost: f64, expected: f64| (cost - expected).abs() <= 1e-4;
    assert!(near(least, 18.5) && near(alone, 339.5 / 3.0), "{least} {alone}");
    assert!(near(settled(1.0, true), least));
    for (factor, from_all) in [(1.0, false), (0.2, true), (0.2, false)] {
        assert!(near(settled(factor, from_all), 40.0), "{factor} {from_all}: {}", settled(factor, from_all));
    }
    assert!(near(settled(3.0, true), alone) && near(settled(3.0, false), alone));
}

#[test]
fn offers_are_digits() {
    let federation = three_sites();
    let posted = Posted::new(&federation, vec![1.0; 3], 4).unwrap();
    assert_eq!(posted.most(), [4, 24, 24]);
    assert_eq!(posted.offered(1, 0), [0.0; 3]);
    assert_eq!(posted.offered(1, 7), [0.0, 5.0, 1.0]);
    assert_eq!(posted.offered(2, 24), [2.0, 0.0, 10.0]);
    // Nothing is offered: all are alone.
    assert_eq!(posted.savings(&[0; 3]), [0.0; 3]);
    assert!(Posted::new(&federation, vec![1.0; 2], 4).is_err());
    assert!(Posted::new(&federation, vec![1.0; 3], 0).is_err());
    assert!(Posted::new(&federation, vec![1.0, -1.0, 1.0], 4).is_err());
}

/// Two sites of ten servers: one with six to spare, one short of five.
const SITES: [Site; 2] = [Site { servers: 10, load: 4.0 }, Site { servers: 10, load: 15.0 }];

type Answers = Result<Vec<Vec<Performance>>, Infallible>;

fn fluid_market(sites: &[Site]) -> Market<impl FnMut(&[Vec<u32>]) -> Answers> {
    let most: Vec<u32> = sites.iter().map(|site| site.servers).collect();
    let effort = Effort { most_evaluations: 100_000, step: 1 };
    let rules = Rules { most, most_rounds: 100, least_gain: 1e-9, look_at_all: 1_000 };
    let sites = sites.to_vec();
    Market::new(rules, effort, move |all: &[Vec<u32>]| {
        Ok(all.iter().map(|shared| fluid(&sites, 1.0, shared)).collect())
    })
}

#[test]
fn what_is_left_over_is_traded() {
    let performance = fluid(&SITES, 2.0, &[3, 10]);
    let expected = [
        Performance { lent: 3.0, borrowed: 0.0, forwarded_per_s: 0.0, utilisation: 0.7 },
        Performance { lent: 0.0, borrowed: 3.0, forwarded_per_s: 4.0, utilisation: 1.0 },
    ];
    assert_eq!(performance, expected);
    // Five are needed, whatever is offered.
    assert_eq!(fluid(&SITES, 1.0, &[10, 0])[0].lent, 5.0);
}

#[test]
fn a_lender_shares_what_is_needed() {
    let outcome = fluid_market(&SITES).settle(&[0, 0], &Terms::default()).unwrap();
    assert!(outcome.is_equilibrium());
    assert_eq!((&outcome.play.levels, &outcome.play.utilities), (&vec![5, 0], &vec![2.5, 2.5]));
    assert_eq!((outcome.costs, outcome.welfare, outcome.efficiency), (vec![-2.5, 2.5], 2.5, Some(1.0)));
    assert_eq!((outcome.best.shared, outcome.best.found), (vec![5, 0], Found::Best));
}

/// A lender that minds every server that works for others in proportion has no more of five than of one.
#[test]
fn who_minds_the_work_shares_too_little() {
    let terms = Terms { gamma: 1.0, ..Terms::default() };
    let outcome = fluid_market(&SITES).settle(&[0, 0], &terms).unwrap();
    assert!(outcome.is_equilibrium());
    assert_eq!(outcome.play.levels, [1, 0]);
    // 0.5 per server for a tenth of its servers each; the other saves 0.5 and does not work more: a hundredth counts.
    assert!(near(outcome.play.utilities[0], 5.0) && near(outcome.play.utilities[1], 50.0), "{outcome:?}");
    assert!(near(outcome.efficiency.unwrap(), 55.0 / 255.0), "{outcome:?}");
}

#[test]
fn prices_inside_share_the_gain() {
    let mut market = fluid_market(&SITES);
    let outcomes = market.sweep(&[0, 0], &Terms::default(), &[0.0, 0.2, 1.0, 1.2]).unwrap();
    let utilities: Vec<&Vec<f64>> = outcomes.iter().map(|outcome| &outcome.play.utilities).collect();
    // For nothing, nothing is lent; above the public price, who borrows loses.
    for (found, expected) in utilities.iter().zip([[0.0, 0.0], [1.0, 4.0], [5.0, 0.0], [6.0, -1.0]]) {
        assert!(found.iter().zip(expected).all(|(a, b)| near(*a, b)), "{utilities:?}");
    }
    let efficiencies: Vec<f64> = outcomes.iter().map(|outcome| outcome.efficiency.unwrap()).collect();
    assert!(
        efficiencies[0] == 0.0 && efficiencies[1..].iter().all(|part| near(*part, 1.0)),
        "{efficiencies:?}"
    );
    // The fairest price is in the middle.
    let fair = Terms { alpha: f64::INFINITY, ..Terms::default() };
    let least: Vec<f64> =
        market.sweep(&[0, 0], &fair, &[0.2, 0.5, 0.8]).unwrap().iter().map(|o| o.welfare).collect();
    assert!(near(least[0], 1.0) && near(least[1], 2.5) && near(least[2], 1.0), "{least:?}");
    assert_eq!(market.evaluations(), 121, "a choice is asked for once, whatever the prices");
}

#[test]
fn a_game_without_an_equilibrium_goes_round() {
    let pennies = |all: &[Vec<u32>]| {
        let meet = |levels: &Vec<u32>| if levels[0] == levels[1] { vec![1.0, 0.0] } else { vec![0.0, 1.0] };
        Ok::<_, Infallible>(all.iter().map(meet).collect())
    };
    let rules = Rules { most: vec![1, 1], ..rules(&[1, 1]) };
    let found = play(&[0, 0], &rules, pennies).unwrap();
    assert_eq!(found.ending, Ending::Cycle(vec![vec![0, 1], vec![1, 0]]));
    for levels in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        assert_eq!(deviations(&levels, &rules, pennies).unwrap().len(), 1, "{levels:?}");
    }
    let short = Rules { most_rounds: 1, ..rules };
    assert_eq!(play(&[0, 0], &short, pennies).unwrap().ending, Ending::BrokenOff);
}

#[test]
fn a_tabu_search_climbs_and_crosses_small_valleys() {
    // One hill at 700, with a ditch every 10.
    let hill =
        |level: u32| -f64::from(level.abs_diff(700)) - if level.is_multiple_of(10) { 0.0 } else { 3.0 };
    let utilities =
        |all: &[Vec<u32>]| Ok::<_, Infallible>(all.iter().map(|levels| vec![hill(levels[0])]).collect());
    let rules = Rules { look_at_all: 64, ..rules(&[1_000]) };
    let found = play(&[0], &rules, utilities).unwrap();
    assert_eq!((found.levels, found.ending), (vec![700], Ending::Equilibrium { proven: false }));
    assert!(found.evaluations < 400, "{}", found.evaluations);
}

#[test]
fn a_tabu_search_does_not_go_back() {
    // A peak at 0, and a higher one that is several steps downhill away.
    let peaks = |level: u32| match level {
        0 => 10.0,
        21 => 20.0,
        _ => -f64::from(level),
    };
    let utilities =
        |all: &[Vec<u32>]| Ok::<_, Infallible>(all.iter().map(|levels| vec![peaks(levels[0])]).collect());
    let rules = Rules { look_at_all: 64, ..rules(&[1_000]) };
    assert_eq!(play(&[0], &rules, utilities).unwrap().levels, [21]);
}

#[test]
fn a_loss_is_not_made_smaller_by_work() {
    let alone = Performance { lent: 0.0, borrowed: 0.0, forwarded_per_s: 1.0, utilisation: 0.5 };
    let terms = Terms { gamma: 1.0, ..Terms::default() };
    let with = |borrowed, utilisation| Performance { borrowed, utilisation, ..alone };
    assert_eq!(utility(&alone, &with(1.0, 0.75), &terms), -0.5);
    assert_eq!(utility(&alone, &with(-1.0, 0.75), &terms), 2.0);
    assert_eq!(utility(&alone, &with(-1.0, 0.25), &terms), 50.0);
}

#[test]
fn fair_means() {
    let utilities = [1.0, 4.0];
    assert_eq!(welfare(&utilities, 0.0), 2.5);
    assert!(near(welfare(&utilities, 0.5), 2.25) && near(welfare(&utilities, 1.0), 2.0));
    assert!(near(welfare(&utilities, 2.0), 1.6));
    assert!(welfare(&utilities, 1_000.0) < 1.01);
    assert_eq!(welfare(&utilities, f64::INFINITY), 1.0);
    assert_eq!((welfare(&[0.0, 4.0], 1.0), welfare(&[0.0, 4.0], 0.5)), (0.0, 1.0));
    assert_eq!((welfare(&[-1.0, 4.0], 0.0), welfare(&[-1.0, 4.0], 0.5)), (1.5, -1.0));
}

fn sites() -> impl Strategy<Value = Vec<Site>> {
    let site = (1_u32..9, number(&[0.0, 2.0, 6.0], 12.0)).prop_map(|(servers, load)| Site { servers, load });
    prop::collection::vec(site, 1..=3)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    /// What ends as an equilibrium is one, by trying every change of every member without the code that searches.
    #[test]
    fn an_equilibrium_is_one(sites in sites(), gamma in 0.0_f64..=1.0, internal_price in 0.0_f64..1.5, all in any::<bool>()) {
        let terms = Terms { gamma, internal_price, ..Terms::default() };
        let start: Vec<u32> = sites.iter().map(|site| if all { site.servers } else { 0 }).collect();
        let outcome = fluid_market(&sites).settle(&start, &terms).unwrap();
        let alone = fluid(&sites, 1.0, &vec![0; sites.len()]);
        let of = |levels: &[u32], i: usize| utility(&alone[i], &fluid(&sites, 1.0, levels)[i], &terms);
        let gains = |levels: &[u32]| (0..sites.len()).any(|i| (0..=sites[i].servers).any(|level| {
            let mut changed = levels.to_vec();
            changed[i] = level;
            of(&changed, i) > of(levels, i) + 2e-9
        }));
        prop_assert!(outcome.is_equilibrium(), "{outcome:?}");
        prop_assert!(!gains(&outcome.play.levels), "{outcome:?}");
        // What is paid inside stays inside.
        let performance = fluid(&sites, 1.0, &outcome.play.levels);
        let forwarded: f64 = performance.iter().map(|of| of.forwarded_per_s).sum();
        prop_assert!(near(outcome.costs.iter().sum(), forwarded * terms.public_price), "{outcome:?}");
        prop_assert_eq!(outcome.best.found, Found::Best);
        prop_assert!(outcome.efficiency.is_none_or(|part| part <= 1.0 + 1e-9), "{outcome:?}");
        // The check sees a choice that a member would leave.
        for level in 0..=sites[0].servers {
            let mut moved = outcome.play.levels.clone();
            moved[0] = level;
            let most: Vec<u32> = sites.iter().map(|site| site.servers).collect();
            let utilities = |all: &[Vec<u32>]| {
                Ok::<_, Infallible>(all.iter().map(|levels| (0..sites.len()).map(|i| of(levels, i)).collect()).collect())
            };
            let rules = Rules { least_gain: 2e-9, ..rules(&most) };
            let found = deviations(&moved, &rules, utilities).unwrap();
            prop_assert_eq!(!found.is_empty(), gains(&moved), "{:?} {:?}", moved, found);
        }
    }
}
