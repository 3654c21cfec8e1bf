//! Synchronous scaling on measured tables that were not fitted, and on exact laws.

use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, JobDescription, Link, Protocol, StepModel, Validity,
};
use bellwether_model::elastic::Row;
use bellwether_model::scaling::{About, Belief, Form, Scaling, log_log};
use proptest::prelude::*;

use crate::tables::protocol::{Family, families, frozen};
use crate::tables::split::{HeldOut, Split, elasticflow, mean_size, pollux, throughput_error};

/// Mean errors of the model, of linear scaling and of log-log interpolation, and the covered part.
fn score(split: &Split) -> [f64; 4] {
    let model = Scaling::fit(&split.fitted).unwrap();
    let forecast = |held: &HeldOut| model.predict(held.row.nodes, held.row.replicas, held.row.local_batch, 0);
    let covered = split.held_out.iter().filter(|held| {
        let measured = f64::from(held.row.replicas) * held.row.local_batch / held.row.step_s;
        let (low, high) = forecast(held).interval;
        (low..=high).contains(&measured)
    });
    let error = |predict: &dyn Fn(&HeldOut) -> f64| {
        mean_size(split.held_out.iter().map(|held| throughput_error(predict(held), held.row.step_s)))
    };
    [
        error(&|held| forecast(held).step_s),
        error(&|held| held.linear_s),
        error(&|held| held.log_log_s),
        covered.count() as f64 / split.held_out.len().max(1) as f64,
    ]
}

fn mean_score(splits: &[Split]) -> [f64; 4] {
    let mut sum = [0.0; 4];
    for split in splits {
        let scores = score(split);
        println!("{}: {scores:.3?}", split.name);
        sum.iter_mut().zip(scores).for_each(|(sum, score)| *sum += score / splits.len() as f64);
    }
    sum
}

#[test]
fn elasticflow_is_predicted_better_than_by_the_baselines() {
    let splits = elasticflow();
    assert_eq!(splits.len(), 13);
    let [ours, linear, log_log, covered] = mean_score(&splits);
    assert!(ours < linear && ours < log_log, "{ours} {linear} {log_log}");
    assert!(covered > 0.85, "{covered}");
}

#[test]
fn the_pollux_tables_are_predicted_better_than_by_the_baselines() {
    let splits = pollux(&[1, 1]);
    assert!(splits.iter().all(|split| split.held_out.len() >= 700), "no row is dropped");
    let [ours, linear, log_log, covered] = mean_score(&splits);
    assert!(ours < linear && ours < log_log, "{ours} {linear} {log_log}");
    assert!(covered > 0.85, "{covered}");
}

/// What is judged was written down before the model was changed: [`frozen`] refuses other rows.
#[test]
fn the_protocol_holds_these_rows_and_families() {
    let entries = frozen();
    let rows = |split: &str| -> usize {
        entries.iter().filter(|(entry, _)| entry.split == split).map(|(entry, _)| entry.predicted_rows).sum()
    };
    assert_eq!((rows("usual"), rows("44")), (5_228, 5_159));
    assert_eq!(families(&entries, Family::Network).len(), 9);
    assert_eq!(families(&entries, Family::Cluster), ["A100", "T4"]);
    // A network or a cluster that is left out takes all its tables with it.
    for (entry, _) in &entries {
        let same = |other: &str| other.rsplit(' ').next() == entry.table.rsplit(' ').next();
        assert!(entries.iter().filter(|(o, _)| same(o.table)).all(|(o, _)| o.network == entry.network));
    }
}

fn row(nodes: u32, replicas: u32, local_batch: f64, step_s: f64) -> Row {
    Row { nodes, replicas, local_batch, step_s, exchange_s: None }
}

/// Steps of 0.02 s + 1 ms a sample; an exchange of 30 ms in a node and 100 ms + 1 ms each over nodes, added up.
fn exact(nodes: u32, replicas: u32, local_batch: f64) -> f64 {
    let beyond_two = f64::from(replicas.saturating_sub(2));
    let exchange_s = match (nodes, replicas) {
        (_, 1) => 0.0,
        (1, _) => 0.03,
        _ => 0.1 + 0.001 * beyond_two,
    };
    0.02 + 0.001 * local_batch + exchange_s
}

fn exact_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (nodes, replicas) in [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16), (16, 64)] {
        for batch in [8.0, 16.0, 32.0, 64.0, 128.0] {
            rows.push(row(nodes, replicas, batch, exact(nodes, replicas, batch)));
        }
    }
    rows
}

#[test]
fn an_exact_law_is_found_among_the_forms() {
    let model = Scaling::fit_forms(&exact_rows(), &[Form::Replicas]).unwrap();
    assert!(model.mean_absolute_residual() < 0.005, "{}", model.mean_absolute_residual());
    let forecast = model.predict(8, 32, 48.0, 0);
    assert!((forecast.step_s / exact(8, 32, 48.0) - 1.0).abs() < 0.01, "{forecast:?}");
    assert!((forecast.examples_per_s * forecast.step_s - 32.0 * 48.0).abs() < 1e-6);
    // Two more micro-batches, each without an exchange.
    let accumulated = model.predict(8, 32, 48.0, 2).step_s - forecast.step_s;
    assert!((accumulated / (2.0 * (0.02 + 0.048)) - 1.0).abs() < 0.02, "{accumulated}");
}

#[test]
fn what_was_not_measured_is_marked() {
    let model = Scaling::fit(&exact_rows()).unwrap();
    let validity = |nodes, replicas, batch| model.predict(nodes, replicas, batch, 0).validity;
    assert_eq!(validity(8, 32, 64.0), Validity::Interpolated);
    assert!(matches!(validity(32, 128, 64.0), Validity::Extrapolated(why) if why.contains("128 workers")));
    assert!(matches!(validity(8, 32, 256.0), Validity::Extrapolated(why) if why.contains("256 samples")));
    assert!(matches!(validity(1, 8, 64.0), Validity::Extrapolated(why) if why.contains("in one node")));
    let alone = Scaling::fit(&exact_rows()[..10]).unwrap();
    let forecast = alone.predict(4, 16, 64.0, 0);
    assert!(matches!(forecast.validity, Validity::Extrapolated(why) if why.contains("several nodes")));
    assert!(forecast.step_s > alone.predict(1, 4, 64.0, 0).step_s * 0.99, "no faster than in a node");
}

#[test]
fn the_interval_widens_with_the_noise() {
    let width = |noise: f64| {
        let rows = exact_rows();
        let disturbed: Vec<Row> = rows
            .iter()
            .enumerate()
            .map(|(i, row)| Row { step_s: row.step_s * (1.0 + noise * (i as f64 * 2.4).sin()), ..*row })
            .collect();
        let (low, high) = Scaling::fit(&disturbed).unwrap().predict(8, 32, 64.0, 0).interval;
        (high / low).ln()
    };
    assert!(width(0.2) > 2.0 * width(0.01));
}

#[test]
fn a_fitted_model_comes_back_from_its_file() {
    let model = Scaling::fit(&exact_rows()).unwrap().with_noise_scale(5000.0);
    let fitted = model.to_fitted();
    assert_eq!((fitted.workers, fitted.batch), ((1, 64), (8, 8192)));
    let text = serde_json::to_string(&fitted).unwrap();
    let read = serde_json::from_str(&text).unwrap();
    let back = Scaling::from_fitted(&read).unwrap();
    // Serialisation may move the last bit where a reader does not round exactly.
    let (a, b) = (model.predict(8, 32, 64.0, 1), back.predict(8, 32, 64.0, 1));
    assert!((a.step_s / b.step_s - 1.0).abs() < 1e-12 && (a.interval.0 / b.interval.0 - 1.0).abs() < 1e-12);
    assert_eq!(a.validity, b.validity);

    let mut wild = fitted.clone();
    wild.parameters.iter_mut().find(|parameter| parameter.name == "shared.growth").unwrap().value = 1e9;
    assert!(Scaling::from_fitted(&wild).unwrap_err().what.contains("shared.growth"));
    let mut weightless = fitted.clone();
    weightless.parameters.iter_mut().filter(|p| p.name.ends_with(".weight")).for_each(|p| p.value = 0.0);
    assert!(Scaling::from_fitted(&weightless).is_err());
    let mut lacking = fitted.clone();
    lacking.parameters.retain(|parameter| parameter.name != "ring.alpha_n");
    assert!(Scaling::from_fitted(&lacking).unwrap_err().what.contains("ring.alpha_n"));
    let mut wrong = fitted.clone();
    wrong.parameters[0].value = f64::NAN;
    assert!(Scaling::from_fitted(&wrong).is_err());
    let mut other = fitted;
    other.model = "collective".into();
    assert!(Scaling::from_fitted(&other).is_err());
}

/// What an earlier version wrote: four laws without weights, and Student's interval.
#[test]
fn a_file_of_an_earlier_version_predicts_as_it_did() {
    let mut parameters = Vec::new();
    for (law, gradient_s) in [("replicas", 1.0), ("ring", 1.0), ("logarithm", 4.0), ("hierarchy", 4.0)] {
        for (name, value) in [("alpha_c", gradient_s), ("gamma", 1.0)] {
            parameters.push((format!("{law}.{name}"), value));
        }
        for name in ["beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n"] {
            parameters.push((format!("{law}.{name}"), 0.0));
        }
    }
    let rest = [("residual_sd", 0.3), ("freedom", 4.0), ("in_node_least", 1.0), ("in_node_most", 4.0)];
    parameters.extend(rest.map(|(name, value)| (name.to_owned(), value)));
    for name in ["over_nodes_least", "over_nodes_most", "local_batch_least", "local_batch_most"] {
        parameters.push((name.to_owned(), 8.0));
    }
    let parameters: Vec<_> = parameters
        .iter()
        .map(|(name, value)| serde_json::json!({ "name": name, "unit": "1", "value": value }))
        .collect();
    let file = serde_json::json!({
        "model": "scaling", "parameters": parameters, "relative_residuals": [],
        "workers": [1, 8], "batch": [8, 64],
    });
    let model = Scaling::from_fitted(&serde_json::from_value(file).unwrap()).unwrap();
    let forecast = model.predict(2, 8, 8.0, 0);
    assert!((forecast.step_s - 2.0).abs() < 1e-12, "the mean of 1, 1, 4 and 4 s in logarithms");
    // Standard deviation of four logarithms, each ln 2 from their mean; Student's 97.5 % point at 4 is 2.776445.
    let spread = 2_f64.ln() * (4.0_f64 / 3.0).sqrt();
    let half = 2.776_445 * 0.3_f64.hypot(spread);
    assert!(((forecast.interval.1 / forecast.examples_per_s).ln() / half - 1.0).abs() < 1e-5, "{forecast:?}");
    // It is written as what it is.
    let again = Scaling::from_fitted(&model.to_fitted()).unwrap();
    assert_eq!(again.predict(2, 8, 8.0, 0).interval, forecast.interval);
}

/// Replicas of a node share its link, and two nodes are slower than three: u = 0.4, v = 0.2, w = -0.5.
fn shared(nodes: u32, replicas: u32, local_batch: f64) -> f64 {
    let (n, k) = (f64::from(nodes), f64::from(replicas));
    let third = if nodes > 2 { -0.5_f64 } else { 0.0 };
    let exchange_s = match (nodes, replicas) {
        (_, 1) => 0.0,
        (1, _) => 0.04 * 2.0 * (k - 1.0) / k,
        _ => 0.3 * (k / n).powf(0.4) * (n / 2.0).powf(0.2) * third.exp(),
    };
    0.05 + 0.001 * local_batch + exchange_s
}

#[test]
fn the_law_of_shared_links_is_found_where_rows_tell_it_and_believed_where_not() {
    let rows_of = |places: &[(u32, u32)]| -> Vec<Row> {
        let of = |&(n, k)| [16.0, 64.0].map(|batch| row(n, k, batch, shared(n, k, batch)));
        places.iter().flat_map(of).collect()
    };
    let all = [(1, 1), (1, 4), (2, 2), (2, 8), (3, 3), (4, 16), (16, 16), (16, 64)];
    let found = Scaling::fit_forms(&rows_of(&all), &[Form::Shared]).unwrap();
    let error = |model: &Scaling, n, k| model.predict(n, k, 32.0, 0).step_s / shared(n, k, 32.0) - 1.0;
    for (n, k) in [(2, 4), (8, 8), (8, 32)] {
        assert!(error(&found, n, k).abs() < 0.03, "{n} nodes, {k}: {}", error(&found, n, k));
    }
    // Of a node of 4 and one pair of nodes, the exponents are what is believed.
    let few = rows_of(&[(1, 1), (1, 4), (2, 8)]);
    let about = |mean| About { mean, sd: 0.1 };
    let right = Belief { exponents: [about(0.4), about(0.2), about(-0.5)], ..Belief::default() };
    let wrong = Belief { exponents: [about(-0.4), about(0.2), about(0.5)], ..Belief::default() };
    let fit = |belief| Scaling::fit_believing(&few, &[Form::Shared], belief).unwrap();
    assert!(error(&fit(&right), 4, 4).abs() < 0.05, "{}", error(&fit(&right), 4, 4));
    assert!(error(&fit(&wrong), 4, 4).abs() > 0.2, "{}", error(&fit(&wrong), 4, 4));
    assert!((fit(&right).exponents().unwrap()[0] - 0.4).abs() < 1e-3);
    assert_eq!(Scaling::fit_forms(&few, &[Form::Ring]).unwrap().exponents(), None);
}

#[test]
fn the_unlucky_pair_of_nodes_no_longer_misleads() {
    let ours = |belief: &Belief, forms: &[Form]| -> f64 {
        let of = |split: &Split| {
            let model = Scaling::fit_believing(&split.fitted, forms, belief).unwrap();
            mean_size(split.held_out.iter().map(|held| {
                let step_s = model.predict(held.row.nodes, held.row.replicas, held.row.local_batch, 0).step_s;
                throughput_error(step_s, held.row.step_s)
            }))
        };
        let splits = pollux(&[4, 4]);
        splits.iter().map(of).sum::<f64>() / splits.len() as f64
    };
    // Beliefs of the other cluster alone (A100): the last row but one of what `accuracy_synchronous` prints as chosen.
    let about = |mean, sd| About { mean, sd };
    let exponents = [about(0.5, 0.5), about(0.199, 0.124), about(-0.074, 0.1)];
    let foreign = Belief { exponents, ..Belief::default() };
    let (four, foreign) = (ours(&Belief::default(), &Form::ALL[..4]), ours(&foreign, &Form::ALL));
    assert!(four > 0.2 && foreign < 0.65 * four, "{foreign} against {four}");
}

#[test]
fn intervals_grow_with_the_quantile_and_where_no_exchange_was_measured() {
    let rows = exact_rows();
    let width = |rows: &[Row], belief: &Belief| {
        let (low, high) =
            Scaling::fit_believing(rows, &Form::ALL, belief).unwrap().predict(2, 8, 64.0, 0).interval;
        (high / low).ln() / 2.0
    };
    let belief = Belief::default();
    let wide = Belief { quantile: 2.0 * belief.quantile, ..belief };
    assert!((width(&rows, &wide) / width(&rows, &belief) - 2.0).abs() < 1e-9);
    let one_node: Vec<Row> = rows.iter().copied().filter(|row| row.nodes == 1).collect();
    assert!(width(&rows, &belief) < belief.unmeasured && width(&one_node, &belief) >= belief.unmeasured);
}

#[test]
fn beliefs_that_cannot_be_are_refused() {
    let belief = Belief::default();
    let about = |mean, sd| [About { mean, sd }; 3];
    for bad in [
        Belief { exponents: about(0.0, 0.0), ..belief },
        Belief { exponents: about(f64::NAN, 1.0), ..belief },
        Belief { shared_weight: 1.1, ..belief },
        Belief { quantile: f64::INFINITY, ..belief },
        Belief { floor: -0.1, ..belief },
    ] {
        assert!(Scaling::fit_believing(&exact_rows(), &Form::ALL, &bad).is_err(), "{bad:?}");
    }
}

/// Times that no law follows: the interval is wide, and its ends are numbers.
#[test]
fn intervals_stay_finite() {
    let rows: Vec<Row> = exact_rows()
        .iter()
        .enumerate()
        .map(|(i, row)| Row { step_s: if i % 2 == 0 { 1e-150 } else { 1e150 }, ..*row })
        .collect();
    let forecast = Scaling::fit(&rows).unwrap().predict(8, 32, 64.0, 0);
    let (low, high) = forecast.interval;
    assert!(0.0 < low && low < forecast.examples_per_s, "{forecast:?}");
    assert!(forecast.examples_per_s < high && high.is_finite(), "{forecast:?}");
    // Nodes that were not counted are one.
    let model = Scaling::fit(&exact_rows()).unwrap();
    assert_eq!(model.predict(0, 4, 64.0, 0).step_s, model.predict(1, 4, 64.0, 0).step_s);
}

fn configuration(nodes: u32, per_node: u32, batch: u64) -> Configuration {
    let group = |node| DeviceGroup { node, device: "T4".into(), count: per_node };
    Configuration {
        devices: (0..nodes).map(group).collect(),
        batch,
        accumulation: 1,
        protocol: Protocol::Bsp,
        servers: 0,
        link: Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 },
        local_link: None,
        shared_with: Vec::new(),
    }
}

#[test]
fn it_answers_as_a_step_model_or_says_why_not() {
    let model = Scaling::fit(&exact_rows()).unwrap().with_noise_scale(1000.0);
    let job = JobDescription { name: "j".into(), model: "m".into(), batch: 128, devices: 1 };
    let good = configuration(4, 4, 16 * 64);
    let prediction = StepModel::predict(&model, &job, &good).unwrap();
    assert_eq!(prediction.step_s, model.predict(4, 16, 64.0, 0).step_s);
    assert_eq!(prediction.bottleneck, Bottleneck::Link, "100 ms of exchange, 84 ms of compute");
    let halved =
        StepModel::predict(&model, &job, &Configuration { accumulation: 2, ..good.clone() }).unwrap();
    assert_eq!(halved.step_s, model.predict(4, 16, 32.0, 1).step_s);
    assert!((model.efficiency(&job, 1128, 0.0) - 1128.0 / 2128.0).abs() < 1e-12);
    let mut mixed = good.clone();
    mixed.devices[0].device = "V100".into();
    let refused = [
        Configuration { protocol: Protocol::Asp, ..good.clone() },
        Configuration { servers: 1, ..good.clone() },
        Configuration { devices: Vec::new(), ..good.clone() },
        Configuration { batch: 0, ..good.clone() },
        Configuration { accumulation: 0, ..good.clone() },
        Configuration { shared_with: vec!["other".into()], ..good },
        mixed,
    ];
    for configuration in refused {
        assert!(StepModel::predict(&model, &job, &configuration).is_err(), "{configuration:?}");
    }
}

#[test]
fn rows_that_cannot_be_are_refused() {
    assert!(Scaling::fit(&[]).is_err());
    assert!(Scaling::fit_forms(&exact_rows(), &[]).is_err());
    for bad in [row(0, 1, 8.0, 0.1), row(2, 1, 8.0, 0.1), row(1, 1, 8.0, 0.0), row(1, 1, f64::INFINITY, 1.0)]
    {
        assert_eq!(Scaling::fit(&[row(1, 1, 8.0, 0.1), bad]).unwrap_err().place, "measurement 2");
    }
}

#[test]
fn lines_between_points_are_straight_in_logarithms() {
    let points = [(1.0, 8.0), (4.0, 2.0), (64.0, 1.0)];
    assert!((log_log(&points, 2.0).unwrap() - 4.0).abs() < 1e-12);
    assert!((log_log(&points, 16.0).unwrap() - 0.5_f64.sqrt() * 2.0).abs() < 1e-12);
    assert!((log_log(&points, 1024.0).unwrap() - 0.5).abs() < 1e-12, "the last line goes on");
    assert_eq!(log_log(&points[..1], 7.0), Some(8.0));
    assert_eq!(log_log(&[], 7.0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_laws_of_a_step_model_hold(
        times in prop::collection::vec(0.001f64..10.0, 6), nodes in 1u32..40, per_node in 1u32..5, local in 1.0f64..500.0,
    ) {
        let shapes = [(1, 1, 16.0), (1, 1, 64.0), (1, 4, 16.0), (2, 8, 16.0), (2, 2, 64.0), (16, 64, 16.0)];
        let rows: Vec<Row> = shapes.iter().zip(&times).map(|(&(n, k, b), &t)| row(n, k, b, t)).collect();
        let model = Scaling::fit(&rows).unwrap();
        let forecast = model.predict(nodes, nodes * per_node, local, 0);
        let (low, high) = forecast.interval;
        prop_assert!(forecast.step_s > 0.0 && forecast.step_s.is_finite());
        prop_assert!(0.0 < low && low <= forecast.examples_per_s && forecast.examples_per_s <= high && high.is_finite());
        prop_assert_eq!(forecast, Scaling::fit(&rows).unwrap().predict(nodes, nodes * per_node, local, 0));
    }
}
