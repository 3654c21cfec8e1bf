//! The published federations: splits of savings whose values follow from a birth-death chain, to the digits that
//! are printed.
//!
//! Source of the numbers: Song, Paolieri and Golubchik, CLOUD 2022, recomputed; service rate and public price are 1.

use bellwether_federation::game::advice::{Advice, advise};
use bellwether_federation::game::splits::{
    Contribution, by_idle_and_work, by_idle_servers, by_servers, relative_cost_cut, utilisation,
};
use bellwether_federation::game::{Coalition, Game, least_core, nucleolus, shapley};

/// A cloud that shares all of its servers.
#[derive(Clone, Copy)]
struct Cloud {
    arrivals: f64,
    servers: u64,
    /// Longest mean wait.
    wait: u64,
}

fn clouds(arrivals: &[f64], servers: &[u64], wait: &[u64]) -> Vec<Cloud> {
    let cloud = |((&arrivals, &servers), &wait)| Cloud { arrivals, servers, wait };
    arrivals.iter().zip(servers).zip(wait).map(cloud).collect()
}

/// What each cloud forwards when all work as one: requests of one cloud are taken up to `servers * (wait + 1)`.
fn forwarded(clouds: &[Cloud]) -> Vec<f64> {
    let servers: u64 = clouds.iter().map(|cloud| cloud.servers).sum();
    let capacity = |cloud: &Cloud| servers * (cloud.wait + 1);
    let most = clouds.iter().map(capacity).max().expect("a cloud");
    // Weights of the present state, of all so far, and for each cloud of those that are too full for it.
    let (mut present, mut sum) = (1.0, 1.0);
    let mut full: Vec<f64> = clouds.iter().map(|cloud| f64::from(u8::from(capacity(cloud) == 0))).collect();
    for state in 1..=most {
        let taken: f64 =
            clouds.iter().filter(|cloud| state <= capacity(cloud)).map(|cloud| cloud.arrivals).sum();
        present *= taken / state.min(servers) as f64;
        sum += present;
        for (full, cloud) in full.iter_mut().zip(clouds) {
            *full += if state >= capacity(cloud) { present } else { 0.0 };
        }
        // Only quotients count, and weights grow beyond all numbers.
        if sum > 1e200 {
            full.iter_mut().chain([&mut present, &mut sum]).for_each(|weight| *weight *= 1e-200);
        }
    }
    clouds.iter().zip(full).map(|(cloud, full)| cloud.arrivals * full / sum).collect()
}

fn together(all: &[Cloud], coalition: Coalition) -> f64 {
    let members: Vec<Cloud> = coalition.members().map(|member| all[member]).collect();
    if members.is_empty() { 0.0 } else { forwarded(&members).iter().sum() }
}

fn savings(all: &[Cloud]) -> Game {
    let costs: Vec<f64> =
        Coalition::everyone(all.len()).subsets().map(|coalition| together(all, coalition)).collect();
    Game::savings(all.len(), &costs).expect("a game")
}

/// Numbers that are printed with this many digits after the point.
#[track_caller]
fn assert_printed(found: &[f64], printed: &[f64], digits: i32) {
    assert_eq!(found.len(), printed.len());
    let half = 0.5 * 10_f64.powi(-digits) + 1e-9;
    let close = found.iter().zip(printed).all(|(found, printed)| (found - printed).abs() <= half);
    assert!(close, "{found:?}, and not {printed:?}");
}

fn contributions(all: &[Cloud]) -> Vec<Contribution> {
    let of = |cloud: &Cloud| {
        let forwarded_per_s = forwarded(&[*cloud])[0];
        let servers = cloud.servers as f64;
        let utilisation = utilisation(cloud.arrivals, forwarded_per_s, servers, 1.0);
        Contribution { shared: servers, utilisation, forwarded_per_s }
    };
    all.iter().map(of).collect()
}

fn cost_cuts(all: &[Cloud]) -> Vec<f64> {
    let paid = shapley::exact(&savings(all));
    let cut = |(cloud, paid): (&Cloud, &f64)| {
        100.0 * relative_cost_cut(*paid, forwarded(&[*cloud])[0], 0.7 * cloud.servers as f64)
    };
    all.iter().zip(&paid).map(cut).collect()
}

fn figure_2() -> Vec<Cloud> {
    clouds(&[100.0; 3], &[100; 3], &[0, 0, 1])
}

#[test]
fn what_the_clouds_of_figure_2_forward() {
    let all = figure_2();
    let alone: Vec<f64> = all.iter().map(|cloud| forwarded(&[*cloud])[0]).collect();
    assert_printed(&alone, &[7.57, 7.57, 0.88], 2);
    assert_printed(&forwarded(&all[..2]), &[5.44, 5.44], 2);
    assert_printed(&forwarded(&all[1..]), &[10.31, 0.0], 2);
    assert_printed(&forwarded(&all), &[6.56, 6.56, 0.0], 2);
}

#[test]
fn the_game_of_figure_2_has_an_empty_core_and_a_stable_pair() {
    let game = savings(&figure_2());
    let value = |members: &[usize]| game.value(Coalition::of(members.iter().copied()));
    assert_printed(
        &[value(&[0, 1]), value(&[0, 2]), value(&[1, 2]), value(&[0, 1, 2])],
        &[4.27, -1.86, -1.86, 2.91],
        2,
    );
    let paid = shapley::exact(&game);
    assert_printed(&paid, &[1.99, 1.99, -1.07], 2);
    assert!(!game.is_stable(&paid));
    assert_eq!(game.blocking(&paid)[0].coalition, Coalition::of([2]));
    assert!(least_core::is_core_empty(&game) && least_core::core_payment(&game).is_none());
    // The reason: the first two and the third alone are worth 4.27, and all 2.91.
    let lacking = least_core::least_core(&game);
    assert!((lacking.excess - (4.27 - 2.91) / 2.0).abs() < 0.01);
    let who: Vec<Coalition> = lacking.pressing.iter().map(|(coalition, _)| *coalition).collect();
    assert_eq!(who, [Coalition::of([0, 1]), Coalition::of([2])]);
    // All three may share 2.91 so that no member loses; but the first two would leave.
    assert_printed(&nucleolus::nucleolus(&game).expect("no member loses"), &[1.455, 1.455, 0.0], 2);
    let Advice::Apart { structure, beyond_together } = advise(&game) else { panic!("the pair is stable") };
    assert_eq!(structure.blocks, [Coalition::of([0, 1]), Coalition::of([2])]);
    assert_printed(&[beyond_together], &[4.27 - 2.91], 2);
    let worst = game.superadditivity();
    assert_eq!((worst.violations, worst.all_pairs), (3, true));
    assert_eq!(worst.worst[2].parts, [Coalition::of([0, 1]), Coalition::of([2])]);
}

#[test]
fn splits_of_the_three_federations() {
    let check = |all: &[Cloud], total: f64, splits: [&[f64]; 4]| {
        let game = savings(all);
        let saved = game.value(game.everyone());
        let members = contributions(all);
        assert_printed(&[saved], &[total], 2);
        assert_printed(&shapley::exact(&game), splits[0], 2);
        assert_printed(&by_servers(saved, &members), splits[1], 2);
        assert_printed(&by_idle_servers(saved, &members), splits[2], 2);
        assert_printed(&by_idle_and_work(saved, &members), splits[3], 2);
    };
    check(
        &clouds(&[10.0, 70.0, 140.0], &[30, 50, 100], &[0; 3]),
        20.45,
        [&[11.69, 3.74, 5.01], &[3.41, 5.68, 11.36], &[16.94, 1.67, 1.84], &[8.47, 4.33, 7.64]],
    );
    check(
        &clouds(&[30.0, 30.0, 150.0], &[50, 100, 50], &[0; 3]),
        82.49,
        [&[8.50, 32.17, 41.81], &[20.62, 41.24, 20.62], &[18.24, 63.81, 0.44], &[9.12, 31.90, 41.46]],
    );
    // The figure prints 0.37, 0.37 and -1.66 for Shapley, which follow if the first two together saved nothing;
    // they save 2.91, as the text says, and then it is this.
    check(
        &clouds(&[50.0, 50.0, 200.0], &[50, 50, 200], &[0, 0, 1]),
        -0.91,
        [&[0.86, 0.86, -2.62], &[-0.15, -0.15, -0.61], &[-0.42, -0.42, -0.07], &[-0.42, -0.42, -0.07]],
    );
}

#[test]
fn equal_waits_make_a_federation_that_holds() {
    for all in [
        clouds(&[10.0, 70.0, 140.0], &[30, 50, 100], &[0; 3]),
        clouds(&[30.0, 30.0, 150.0], &[50, 100, 50], &[0; 3]),
    ] {
        let game = savings(&all);
        let Advice::Together(structure) = advise(&game) else { panic!("it holds") };
        assert!(game.is_stable(&structure.payment));
        assert_eq!(game.superadditivity().violations, 0);
    }
}

#[test]
fn cost_cuts_of_two_equally_patient_clouds() {
    for (arrivals, saved, cuts) in [
        ([30.0, 150.0], [100.5, 81.2], [27.6, 7.1]),
        ([50.0, 150.0], [105.7, 101.0], [5.9, 1.8]),
        ([100.0, 150.0], [151.4, 150.7], [0.4, 0.3]),
    ] {
        let all = clouds(&arrivals, &[50, 50], &[0, 0]);
        let alone = together(&all, Coalition::of([0])) + together(&all, Coalition::of([1]));
        assert_printed(&[alone, together(&all, Coalition::everyone(2))], &saved, 1);
        assert_printed(&cost_cuts(&all), &cuts, 1);
    }
    let all = clouds(&[100.0, 10.0], &[50, 50], &[0, 0]);
    let alone = together(&all, Coalition::of([0])) + together(&all, Coalition::of([1]));
    let federated = together(&all, Coalition::everyone(2));
    assert_printed(&[alone, federated, 100.0 * (1.0 - federated / alone)], &[50.9, 15.0, 70.6], 1);
}

#[test]
fn cost_cuts_of_two_clouds_of_which_one_is_patient() {
    let cuts = |arrivals: &[f64], servers: &[u64], wait| cost_cuts(&clouds(arrivals, servers, &[0, wait]));
    assert_printed(&cuts(&[50.0, 100.0], &[50, 100], 10), &[-3.7, -2.1], 1);
    assert_printed(&cuts(&[50.0, 100.0], &[50, 100], 50), &[-3.8, -2.2], 1);
    assert_printed(&cuts(&[50.0, 1000.0], &[50, 1000], 50), &[-14.8, -0.8], 1);
    // The paper prints -0.05 for the second.
    let found = cuts(&[7.0, 10_000.0], &[10, 10_000], 1000);
    assert_printed(&found[..1], &[-37.4], 1);
    assert_printed(&found[1..], &[-0.04], 2);
}

#[test]
fn a_federation_that_grows() {
    let all = clouds(&[10.0, 50.0, 30.0, 50.0, 100.0], &[30, 30, 30, 50, 100], &[0, 0, 0, 0, 1]);
    let printed: [&[f64]; 4] =
        [&[7.7, 7.7], &[8.3, 7.8, 2.0], &[8.8, 7.6, 2.3, 2.7], &[8.8, 7.2, 2.2, 2.6, -1.0]];
    for (members, printed) in (2..).zip(printed) {
        assert_printed(&shapley::exact(&savings(&all[..members])), printed, 1);
    }
    // The fifth is patient and does harm: the others form a federation without it.
    let Advice::Apart { structure, .. } = advise(&savings(&all)) else { panic!("four of five") };
    assert_eq!(structure.blocks, [Coalition::everyone(4), Coalition::of([4])]);
}

#[test]
fn a_large_patient_cloud_is_bearable_when_diluted() {
    // One cloud of 1000 servers that may wait, and small ones of 10 that may not, all with as much work as servers:
    // together they save when they are more than 10, the large one counted.
    let saved = |count: usize| {
        let mut all = clouds(&[1000.0], &[1000], &[1]);
        all.resize(count, Cloud { arrivals: 10.0, servers: 10, wait: 0 });
        let alone: f64 = all.iter().map(|cloud| forwarded(&[*cloud])[0]).sum();
        alone - forwarded(&all).iter().sum::<f64>()
    };
    assert!((2..=10).all(|count| saved(count) < 0.0));
    assert!((11..=20).all(|count| saved(count) > 0.0));
}

#[test]
fn the_two_site_example_is_split_evenly() {
    // Each forwards 50 alone, and together nothing.
    let game = Game::savings(2, &[0.0, 50.0, 50.0, 0.0]).expect("a game");
    assert_eq!(shapley::exact(&game), [50.0, 50.0]);
    assert_eq!(nucleolus::nucleolus(&game).expect("no member loses"), [50.0, 50.0]);
}
