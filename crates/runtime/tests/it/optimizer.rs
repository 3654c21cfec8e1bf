//! Update rules against an independent implementation in f64, schedules against hand-computed numbers,
//! and the law that a newcomer relies on: chunks can be updated one by one.

use bellwether_core::job::{Job, Optimizer as Rule, Schedule};
use bellwether_core::parse;
use bellwether_runtime::noise::Noise;
use bellwether_runtime::optimizer::{Optimizer, Update};
use bellwether_runtime::state::{CHUNK_ELEMENTS, Reduced, TrainingState};
use bellwether_runtime::workload::{Layout, Tensor};
use proptest::prelude::*;

fn job(rule: Rule, schedule: Schedule) -> Job {
    let text = "name='x'\nsteps=100\n[model]\nkind='mlp'\nhidden=[]\n[data]\nkind='digits'\n\
                [batch]\nsize=8\nvirtual_nodes=4\n[optimizer]\nkind='sgd'\nlearning_rate=0.1";
    Job { optimizer: rule, schedule, ..parse::job(text, "", &[]).expect("a good job file").into_job() }
}

fn rules() -> Vec<Rule> {
    let sgd = |momentum, nesterov| Rule::Sgd {
        learning_rate: 0.1,
        momentum,
        nesterov,
        weight_decay: 0.01,
        clip_norm: None,
    };
    let (learning_rate, betas, epsilon, weight_decay, clip_norm) = (0.01, [0.9, 0.999], 1e-8, 0.1, None);
    vec![
        sgd(0.0, false),
        sgd(0.9, false),
        sgd(0.9, true),
        Rule::Adam { learning_rate, betas, epsilon, weight_decay, clip_norm },
        Rule::Adamw { learning_rate, betas, epsilon, weight_decay, clip_norm },
    ]
}

/// One parameter under a sequence of mean gradients, as the papers write it.
fn reference(rule: &Rule, mut p: f64, gradients: &[f64]) -> f64 {
    let (mut m, mut v) = (0.0, 0.0);
    for (t, gradient) in gradients.iter().enumerate() {
        match *rule {
            Rule::Own { .. } => unreachable!("a workload has its own reference"),
            Rule::Sgd { learning_rate, momentum, nesterov, weight_decay, .. } => {
                let g = gradient + weight_decay * p;
                m = momentum * m + g;
                p -= learning_rate * if nesterov { g + momentum * m } else { m };
            }
            Rule::Adam { learning_rate, betas, epsilon, weight_decay, .. }
            | Rule::Adamw { learning_rate, betas, epsilon, weight_decay, .. } => {
                let decoupled = matches!(rule, Rule::Adamw { .. });
                let g = if decoupled { *gradient } else { gradient + weight_decay * p };
                if decoupled {
                    p -= learning_rate * weight_decay * p;
                }
                m = betas[0] * m + (1.0 - betas[0]) * g;
                v = betas[1] * v + (1.0 - betas[1]) * g * g;
                let corrected = |moment: f64, beta: f64| moment / (1.0 - beta.powi(t as i32 + 1));
                p -= learning_rate * corrected(m, betas[0]) / (corrected(v, betas[1]).sqrt() + epsilon);
            }
        }
    }
    p
}

proptest! {
    #[test]
    fn rules_follow_the_papers(start in -2.0f64..2.0, gradients in proptest::collection::vec(-3.0f64..3.0, 1..40), samples in 1u64..64) {
        for rule in rules() {
            let optimizer = Optimizer::new(&job(rule.clone(), Schedule::default()), 100);
            let (mut p, mut slots) = (vec![start as f32], vec![vec![0.0f32]; optimizer.slots().len()]);
            for (step, gradient) in gradients.iter().enumerate() {
                let update = Update::single(step as u64, optimizer.scale(samples as f64, 0.0));
                let mut views: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
                optimizer.update(update, &mut p, &mut views, &[(gradient * samples as f64) as f32]);
            }
            let expected = reference(&rule, start, &gradients);
            prop_assert!((f64::from(p[0]) - expected).abs() < 2e-4 * (1.0 + expected.abs()), "{:?}: {} for {}", rule, p[0], expected);
        }
    }

    #[test]
    fn a_state_updated_chunk_by_chunk_in_any_order_is_the_same(seed in any::<u64>(), swap in any::<bool>()) {
        for rule in rules() {
            let optimizer = Optimizer::new(&job(rule, Schedule::default()), 100);
            let parameters = CHUNK_ELEMENTS + 100;
            let tensor = |count| vec![Tensor { name: "w".into(), shape: vec![count] }];
            let layout = Layout { parameters: tensor(parameters), state: tensor(3) };
            let mut whole = TrainingState::zeros(&layout, optimizer.slots().len());
            whole.parameters.iter_mut().enumerate().for_each(|(i, p)| *p = ((i as u64 ^ seed) % 97) as f32);
            let mut parts = whole.clone();
            let sums: Vec<f32> = (0..parameters + 3).map(|i| ((i as u64).wrapping_mul(seed) % 31) as f32).collect();
            let reduced = Reduced { sums: &sums, samples: 4, update: Update::single(0, 0.25), noise: Noise::default() };
            whole.apply(&mut &optimizer, reduced).expect("rules of ours do not fail");
            let order = if swap { [2, 0, 1] } else { [1, 2, 0] };
            let mut apply = |chunk: &usize| parts.apply_chunk(&mut &optimizer, reduced, *chunk).expect("no failure");
            order.iter().for_each(&mut apply);
            parts.step += 1;
            prop_assert_eq!(whole.digest(), parts.digest());
            // And what travels as chunks arrives as the same state.
            let (mut arrived, mut values) = (TrainingState::zeros(&layout, optimizer.slots().len()), Vec::new());
            for chunk in 0..whole.chunks() {
                whole.read_chunk(chunk, &mut values);
                prop_assert_eq!(values.len(), whole.chunk_len(chunk));
                arrived.write_chunk(chunk, &values);
            }
            prop_assert_eq!(arrived.digest(), whole.digest());
        }
    }
}

#[test]
fn an_update_says_whether_every_number_is_one() {
    let adam = Rule::Adam {
        learning_rate: 0.01,
        betas: [0.9, 0.999],
        epsilon: 1e-8,
        weight_decay: 0.0,
        clip_norm: None,
    };
    let optimizer = Optimizer::new(&job(adam, Schedule::default()), 100);
    let tensor = |count| vec![Tensor { name: "w".into(), shape: vec![count] }];
    let layout = Layout { parameters: tensor(2), state: tensor(1) };
    let apply = |sums: [f32; 3]| {
        let mut state = TrainingState::zeros(&layout, optimizer.slots().len());
        let update = Update::single(0, 1.0);
        let is_finite = state
            .apply(&mut &optimizer, Reduced { sums: &sums, samples: 1, update, noise: Noise::default() });
        (is_finite.expect("rules of ours do not fail"), state)
    };
    assert!(apply([1.0, -2.0, 3.0]).0);
    // The square of a finite gradient: the parameter itself would only stand still from then on.
    let (is_finite, state) = apply([1e30, 1.0, 3.0]);
    assert!(!is_finite && state.parameters.iter().all(|p| p.is_finite()), "{state:?}");
    assert!(!apply([1.0, 1.0, f32::NAN]).0, "a statistic of the batch");
}

#[test]
fn schedules_are_as_documented() {
    let rate = |schedule: Schedule, step| {
        Optimizer::new(&job(rules()[0].clone(), schedule), 100).learning_rate(step)
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    near(rate(Schedule::Constant { warm_up_steps: 4 }, 0), 0.025);
    near(rate(Schedule::Constant { warm_up_steps: 4 }, 4), 0.1);
    let step = || Schedule::Step { at: vec![10, 20], factor: 0.5, warm_up_steps: 0 };
    near(rate(step(), 9), 0.1);
    near(rate(step(), 10), 0.05);
    near(rate(step(), 20), 0.025);
    let cosine = || Schedule::Cosine { floor: 0.1, warm_up_steps: 20 };
    near(rate(cosine(), 20), 0.1);
    near(rate(cosine(), 60), 0.1 * (0.1 + 0.9 * 0.5));
    near(rate(cosine(), 100), 0.01);
    let table = || Schedule::Table { factors: vec![1.0, 0.5, 0.25] };
    near(rate(table(), 1), 0.05);
    near(rate(table(), 2), 0.025);
    near(rate(table(), u64::MAX), 0.025);
}

#[test]
fn clipping_scales_the_mean_gradient_to_the_limit() {
    let rule = Rule::Sgd {
        learning_rate: 0.1,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
        clip_norm: Some(2.0),
    };
    let optimizer = Optimizer::new(&job(rule, Schedule::default()), 100);
    // Sum of gradients with norm 40 over 8 samples: mean norm 5, scaled by 2/5.
    assert_eq!(optimizer.scale(8.0, 1600.0), 0.125 * 0.4);
    assert_eq!(optimizer.scale(8.0, 100.0), 0.125);
}
