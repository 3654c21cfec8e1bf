//! The stages of a search, with supernets that are made up.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bellwether_core::job::CellOperation::{AvgPool3x3, Conv1x1, Conv3x3, None, Skip};
use bellwether_core::job::{Cell, CheckedJob, Job, Model};
use bellwether_core::nas::{DeviceOptions, SearchMethod};
use bellwether_core::units::{Bytes, Dollars, DollarsPerHour, Seconds};
use bellwether_runtime::workload::{Evaluation, Weights, WorkloadError};

use super::devices::{Measured, features, to_measure};
use super::*;

fn job() -> CheckedJob {
    let text = "name = \"cells\"\nsteps = 21\nworkers = 1\n[batch]\nsize = 8\nvirtual_nodes = 4\n\
                [model]\nkind = \"cell\"\n[data]\nkind = \"digits\"\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
    bellwether_core::parse::job(text, "job.toml", &[]).unwrap()
}

#[test]
fn a_family_has_a_member_for_each_choice() {
    let family = family(&job(), &[vec![0], vec![3, 5]], 0.5).unwrap();
    let of = |level: usize| family.iter().filter(|member| member.level == level).collect::<Vec<_>>();
    assert_eq!((of(0).len(), of(1).len(), of(2).len()), (1, 5, 125));
    assert_eq!(of(2).iter().map(|member| member.cell.count()).sum::<f64>(), 15_625.0);
    assert!(of(2).iter().enumerate().all(|(place, member)| member.parent == Some(1 + place / 25)));
    assert_eq!(
        (family[0].job.steps, family[1].job.steps, family[130].job.steps),
        (Some(21), Some(11), Some(11))
    );
    assert_eq!(family[130].name("cells"), "cells-s2-124");
    assert!(
        family.iter().all(|member| matches!(&member.job.model, Model::Cell(cell) if *cell == member.cell))
    );
}

/// Trains nothing: a part's only parameter is its parent's plus one.
struct Counting(Mutex<Vec<String>>, Option<&'static str>);

impl Trainer for Counting {
    fn train(&self, name: &str, job: &CheckedJob) -> std::result::Result<Trained, NasError> {
        self.0.lock().unwrap().push(name.into());
        if self.1 == Some(name) {
            return Err(NasError::Stopped { run: name.into() });
        }
        let parent = job.initial_weights.as_ref().map_or(0.0, |path| path.to_str().unwrap().parse().unwrap());
        Ok(Trained {
            run: name.into(),
            checkpoint: (parent + 1.0_f32).to_string().into(),
            parameters: vec![parent + 1.0],
            state: Vec::new(),
            accuracy: Some(0.5),
            seconds: 1.0,
        })
    }
}

#[test]
fn parents_are_trained_before_their_parts() {
    let family = family(&job(), &[vec![0], vec![1]], 0.5).unwrap();
    for at_once in [1, 3] {
        let trainer = Counting(Mutex::default(), Option::None);
        let trained = train_all(&family, "cells", &trainer, at_once, &|_| {}).unwrap();
        let levels: Vec<f32> = trained.iter().map(|one| one.parameters[0] - 1.0).collect();
        assert_eq!(levels, family.iter().map(|member| member.level as f32).collect::<Vec<_>>());
        assert!(trained.iter().zip(&family).all(|(one, member)| one.run == member.name("cells")));
    }
    let trainer = Counting(Mutex::default(), Some("cells-s1-2"));
    let error = train_all(&family, "cells", &trainer, 1, &|_| {}).unwrap_err();
    assert_eq!(error.to_string(), "cells-s1-2 was stopped");
    assert_eq!(trainer.0.into_inner().unwrap().len(), 4, "nothing is trained after that");
}

/// Seconds of an architecture: 1 ms, and 1, 2, 8 and 4 ms for each operation that computes.
fn truth_s(architecture: &[CellOperation]) -> f64 {
    let counts = features(architecture);
    1e-3 * (1.0 + counts[0] + 2.0 * counts[1] + 8.0 * counts[2] + 4.0 * counts[3])
}

fn predictor(device: &DeviceOptions) -> Predictor {
    let Model::Cell(cell) = job().model.clone() else { unreachable!() };
    let measured = to_measure(&cell, 20, 1).into_iter().map(|architecture| {
        let step_s = truth_s(&architecture);
        Measured { peak_bytes: Some(1e6 + 1e9 * step_s), architecture, step_s }
    });
    Predictor::fit(measured.collect(), device, 2, 3600).unwrap()
}

#[test]
fn what_follows_the_form_is_predicted() {
    let device =
        DeviceOptions { speed: 2.0, price: Some(DollarsPerHour::new(3.0)), ..DeviceOptions::default() };
    let predictor = predictor(&device);
    let architecture = [Conv3x3, Conv1x1, AvgPool3x3, None, Skip, Conv3x3];
    let (costs, step_s) = (predictor.costs(&architecture), truth_s(&architecture) / 2.0);
    assert!((costs.step_s - step_s).abs() < 1e-9 && costs.step_interval_s.0 <= step_s + 1e-9, "{costs:?}");
    assert!((costs.memory_bytes.unwrap() / (1e6 + 2e9 * step_s) - 1.0).abs() < 1e-6);
    // An hour's price of two workers for each second of a step.
    assert!((costs.dollars.unwrap() - 6.0 * step_s).abs() < 1e-6);
    assert!(predictor.left_out_errors().0 < 1e-6);
    // What leads nowhere costs nothing.
    let dead = [Conv3x3, Skip, None, None, None, Skip];
    assert_eq!(features(&dead), [2.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_space_without_some_operations_is_predicted_too() {
    let Model::Cell(cell) = job().model.clone() else { unreachable!() };
    let cell = cell.with_edges(vec![vec![None, Conv3x3]; 3].into_iter().chain(vec![vec![Skip]; 3]).collect());
    let measured = to_measure(&cell, 8, 1).into_iter().map(|architecture| {
        let step_s = truth_s(&architecture);
        Measured { peak_bytes: Option::None, architecture, step_s }
    });
    let predictor = Predictor::fit(measured.collect(), &DeviceOptions::default(), 1, 1).unwrap();
    let architecture = [Conv3x3, None, Conv3x3, Skip, Skip, Skip];
    assert!((predictor.costs(&architecture).step_s / truth_s(&architecture) - 1.0).abs() < 0.2);
    assert_eq!(predictor.costs(&architecture).memory_bytes, Option::None);
}

#[test]
fn limits_that_nothing_meets_name_the_nearest() {
    let (predictor, cell) = (
        predictor(&DeviceOptions::default()),
        Cell::clone(match &job().model {
            Model::Cell(cell) => cell,
            _ => unreachable!(),
        }),
    );
    let convolutions = cell.with_edges(vec![vec![Conv1x1, Conv3x3]; 6]);
    let limits = Limits { step_time: Some(Seconds::new(0.005)), ..Limits::default() };
    assert!(check_limits(&limits, &cell.edges(), &predictor).is_ok());
    let error = check_limits(&limits, &convolutions.edges(), &predictor).unwrap_err().to_string();
    // 1 ms + 6 · 2 ms.
    assert!(error.contains("nor_conv_1x1~2|, which takes 13ms a step"), "{error}");
    let unknown =
        Limits { price: Some(Dollars::new(1.0)), memory: Some(Bytes(1 << 40)), ..Limits::default() };
    assert_eq!(predictor.costs(&[Skip; 6]).excess(&unknown), f64::INFINITY, "the price is not known");
}

/// Convolutions of 3×3 are good, whatever the weights.
fn convolutions(_: Weights<'_>, path: &[CellOperation]) -> std::result::Result<Evaluation, WorkloadError> {
    let correct = path.iter().filter(|operation| **operation == Conv3x3).count() as u64;
    Ok(Evaluation { loss_sum: 6.0, correct, predictions: 6 })
}

#[test]
fn a_search_stays_within_the_limits_and_asks_each_supernet_for_its_own() {
    let device = DeviceOptions::default();
    let (predictor, job) = (predictor(&device), job());
    let family = family(&job, &[vec![0]], 1.0).unwrap();
    let opened = Mutex::new(BTreeMap::new());
    let open = |job: &Job| -> std::result::Result<Scorer, InputError> {
        let Model::Cell(cell) = &job.model else { unreachable!() };
        *opened.lock().unwrap().entry(cell.edges()[0][0]).or_insert(0) += 1;
        Ok(Box::new(convolutions))
    };
    let trainer = Counting(Mutex::default(), Option::None);
    let trained = train_all(&family, "cells", &trainer, 1, &|_| {}).unwrap();
    for (method, least) in [(SearchMethod::Evolution, 3.0 / 6.0), (SearchMethod::Random, 2.0 / 6.0)] {
        let leaves = family[1..].iter().zip(&trained[1..]);
        let leaves =
            leaves.map(|(member, one)| (member.cell.clone(), member.job.clone().into_job(), one.clone()));
        let mut oracle = Oracle::new(leaves.collect(), &open);
        let options = SearchOptions { method, evaluations: 300, ..SearchOptions::default() };
        // Three convolutions of 3×3 at most.
        let limits = Limits { step_time: Some(Seconds::new(0.030)), ..Limits::default() };
        let Model::Cell(cell) = &job.model else { unreachable!() };
        let found = search(&options, &limits, &cell.edges(), &mut oracle, Some(&predictor)).unwrap();
        assert_eq!(found.evaluations, 300);
        assert!(found.found.iter().all(|one| truth_s(&one.architecture) < 0.030 + 1e-6));
        assert!(found.found[0].score.accuracy >= least, "{:?}", found.found[0]);
        let different: std::collections::BTreeSet<_> =
            found.found.iter().map(|one| &one.architecture).collect();
        assert_eq!(different.len(), found.found.len());
    }
    // Each of the five supernets was opened once by each search.
    assert_eq!(opened.into_inner().unwrap().into_values().collect::<Vec<i32>>(), [2; 5]);
}
