//! Laws of the splits on random games, with a general solver and plain enumeration as yardsticks.

use bellwether_federation::game::advice::{Advice, advise};
use bellwether_federation::game::sampling::{Sampling, sample};
use bellwether_federation::game::splits::nash;
use bellwether_federation::game::{Coalition, Game, least_core, nucleolus, shapley};
use bellwether_testkit::Random;
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOptions, Variable};
use proptest::prelude::*;

const CLOSE: f64 = 1e-7;

fn game(members: usize, values: &[f64]) -> Game {
    Game::from_values(members, |coalition| values[coalition.bits() as usize]).expect("a game")
}

/// Games of some members; every second one has few different values, so that many coalitions are alike.
fn games(members: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Game> {
    (members, any::<bool>()).prop_flat_map(|(members, coarse)| {
        let value = (-4.0..10.0_f64).prop_map(move |value| if coarse { value.round() } else { value });
        prop::collection::vec(value, 1 << members).prop_map(move |values| game(members, &values))
    })
}

/// The least superadditive game above a game: what the best partition of each coalition is worth.
fn superadditive(game: &Game) -> Game {
    let mut values = game.values().to_vec();
    for whole in game.coalitions() {
        for part in whole.subsets() {
            let apart = values[part.bits() as usize] + values[whole.minus(part).bits() as usize];
            let value = &mut values[whole.bits() as usize];
            *value = value.max(apart);
        }
    }
    self::game(game.members(), &values)
}

/// A convex game: a sum of games in which every member of some coalition is needed, with values of at least 0.
fn convex(game: &Game) -> Game {
    let sum = |whole: Coalition| whole.subsets().map(|part| game.value(part).max(0.0)).sum();
    Game::from_values(game.members(), sum).expect("a game")
}

fn assert_close(found: &[f64], expected: &[f64]) -> Result<(), TestCaseError> {
    let close = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < CLOSE);
    prop_assert!(close && found.len() == expected.len(), "{:?}, and not {:?}", found, expected);
    Ok(())
}

/// A program over payments that a general solver is told.
struct Yardstick {
    problem: Problem,
    payment: Vec<Variable>,
}

impl Yardstick {
    fn new(direction: OptimizationDirection, members: usize, bounds: (f64, f64), worth: f64) -> Yardstick {
        let mut problem = Problem::new(direction);
        let payment = (0..members).map(|_| problem.add_var(worth, bounds)).collect();
        Yardstick { problem, payment }
    }

    fn row(&mut self, coalition: Coalition, operator: ComparisonOp, right: f64, other: Option<Variable>) {
        let members = coalition.members().map(|member| (self.payment[member], 1.0));
        let row: Vec<(Variable, f64)> = members.chain(other.map(|other| (other, 1.0))).collect();
        self.problem.add_constraint(row, operator, right);
    }

    /// The objective; `None` where no payment obeys all rows.
    fn optimum(&self) -> Option<f64> {
        let mut options = SolveOptions::default();
        options.tolerances.feasibility = 1e-10;
        let outcome = self.problem.solve_with(options).ok()?;
        outcome.into_solution().ok().map(|solution| solution.objective())
    }
}

fn least_excess(game: &Game) -> f64 {
    const FREE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut program = Yardstick::new(OptimizationDirection::Minimize, game.members(), FREE, 0.0);
    let excess = program.problem.add_var(1.0, FREE);
    for coalition in game.coalitions().filter(|&coalition| coalition != game.everyone()) {
        program.row(coalition, ComparisonOp::Ge, game.value(coalition), Some(excess));
    }
    program.row(game.everyone(), ComparisonOp::Eq, game.value(game.everyone()), None);
    program.optimum().expect("there is a least")
}

/// Kohlberg's criterion: no member can be paid more so that the coalitions of high excess all gain or keep, and one
/// gains. A member that the floor holds may not be paid less.
fn is_nucleolus(game: &Game, payment: &[f64], is_rational: bool) -> bool {
    let sums = game.sums(payment);
    let excess = |coalition: Coalition| game.value(coalition) - sums[coalition.bits() as usize];
    let proper = || game.coalitions().filter(|&coalition| coalition != game.everyone());
    let mut levels: Vec<f64> = proper().map(excess).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup_by(|a, b| (*a - *b).abs() < CLOSE);
    let keen = |level: f64| -> Vec<Coalition> {
        proper().filter(|&coalition| excess(coalition) > level - CLOSE).collect()
    };
    // From the level on at which the keen coalitions settle every payment nothing is left to look at.
    let mut is_settled = false;
    levels.iter().rev().all(|&level| {
        let keen = keen(level);
        if std::mem::replace(&mut is_settled, rank(&keen, game.members()) == game.members()) {
            return true;
        }
        let mut program = Yardstick::new(OptimizationDirection::Maximize, game.members(), (-1.0, 1.0), 0.0);
        let mut gains = Vec::new();
        for &coalition in &keen {
            let gain = program.problem.add_var(1.0, (0.0, 1.0));
            // gain = what the coalition is paid more.
            let row: Vec<(Variable, f64)> = coalition
                .members()
                .map(|member| (program.payment[member], 1.0))
                .chain([(gain, -1.0)])
                .collect();
            program.problem.add_constraint(row, ComparisonOp::Eq, 0.0);
            gains.push(gain);
        }
        for member in (0..game.members()).filter(|_| is_rational) {
            let alone = game.value(Coalition::of([member]));
            if payment[member] < alone + CLOSE {
                program.row(Coalition::of([member]), ComparisonOp::Ge, 0.0, None);
            }
        }
        program.row(game.everyone(), ComparisonOp::Eq, 0.0, None);
        program.optimum().expect("nothing changes is possible") < 1e-6
    })
}

/// The rank of coalitions as vectors of zeros and ones.
fn rank(coalitions: &[Coalition], members: usize) -> usize {
    let mut rows: Vec<Vec<f64>> = Vec::new();
    for coalition in coalitions {
        let mut new: Vec<f64> =
            (0..members).map(|member| f64::from(u8::from(coalition.contains(member)))).collect();
        for row in &rows {
            let own = row.iter().position(|&entry| entry == 1.0).expect("a first entry of 1");
            let factor = new[own];
            new.iter_mut().zip(row).for_each(|(new, entry)| *new -= factor * entry);
        }
        if let Some(own) = new.iter().position(|entry| entry.abs() > CLOSE) {
            let first = new[own];
            new[..own].fill(0.0);
            new[own..].iter_mut().for_each(|entry| *entry /= first);
            rows.push(new);
        }
        if rows.len() == members {
            break;
        }
    }
    rows.len()
}

/// All partitions of a coalition.
fn partitions(whole: Coalition) -> Vec<Vec<Coalition>> {
    let Some(lowest) = whole.members().next() else { return vec![Vec::new()] };
    let others = whole.without(lowest);
    let with_block = |rest: Coalition| {
        partitions(rest).into_iter().map(move |mut blocks| {
            blocks.push(whole.minus(rest));
            blocks
        })
    };
    others.subsets().flat_map(with_block).collect()
}

fn is_stable_structure(game: &Game, blocks: &[Coalition]) -> bool {
    let all = (f64::NEG_INFINITY, f64::INFINITY);
    let mut program = Yardstick::new(OptimizationDirection::Minimize, game.members(), all, 0.0);
    for coalition in game.coalitions() {
        let is_block = blocks.contains(&coalition);
        let operator = if is_block { ComparisonOp::Eq } else { ComparisonOp::Ge };
        program.row(coalition, operator, game.value(coalition), None);
    }
    program.optimum().is_some()
}

/// What each member brings, over all orders in which all can join.
fn mean_over_orders(game: &Game) -> Vec<f64> {
    /// Adds up what is brought in all orders that go on from here, and returns their number.
    fn go_on(game: &Game, before: Coalition, sums: &mut [f64]) -> f64 {
        let mut orders = 0.0;
        for member in game.everyone().minus(before).members() {
            let with = before.with(member);
            let behind = go_on(game, with, sums);
            sums[member] += behind * (game.value(with) - game.value(before));
            orders += behind;
        }
        f64::max(orders, 1.0)
    }
    let mut sums = vec![0.0; game.members()];
    let orders = go_on(game, Coalition::EMPTY, &mut sums);
    sums.iter().map(|sum| sum / orders).collect()
}

/// The same game with two members swapped.
fn swapped(game: &Game, first: usize, second: usize) -> Game {
    let swap = |member: usize| match member {
        _ if member == first => second,
        _ if member == second => first,
        other => other,
    };
    Game::from_values(game.members(), |coalition| game.value(Coalition::of(coalition.members().map(swap))))
        .expect("a game")
}

/// The same game with one more member, who brings only what it has alone.
fn with_dummy(game: &Game, alone: f64) -> Game {
    let dummy = game.members();
    let value = |coalition: Coalition| {
        game.value(coalition.without(dummy)) + if coalition.contains(dummy) { alone } else { 0.0 }
    };
    Game::from_values(game.members() + 1, value).expect("a game")
}

/// The same game in another unit, and with something for each member.
fn moved(game: &Game, scale: f64, gifts: &[f64]) -> Game {
    let gift = |coalition: Coalition| coalition.members().map(|member| gifts[member]).sum::<f64>();
    Game::from_values(game.members(), |coalition| scale * game.value(coalition) + gift(coalition))
        .expect("a game")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn shapley_is_the_mean_over_all_orders(game in games(1..=6)) {
        let value = shapley::exact(&game);
        assert_close(&value, &mean_over_orders(&game))?;
        prop_assert!(game.is_efficient(&value));
    }

    #[test]
    fn shapley_treats_equals_alike_and_pays_a_dummy_its_own(game in games(2..=6), alone in -3.0..3.0_f64) {
        let value = shapley::exact(&game);
        let mut expected = value.clone();
        expected.swap(0, 1);
        assert_close(&shapley::exact(&swapped(&game, 0, 1)), &expected)?;
        let mut expected = value;
        expected.push(alone);
        assert_close(&shapley::exact(&with_dummy(&game, alone)), &expected)?;
    }

    #[test]
    fn shapley_adds_up_over_games((first, second) in (1..=6_usize).prop_flat_map(|n| (games(n..=n), games(n..=n)))) {
        let both = Game::from_values(first.members(), |c| first.value(c) + second.value(c)).expect("a game");
        let sum: Vec<f64> =
            shapley::exact(&first).iter().zip(shapley::exact(&second)).map(|(a, b)| a + b).collect();
        assert_close(&shapley::exact(&both), &sum)?;
    }

    #[test]
    fn of_a_superadditive_game_no_member_loses(game in games(2..=6)) {
        let game = superadditive(&game);
        prop_assert_eq!(game.superadditivity().violations, 0);
        let lost = |paid: &[f64]| paid.iter().zip(game.alone()).any(|(paid, alone)| *paid < alone - CLOSE);
        prop_assert!(!lost(&shapley::exact(&game)));
        prop_assert!(!lost(&nash(&game, &vec![1.0; game.members()]).expect("a surplus")));
        let nucleolus = nucleolus::nucleolus(&game).expect("no member loses");
        prop_assert!(!lost(&nucleolus));
        assert_close(&nucleolus::prenucleolus(&game), &nucleolus)?;
    }

    #[test]
    fn of_a_convex_game_shapley_and_nucleolus_are_in_the_core(game in games(2..=6)) {
        let game = convex(&game);
        prop_assert!(game.is_convex() && game.is_monotone());
        prop_assert!(game.is_stable(&shapley::exact(&game)));
        prop_assert!(game.is_stable(&nucleolus::nucleolus(&game).expect("no member loses")));
    }

    #[test]
    fn the_least_excess_is_that_of_the_general_solver(game in games(2..=6)) {
        let found = least_core::least_core(&game);
        prop_assert!((found.excess - least_excess(&game)).abs() < CLOSE);
        prop_assert!(game.is_efficient(&found.payment));
        let sums = game.sums(&found.payment);
        let excess = |c: Coalition| game.value(c) - sums[c.bits() as usize];
        let proper = game.coalitions().filter(|&c| c != game.everyone());
        prop_assert!((proper.map(excess).fold(f64::MIN, f64::max) - found.excess).abs() < CLOSE);
        // The reason holds on its own: the weights count each once, and show that no payment does better.
        for member in 0..game.members() {
            let often: f64 = found.pressing.iter().filter(|(c, _)| c.contains(member)).map(|(_, weight)| weight).sum();
            prop_assert!((often - 1.0).abs() < CLOSE);
        }
        let worth: f64 = found.pressing.iter().map(|(c, weight)| weight * (game.value(*c) - found.excess)).sum();
        prop_assert!((worth - game.value(game.everyone())).abs() < CLOSE);
    }

    #[test]
    fn a_payment_is_stable_when_no_coalition_is_worth_more(game in games(2..=6), shift in -1.0..1.0_f64) {
        let mut payment = least_core::least_core(&game).payment;
        payment[0] += shift;
        payment[1] -= shift;
        let gains = |c: &Coalition| game.value(*c) - c.members().map(|i| payment[i]).sum::<f64>() > game.tolerance();
        let blocking: Vec<Coalition> = game.coalitions().filter(gains).collect();
        let mut found: Vec<Coalition> = game.blocking(&payment).iter().map(|blocking| blocking.coalition).collect();
        found.sort_unstable();
        prop_assert_eq!(game.is_stable(&payment), blocking.is_empty());
        prop_assert_eq!(found, blocking);
        let core = least_core::core_payment(&game);
        prop_assert_eq!(core.is_none(), least_core::is_core_empty(&game));
        prop_assert!(core.is_none_or(|payment| game.is_stable(&payment)));
    }

    #[test]
    fn nucleoli_obey_kohlbergs_criterion(game in games(2..=6)) {
        let pre = nucleolus::prenucleolus(&game);
        prop_assert!(game.is_efficient(&pre));
        prop_assert!(is_nucleolus(&game, &pre, false), "{:?} of {:?}", pre, game);
        let Some(found) = nucleolus::nucleolus(&game) else { return Ok(()) };
        prop_assert!(game.is_efficient(&found));
        prop_assert!(found.iter().zip(game.alone()).all(|(paid, alone)| *paid > alone - CLOSE));
        prop_assert!(is_nucleolus(&game, &found, true), "{:?} of {:?}", found, game);
        prop_assert!(least_core::is_core_empty(&game) || game.is_stable(&found));
    }

    #[test]
    fn the_nucleolus_moves_with_the_game(
        game in games(2..=6), scale in 0.01..100.0_f64, gifts in prop::collection::vec(-50.0..50.0_f64, 6),
    ) {
        let moved = moved(&game, scale, &gifts);
        let expected = nucleolus::prenucleolus(&game).iter().zip(&gifts).map(|(x, gift)| scale * x + gift).collect::<Vec<_>>();
        let found = nucleolus::prenucleolus(&moved);
        let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-7 * scale.max(1.0));
        prop_assert!(close, "{:?}, and not {:?}", found, expected);
    }

    #[test]
    fn advice_agrees_with_all_partitions(game in games(1..=4)) {
        let all = partitions(game.everyone());
        let worth = |blocks: &[Coalition]| blocks.iter().map(|block| game.value(*block)).sum::<f64>();
        let most = all.iter().map(|blocks| worth(blocks)).fold(f64::MIN, f64::max);
        let alone = game.alone().iter().sum::<f64>();
        let stable = all.iter().any(|blocks| worth(blocks) > alone + CLOSE && is_stable_structure(&game, blocks));
        let advice = advise(&game);
        prop_assert_eq!(advice.is_stable(), stable, "{:?}", advice);
        match advice {
            Advice::Alone => prop_assert!((most - alone).abs() < CLOSE),
            Advice::Unstable { structure, lacking } => {
                prop_assert!((structure.value - most).abs() < CLOSE);
                prop_assert!(!structure.blocking.is_empty() && lacking.excess > game.tolerance());
            }
            Advice::Together(structure) => {
                prop_assert!((structure.value - most).abs() < CLOSE && game.is_stable(&structure.payment));
            }
            Advice::Apart { structure, beyond_together } => {
                prop_assert!((structure.value - most).abs() < CLOSE && beyond_together > 0.0);
                for block in &structure.blocks {
                    let paid: f64 = block.members().map(|member| structure.payment[member]).sum();
                    prop_assert!((paid - game.value(*block)).abs() < CLOSE);
                }
                prop_assert!(game.blocking(&structure.payment).is_empty());
            }
        }
    }
}

#[test]
fn larger_nucleoli_obey_kohlbergs_criterion_too() {
    let mut stream = Random(5);
    for members in [8, 10] {
        for coarse in [false, true] {
            let value = |coalition: Coalition| {
                let value = stream.unit() * coalition.size() as f64;
                if coarse { value.round() } else { value }
            };
            let game = Game::from_values(members, value).expect("a game");
            let found = nucleolus::prenucleolus(&game);
            assert!(is_nucleolus(&game, &found, false), "{found:?}");
            // And the criterion tells others from it.
            let mut other = found.clone();
            other[1] += 1e-3;
            other[members - 1] -= 1e-3;
            assert!(!is_nucleolus(&game, &other, false), "{other:?}");
        }
    }
}

/// The contested garment: what an estate leaves when the claims of all others are paid.
fn bankruptcy(estate: f64, claims: &[f64]) -> Game {
    let left = |coalition: Coalition| {
        let others: f64 = (0..claims.len()).filter(|&i| !coalition.contains(i)).map(|i| claims[i]).sum();
        f64::max(estate - others, 0.0)
    };
    Game::from_values(claims.len(), left).expect("a game")
}

#[test]
fn the_nucleolus_shares_estates_as_the_talmud_does() {
    // Aumann and Maschler, Journal of Economic Theory 1985.
    let third = 100.0 / 3.0;
    let cases = [(100.0, [third; 3]), (200.0, [50.0, 75.0, 75.0]), (300.0, [50.0, 100.0, 150.0])];
    for (estate, shares) in cases {
        let game = bankruptcy(estate, &[100.0, 200.0, 300.0]);
        let found = nucleolus::nucleolus(&game).expect("no member loses");
        assert_close(&found, &shares).expect("the shares");
        assert!(game.is_convex() && game.is_stable(&found));
    }
}

#[test]
fn the_nucleolus_of_fifteen_claims_is_the_talmuds_too() {
    // The rule in closed form: while the estate is below half of all claims, each has the same up to half of its claim.
    let claims: Vec<f64> = (1..=15).map(f64::from).collect();
    let level = 3.2;
    let shares: Vec<f64> = claims.iter().map(|claim| f64::min(claim / 2.0, level)).collect();
    let game = bankruptcy(shares.iter().sum(), &claims);
    assert_close(&nucleolus::nucleolus(&game).expect("no member loses"), &shares).expect("the shares");
}

#[test]
fn games_that_are_too_large_for_the_nucleolus_are_judged_nevertheless() {
    // 9 of 17 have what all have, and more than 15 lose.
    let worth =
        |most: f64| move |c: Coalition| if c.size() > 15 { most } else { f64::from(u8::from(c.size() > 8)) };
    let game = Game::from_values(17, worth(1.0)).expect("a game");
    let found = least_core::least_core(&game);
    assert!((found.excess - 8.0 / 17.0).abs() < CLOSE && game.is_efficient(&found.payment));
    assert!(matches!(advise(&game), Advice::Unstable { .. }));
    assert!(game.superadditivity().violations == 0 && !game.superadditivity().all_pairs);
    // Each of the 136 coalitions of 15 and each of their 2 others: 272 pairs, and 17 of 16 and 1 that lose nothing
    // more.
    let game = Game::from_values(17, worth(0.5)).expect("a game");
    assert_eq!(game.superadditivity().violations, 272);
    // A sum of what each has: the core holds that only.
    let game = Game::from_values(17, |c| c.members().map(|member| member as f64).sum()).expect("a game");
    assert_eq!(advise(&game), Advice::Alone);
    let game = Game::from_values(17, |c| (c.size() * c.size()) as f64).expect("a game");
    let Advice::Together(structure) = advise(&game) else { panic!("a convex game") };
    assert!(game.is_stable(&structure.payment));
    assert_eq!(least_core::core_payment(&game).map(|payment| game.is_stable(&payment)), Some(true));
}

#[test]
fn a_bargain_splits_what_is_beyond_each_ones_own() {
    let game = Game::new(2, vec![0.0, 1.0, 2.0, 9.0]).expect("a game");
    assert_eq!(nash(&game, &[1.0, 1.0]), Some(vec![4.0, 5.0]));
    assert_eq!(nash(&game, &[2.0, 1.0]), Some(vec![5.0, 4.0]));
    assert_eq!(nash(&Game::new(2, vec![0.0, 1.0, 2.0, 2.9]).expect("a game"), &[1.0, 1.0]), None);
}

#[test]
fn the_nucleolus_of_an_airport_is_littlechilds() {
    // A runway costs what the largest of its users needs; costs 1, 2, 4 and 9. Littlechild 1974: the least over k of
    // the cost of the k smallest over k + 1 (all but the last share it with the next one) is what each of them pays,
    // and so on.
    let needs = [1.0, 2.0, 4.0, 9.0];
    let cost = |coalition: Coalition| coalition.members().map(|member| needs[member]).fold(0.0, f64::max);
    let game = Game::from_values(4, |c| c.members().map(|member| needs[member]).sum::<f64>() - cost(c))
        .expect("a game");
    let saved = nucleolus::nucleolus(&game).expect("no member loses");
    let paid: Vec<f64> = needs.iter().zip(&saved).map(|(alone, saved)| alone - saved).collect();
    // 1/2 by the first; then (2 - 1/2)/2 = 3/4 by the second; then (4 - 5/4)/2 = 11/8; the last has the rest.
    assert_close(&paid, &[0.5, 0.75, 1.375, 6.375]).expect("the payments");
}

#[test]
fn the_short_side_of_a_glove_market_has_it_all() {
    // One left glove and three right ones.
    let pairs = |coalition: Coalition| f64::from(u8::from(coalition.contains(0) && coalition.size() > 1));
    let game = Game::from_values(4, pairs).expect("a game");
    assert_close(&nucleolus::nucleolus(&game).expect("no member loses"), &[1.0, 0.0, 0.0, 0.0])
        .expect("the shares");
    assert_close(&shapley::exact(&game), &[0.75, 1.0 / 12.0, 1.0 / 12.0, 1.0 / 12.0]).expect("the values");
    assert!(!game.is_stable(&shapley::exact(&game)) && !game.is_convex());
}

#[test]
fn a_majority_has_no_stable_federation() {
    let game = Game::from_values(3, |coalition| f64::from(u8::from(coalition.size() > 1))).expect("a game");
    let advice = advise(&game);
    assert!(!advice.is_stable());
    let Advice::Unstable { lacking, .. } = advice else { panic!("it is unstable") };
    assert!((lacking.excess - 1.0 / 3.0).abs() < CLOSE && lacking.pressing.len() == 3);
}

#[test]
fn four_form_two_pairs_where_a_crowd_loses() {
    let pair = |c: Coalition| c == Coalition::of([0, 3]) || c == Coalition::of([1, 2]);
    let game =
        Game::from_values(4, |c| if pair(c) { 5.0 } else { -(c.size() as f64) + 1.0 }).expect("a game");
    let Advice::Apart { structure, beyond_together } = advise(&game) else { panic!("two pairs") };
    assert_eq!(structure.blocks, [Coalition::of([0, 3]), Coalition::of([1, 2])]);
    assert_close(&structure.payment, &[2.5; 4]).expect("halves");
    assert_eq!(beyond_together, 13.0);
}

#[test]
fn games_of_one_and_of_nothing() {
    let one = Game::new(1, vec![0.0, 3.0]).expect("a game");
    assert_eq!((shapley::exact(&one), nucleolus::nucleolus(&one)), (vec![3.0], Some(vec![3.0])));
    assert_eq!(least_core::core_payment(&one), Some(vec![3.0]));
    assert_eq!(advise(&one), Advice::Alone);
    let nothing = Game::new(3, vec![0.0; 8]).expect("a game");
    assert_eq!(nucleolus::nucleolus(&nothing), Some(vec![0.0; 3]));
    assert_eq!(advise(&nothing), Advice::Alone);
    assert!(!least_core::is_core_empty(&nothing));
}

#[test]
fn what_is_no_game_is_refused() {
    let wrong =
        |members, values: &[f64]| Game::new(members, values.to_vec()).expect_err("no game").to_string();
    assert_eq!(wrong(2, &[0.0, 1.0]), "game: 2 members have 4 coalitions, and 2 values are given");
    assert_eq!(wrong(1, &[1.0, 1.0]), "game: the empty coalition is worth 1, and must be worth 0");
    assert_eq!(wrong(2, &[0.0, 1.0, 1.0, f64::NAN]), "game: the value of coalition [0, 1] is NaN");
    assert_eq!(wrong(0, &[0.0]), "game: a game has 1 to 20 members, and not 0");
    assert_eq!(wrong(40, &[0.0]), "game: a game has 1 to 20 members, and not 40");
}

/// A game of capacities and needs: what is short alone and not together.
fn pooled(members: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut stream = Random(seed);
    (0..members).map(|_| (10.0 * stream.unit(), 10.0 * stream.unit())).unzip()
}

fn pooled_value(capacity: &[f64], need: &[f64], coalition: impl Iterator<Item = usize>) -> f64 {
    let (mut short, mut spare, mut alone) = (0.0, 0.0, 0.0);
    for member in coalition {
        let lacking = need[member] - capacity[member];
        short += lacking;
        spare += capacity[member];
        alone += lacking.max(0.0);
    }
    // Bent, so that large coalitions gain less than in proportion.
    (alone - f64::max(short, 0.0)) + 0.1 * spare.sqrt()
}

#[test]
fn intervals_of_the_sample_hold_the_exact_value() {
    let (capacity, need) = pooled(10, 3);
    let game = Game::from_values(10, |c| pooled_value(&capacity, &need, c.members())).expect("a game");
    let exact = shapley::exact(&game);
    // Of width that is reached at the first look, and of one that takes several.
    for (half_width, least, most) in [(1.0, 0.93, 0.97), (0.01, 0.92, 0.97)] {
        let (mut held, mut all) = (0, 0);
        for seed in 0..300 {
            let wish = Sampling { half_width, most_values: 1_000_000, seed };
            let values = |coalitions: &[Vec<usize>]| {
                let value = |c: &Vec<usize>| game.value(Coalition::of(c.iter().copied()));
                Ok::<_, ()>(coalitions.iter().map(value).collect())
            };
            let found = sample(10, &wish, values).expect("values");
            assert!(found.narrow);
            let sum: f64 = found.members.iter().map(|member| member.mean).sum();
            assert!((sum - game.value(game.everyone())).abs() < CLOSE, "the estimates are efficient");
            for (estimate, exact) in found.members.iter().zip(&exact) {
                held += u32::from((estimate.mean - exact).abs() <= estimate.half_width);
                all += 1;
            }
        }
        let share = f64::from(held) / f64::from(all);
        assert!((least..=most).contains(&share), "{share} of the intervals hold the value");
    }
}

#[test]
fn a_sample_is_a_function_of_its_seed_and_keeps_its_limit() {
    let (capacity, need) = pooled(40, 9);
    let run = |wish: &Sampling| {
        let value = |c: &Vec<usize>| pooled_value(&capacity, &need, c.iter().copied());
        sample(40, wish, |coalitions| Ok::<_, ()>(coalitions.iter().map(value).collect())).expect("values")
    };
    let wish = Sampling { half_width: 1e-9, most_values: 5_000, seed: 4 };
    let found = run(&wish);
    assert_eq!(found, run(&wish));
    assert_ne!(found, run(&Sampling { seed: 5, ..wish }));
    assert!(!found.narrow && found.values <= 5_000 && found.orders > 0);
    let refused = sample(40, &wish, |_| Err::<Vec<f64>, _>("no value"));
    assert_eq!(refused, Err("no value"));
}
