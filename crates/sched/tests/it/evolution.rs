//! Regularised evolution by its rules, and what it finds.

use bellwether_sched::evolution::{Method, Search};
use proptest::prelude::*;

const EVOLUTION: Method = Method::Evolution { population: 10, tournament: 4 };

fn all(_: &[usize]) -> bool {
    true
}

/// Matches of a hidden candidate, with a plateau: the best of a space of 4^8.
fn score(genome: &[usize]) -> f64 {
    genome.iter().zip([3, 1, 2, 0, 3, 3, 1, 2]).filter(|(own, best)| **own == *best).count() as f64
}

/// The best score of a number of questions.
fn best(method: Method, questions: usize, seed: u64) -> f64 {
    let mut search = Search::new(method, vec![4; 8], seed);
    let mut best = 0.0_f64;
    for _ in 0..questions {
        let candidate = search.next(&all).expect("all are allowed");
        let value = score(&candidate);
        best = best.max(value);
        search.tell(candidate, value);
    }
    best
}

#[test]
fn evolution_finds_what_chance_does_not() {
    let mean = |method| (0..20).map(|seed| best(method, 200, seed)).sum::<f64>() / 20.0;
    let (evolved, random) = (mean(EVOLUTION), mean(Method::Random));
    println!("evolution {evolved}, random {random}");
    assert!(evolved > random + 1.0, "{evolved} {random}");
}

#[test]
fn the_same_seed_asks_the_same_questions() {
    assert_eq!(best(EVOLUTION, 60, 5), best(EVOLUTION, 60, 5));
    let draw = |seed| Search::new(Method::Random, vec![5; 6], seed).draw();
    assert_ne!(draw(1), draw(2));
}

#[test]
fn random_candidates_are_uniform() {
    let mut search = Search::new(Method::Random, vec![3, 1, 2], 0);
    let mut counts = [0; 6];
    for _ in 0..6000 {
        let drawn = search.draw();
        assert_eq!(drawn[1], 0);
        counts[drawn[0] * 2 + drawn[2]] += 1;
    }
    // Six standard deviations.
    assert!(counts.iter().all(|count| (826..1174).contains(count)), "{counts:?}");
}

#[test]
fn what_is_not_allowed_is_not_asked_for() {
    let mut search = Search::new(EVOLUTION, vec![4; 8], 3);
    let allowed = |genome: &[usize]| genome[0] != 3 && genome[4] == 3;
    for _ in 0..100 {
        let candidate = search.next(&allowed).unwrap();
        assert!(allowed(&candidate));
        let value = score(&candidate);
        search.tell(candidate, value);
    }
    assert_eq!(search.next(&|_| false), None);
}

proptest! {
    /// A mutant differs in one place from a member of the population; the oldest leaves, whatever its score.
    #[test]
    fn evolution_follows_its_rules(
        alternatives in proptest::collection::vec(1..5_usize, 1..7),
        (population, tournament) in (1..6_usize, 1..5_usize),
        scores in proptest::collection::vec(prop_oneof![Just(f64::NAN), -5.0..5.0_f64], 1..40),
        seed: u64,
    ) {
        let mut search = Search::new(Method::Evolution { population, tournament }, alternatives.clone(), seed);
        let mut told = Vec::new();
        for (asked, score) in scores.into_iter().enumerate() {
            let members: Vec<Vec<usize>> = search.population().map(|(genome, _)| genome.to_vec()).collect();
            let candidate = search.next(&all).unwrap();
            prop_assert!(candidate.iter().zip(&alternatives).all(|(own, count)| own < count));
            if asked >= population {
                let most = usize::from(alternatives.iter().any(|count| *count > 1));
                let differs = |member: &Vec<usize>| member.iter().zip(&candidate).filter(|(a, b)| a != b).count();
                prop_assert!(members.iter().any(|member| differs(member) == most));
            }
            told.push(candidate.clone());
            search.tell(candidate, score);
            let youngest: Vec<Vec<usize>> = told[told.len().saturating_sub(population)..].to_vec();
            prop_assert_eq!(search.population().map(|(genome, _)| genome.to_vec()).collect::<Vec<_>>(), youngest);
        }
    }
}
