//! The elastic throughput model against results of its publication's own program.

use std::collections::BTreeMap;

use bellwether_des::Streams;
use bellwether_model::elastic::{
    BatchLimits, Goodput, MeasuredTable, Row, Throughput, efficiency, fit, noise_scale, objective,
};
use proptest::prelude::*;
use serde::Deserialize;

use crate::tables;

#[derive(Deserialize)]
struct Case {
    fit_objective: f64,
    perf_params: BTreeMap<String, f64>,
    grad_sqr: f64,
    grad_var: f64,
    init_batch_size: u64,
    max_batch_size: u64,
    atomic_bsz_range: (u64, u64),
    optimize: Vec<Best>,
    table_probes: Vec<Probe>,
}

#[derive(Deserialize)]
struct Best {
    nodes: u32,
    replicas: u32,
    goodput: f64,
    atomic_bsz: u64,
    accum_steps: u32,
    throughput: f64,
    efficiency: f64,
}

#[derive(Deserialize)]
struct Probe {
    placement: Vec<u32>,
    local_bsz: f64,
    step_time: f64,
    sync_time: f64,
}

fn cases() -> BTreeMap<String, Case> {
    serde_json::from_str(tables::GOODPUT_CASES).unwrap()
}

fn throughput(case: &Case) -> Throughput {
    let of = |name: &str| case.perf_params[name];
    Throughput {
        alpha_c: of("alpha_c"),
        beta_c: of("beta_c"),
        alpha_n: of("alpha_n"),
        beta_n: of("beta_n"),
        alpha_r: of("alpha_r"),
        beta_r: of("beta_r"),
        gamma: of("gamma"),
    }
}

fn goodput(case: &Case) -> Goodput {
    let phi = noise_scale(case.init_batch_size, case.grad_sqr, case.grad_var).unwrap();
    let limits = BatchLimits {
        initial: case.init_batch_size,
        largest: case.max_batch_size,
        local: case.atomic_bsz_range,
    };
    Goodput::new(throughput(case), phi, limits).unwrap()
}

/// The rows as the reference fit saw them: it takes the exchange of single replicas at its word.
fn reference_rows(name: &str) -> Vec<Row> {
    let job = tables::POLLUX.iter().find(|job| job.name == name).expect("a job of the tables");
    let exchange =
        job.placements.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap());
    let rows = tables::placements(job.placements);
    rows.into_iter().zip(exchange).map(|(placed, s)| Row { exchange_s: Some(s), ..placed.row }).collect()
}

fn close(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-6
}

#[test]
fn the_reference_optima_are_found_to_1e_6() {
    let mut compared = 0;
    for (name, case) in cases() {
        let goodput = goodput(&case);
        for best in &case.optimize {
            let found = goodput.optimum(best.nodes, best.replicas).unwrap();
            let at = format!("{name}, {} replicas: {found:?}", best.replicas);
            assert_eq!(
                (found.local_batch, found.accumulation_steps),
                (best.atomic_bsz, best.accum_steps),
                "{at}"
            );
            assert!(close(found.examples_per_s, best.throughput), "{at}");
            assert!(close(found.efficiency, best.efficiency), "{at}");
            assert!(close(found.goodput, best.goodput), "{at}");
            compared += 1;
        }
    }
    assert_eq!(compared, 18);
}

#[test]
fn the_measured_table_is_read_between_its_batches() {
    let mut compared = 0;
    for (name, case) in cases() {
        let job = tables::POLLUX.iter().find(|job| job.name == name).unwrap();
        let mut table = MeasuredTable::new();
        for (placed, seen) in tables::placements(job.placements).iter().zip(reference_rows(&name)) {
            table.insert(&placed.placement, seen.local_batch, seen.step_s, seen.exchange_s.unwrap());
        }
        for probe in &case.table_probes {
            let (step_s, exchange_s) = table.step_s(&probe.placement, probe.local_bsz).unwrap();
            assert!(close(step_s, probe.step_time), "{name} {:?}", probe.placement);
            assert!(close(exchange_s, probe.sync_time), "{name} {:?}", probe.placement);
            compared += 1;
        }
        assert_eq!(table.step_s(&[1], 1e9), None);
        assert_eq!(table.step_s(&[1], 0.5), None);
        assert_eq!(table.step_s(&[9, 9], 64.0), None);
        assert_eq!(table.step_s(&[2, 1, 0], 12.0), table.step_s(&[1, 2], 12.0));
    }
    assert_eq!(compared, 15);
}

#[test]
fn the_fit_is_no_worse_than_the_reference_fit() {
    for (name, case) in cases() {
        let rows = reference_rows(&name);
        let theirs = objective(&throughput(&case), &rows);
        assert!(close(theirs, case.fit_objective), "{name}: {theirs} is not {}", case.fit_objective);
        let ours = fit(&rows).unwrap();
        println!(
            "{name}: {} rows, objective {:.6}, reference {:.6}",
            rows.len(),
            ours.objective,
            case.fit_objective
        );
        assert!(
            ours.objective <= 1.02 * case.fit_objective,
            "{name}: {} > {}",
            ours.objective,
            case.fit_objective
        );
        assert!(close(objective(&ours.model, &rows), ours.objective));
    }
}

#[test]
fn what_no_row_observes_is_optimistic() {
    let row =
        |nodes, replicas, local_batch, step_s| Row { nodes, replicas, local_batch, step_s, exchange_s: None };
    let one = fit(&[row(1, 1, 8.0, 0.2)]).unwrap().model;
    assert!((one.alpha_c - 0.1).abs() < 1e-9, "half of the only time is constant: {one:?}");
    assert!(one.exchange_s(1, 8) < 1e-6 && one.exchange_s(4, 64) < 1e-5, "{one:?}");
    let node = fit(&[row(1, 1, 8.0, 0.2), row(1, 1, 16.0, 0.3), row(1, 2, 8.0, 0.35)]).unwrap().model;
    assert!(node.alpha_r > 0.05 && node.beta_r < 1e-7, "{node:?}");
    assert!((node.alpha_n / node.alpha_r - 1.1).abs() < 1e-6, "{node:?}");
    let spread = fit(&[row(1, 1, 8.0, 0.2), row(1, 1, 16.0, 0.3), row(4, 4, 8.0, 0.35)]).unwrap().model;
    assert!(spread.alpha_n > 0.05 && spread.alpha_r < 1e-7, "{spread:?}");
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let good = Row { nodes: 1, replicas: 2, local_batch: 8.0, step_s: 0.2, exchange_s: Some(0.1) };
    let refused = [
        Row { replicas: 0, ..good },
        Row { nodes: 3, ..good },
        Row { local_batch: 0.0, ..good },
        Row { step_s: -1.0, ..good },
        Row { step_s: f64::NAN, ..good },
        Row { exchange_s: Some(0.3), ..good },
        Row { exchange_s: Some(f64::NAN), ..good },
        Row { exchange_s: Some(-0.1), ..good },
    ];
    for row in refused {
        let error = fit(&[good, row]).unwrap_err();
        assert_eq!(error.place, "measurement 2", "{error}");
    }
    assert!(fit(&[]).is_err());
    assert!(noise_scale(8, 0.0, 1.0).is_err() && noise_scale(8, 1.0, -1.0).is_err());
    let model = fit(&[good]).unwrap().model;
    let limits = BatchLimits { initial: 8, largest: 4, local: (1, 8) };
    assert!(Goodput::new(model, 1.0, limits).is_err());
}

#[test]
fn the_standard_errors_are_as_large_as_the_scatter_of_refits() {
    let exact = Throughput {
        alpha_c: 0.1,
        beta_c: 0.01,
        alpha_n: 0.3,
        beta_n: 0.01,
        alpha_r: 0.1,
        beta_r: 0.02,
        gamma: 1.8,
    };
    let shapes = [(1, 1), (1, 2), (1, 4), (2, 2), (2, 8), (4, 16)];
    let shapes: Vec<_> =
        shapes.iter().flat_map(|&shape| [8.0, 16.0, 32.0, 64.0].map(|batch| (shape, batch))).collect();
    let measured = |round: u32| -> Vec<Row> {
        let noise = |index: usize| Streams::new(round.into()).stream("noise", index as u64).normal(0.0, 0.03);
        let row = |(index, &((nodes, replicas), local_batch)): (usize, &((u32, u32), f64))| {
            let gradient_s = exact.gradient_s(local_batch) * noise(2 * index).exp();
            let step_s = (exact.step_s(nodes, replicas, local_batch, 0) * noise(2 * index + 1).exp())
                .max(1.001 * gradient_s);
            let exchange_s = (replicas > 1).then_some(step_s - gradient_s);
            Row { nodes, replicas, local_batch, step_s, exchange_s }
        };
        shapes.iter().enumerate().map(row).collect()
    };
    let rounds = 60;
    let fits: Vec<_> =
        (0..rounds).map(|round| fit(&measured(round)).unwrap().to_fitted(&measured(round))).collect();
    for name in ["alpha_c", "beta_c", "alpha_n"] {
        let values: Vec<f64> = fits.iter().map(|fitted| fitted.value(name).unwrap()).collect();
        let mean = values.iter().sum::<f64>() / f64::from(rounds);
        let scatter = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(rounds - 1)).sqrt();
        let stated: Vec<f64> = fits
            .iter()
            .filter_map(|fitted| fitted.parameters.iter().find(|p| p.name == name).unwrap().standard_error)
            .collect();
        let stated = stated.iter().sum::<f64>() / stated.len() as f64;
        println!("{name}: scatter {scatter:.5}, stated {stated:.5}");
        assert!((0.5..2.0).contains(&(stated / scatter)), "{name}: scatter {scatter}, stated {stated}");
    }
    let back = Throughput::from_fitted(&fits[0]).unwrap();
    assert_eq!(back, fit(&measured(0)).unwrap().model);
    assert_eq!((fits[0].workers, fits[0].batch, fits[0].covariance.len()), ((1, 16), (8, 1024), 49));
    let mut lacking = fits[0].clone();
    lacking.parameters.remove(6);
    assert!(Throughput::from_fitted(&lacking).unwrap_err().what.contains("gamma"));
}

#[test]
fn few_rows_have_no_covariance() {
    let rows = [Row { nodes: 1, replicas: 1, local_batch: 8.0, step_s: 0.2, exchange_s: None }];
    let fitted = fit(&rows).unwrap().to_fitted(&rows);
    assert!(fitted.covariance.is_empty() && fitted.parameters.iter().all(|p| p.standard_error.is_none()));
}

#[test]
fn replicas_that_cannot_share_the_largest_batch_have_no_optimum() {
    let model = Throughput {
        alpha_c: 0.1,
        beta_c: 0.01,
        alpha_n: 0.1,
        beta_n: 0.0,
        alpha_r: 0.1,
        beta_r: 0.0,
        gamma: 1.0,
    };
    let goodput = Goodput::new(model, 100.0, BatchLimits { initial: 8, largest: 64, local: (4, 8) }).unwrap();
    assert!(goodput.optimum(4, 16).is_some());
    assert!(goodput.optimum(5, 17).is_none());
    assert!(goodput.optimum(1, 0).is_none());
}

/// The best over every local batch and accumulation, one by one.
fn exhaustive(goodput: &Goodput, limits: BatchLimits, nodes: u32, replicas: u32) -> f64 {
    let mut best: f64 = 0.0;
    for accumulation in 0..=(limits.largest / limits.local.0) as u32 {
        for local in limits.local.0..=limits.local.1 {
            let batch = u64::from(replicas) * local * u64::from(accumulation + 1);
            let single = replicas == 1 && accumulation == 0 && batch > limits.initial;
            if (limits.initial..=limits.largest).contains(&batch) && !single {
                best = best.max(goodput.evaluate(nodes, replicas, local, accumulation).goodput);
            }
        }
    }
    best
}

proptest! {
    #[test]
    fn the_step_lies_between_the_longer_part_and_the_sum(
        alpha in 0.001f64..1.0, beta in 0.0f64..0.1, net in 0.0f64..2.0, gamma in 1.0f64..10.0, batch in 1.0f64..100.0,
    ) {
        let model = Throughput { alpha_c: alpha, beta_c: beta, alpha_n: net, beta_n: 0.01, alpha_r: net / 3.0, beta_r: 0.0, gamma };
        let (gradient, exchange) = (model.gradient_s(batch), model.exchange_s(2, 4));
        let step = model.step_s(2, 4, batch, 0);
        prop_assert!(step >= gradient.max(exchange) * (1.0 - 1e-12) && step <= (gradient + exchange) * (1.0 + 1e-12));
        prop_assert!((model.step_s(2, 4, batch, 3) - step - 3.0 * gradient).abs() < 1e-9);
        prop_assert!((model.step_s(1, 1, batch, 0) - gradient).abs() < 1e-12);
    }

    #[test]
    fn efficiency_falls_with_the_batch(phi in 0.0f64..1e6, initial in 1.0f64..1e4, factor in 1.0f64..100.0) {
        prop_assert!((efficiency(phi, initial, initial) - 1.0).abs() < 1e-12);
        let far = efficiency(phi, initial, initial * factor);
        prop_assert!(far <= 1.0 + 1e-12 && far >= 1.0 / factor - 1e-12);
    }

    #[test]
    fn fifty_candidates_come_near_the_best_of_all(
        alpha in 0.01f64..0.5, beta in 0.0005f64..0.05, net in 0.01f64..1.0, gamma in 1.0f64..4.0, phi in 1.0f64..3000.0,
        replicas in 1u32..9,
    ) {
        let model = Throughput { alpha_c: alpha, beta_c: beta, alpha_n: net, beta_n: net / 20.0, alpha_r: net / 2.0, beta_r: 0.0, gamma };
        let limits = BatchLimits { initial: 16, largest: 512, local: (4, 24) };
        let goodput = Goodput::new(model, phi, limits).unwrap();
        let found = goodput.optimum(1, replicas).unwrap();
        let best = exhaustive(&goodput, limits, 1, replicas);
        prop_assert!(found.goodput >= 0.93 * best, "{found:?} {best}");
        let again = goodput.evaluate(1, replicas, found.local_batch, found.accumulation_steps);
        prop_assert_eq!(again, found);
    }
}
