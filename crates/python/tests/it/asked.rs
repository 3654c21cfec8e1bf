//! Tests of the workload and of its rendezvous with the main thread.

use std::time::Duration;

use bellwether_runtime::order::micro_batch_seed;
use bellwether_runtime::workload::{MicroBatch, SumPosition, Weights, Workload};

use crate::ask::{Answer, Question, Wait, rendezvous};
use crate::fake::{self, PARAMETERS};

fn weights(parameters: &[f32], version: u64) -> Weights<'_> {
    Weights { parameters, state: &[7.0, 8.0], version }
}

#[test]
fn a_gradient_goes_there_and_back() {
    let (mut workload, vectors, thread) = fake::workload(fake::gradient);
    let parameters = [2.0; PARAMETERS];
    let (mut gradient, mut state) = ([0.0; PARAMETERS], [0.0; 2]);
    for (version, samples) in [(1, [1, 2]), (1, [3, 4]), (2, [5, 6])] {
        let seed = micro_batch_seed(3, 0, 1);
        let batch = MicroBatch { samples: &samples };
        let loss = workload.gradient(weights(&parameters, version), batch, seed, &mut gradient, &mut state);
        let sum = samples.iter().sum::<u64>() as f32;
        assert_eq!(loss.unwrap().sum, f64::from(sum));
        assert_eq!((gradient, state), ([2.0 * sum; PARAMETERS], [8.0, 9.0]));
    }
    // A quarter of a second each, three of the probe too, and each is told once.
    assert_eq!((workload.take_data_wait_s(), workload.take_data_wait_s()), (1.5, 0.0));
    assert!(
        workload.fingerprint().starts_with("fake 1; layout unknown; probe "),
        "{}",
        workload.fingerprint()
    );
    drop(workload);
    let asked = thread.join().unwrap();
    let fresh = |question: &Question| match question {
        Question::Gradient { step, node, fresh, .. } => (*step, *node, *fresh),
        other => panic!("{other:?}"),
    };
    let asked: Vec<_> = asked.iter().map(fresh).collect();
    // Three for the probe, whose weights are not those of any version.
    let probe = [(0, 0, true), (1, 0, false), (0, 0, false)];
    assert_eq!(asked, [&probe[..], &[(0, 1, true), (0, 1, false), (0, 1, true)]].concat());
    assert_eq!(vectors.0.lock().unwrap().brought, 3);
}

#[test]
fn a_gradient_that_changes_is_refused_by_its_tensor() {
    let mut calls = 0.0;
    let (mut workload, _, _thread) = fake::workload(move |question, vectors| {
        let answer = fake::gradient(question, vectors);
        calls += 1.0;
        vectors.gradient[PARAMETERS - 1] = calls;
        answer
    });
    let batch = MicroBatch { samples: &[1] };
    let (mut gradient, mut state) = ([0.0; PARAMETERS], [0.0; 2]);
    let error = workload.gradient(weights(&[1.0; PARAMETERS], 1), batch, 0, &mut gradient, &mut state);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("which differ in b: "), "{error}");
}

#[test]
fn a_failure_of_the_main_thread_is_the_workloads() {
    let (mut workload, _, _thread) =
        fake::workload(|_, _| Some(Answer::Failed { what: "train.py:3: ValueError: no".into(), user: true }));
    let batch = MicroBatch { samples: &[1] };
    let error = workload.evaluate(weights(&[1.0; PARAMETERS], 1), batch).unwrap_err();
    assert_eq!(error.to_string(), "train.py:3: ValueError: no");
}

#[test]
fn a_main_thread_that_leaves_is_an_error_and_no_wait_for_ever() {
    let (mut workload, _, thread) = fake::workload(|_, _| None);
    let batch = MicroBatch { samples: &[1] };
    let error = workload.evaluate(weights(&[1.0; PARAMETERS], 1), batch).unwrap_err();
    assert_eq!(error.to_string(), "the Python program is at its end");
    thread.join().unwrap();
}

#[test]
fn an_update_changes_parameters_and_slots_in_place() {
    let (mut workload, _, thread) = fake::workload(|question, vectors| {
        let Question::Update { step: 5, start: 2, length: 3 } = question else { return None };
        let [parameters, gradient, slot] = &mut vectors.piece;
        for ((p, g), s) in parameters.iter_mut().zip(gradient).zip(slot) {
            *s += *g;
            *p -= *s;
        }
        Some(Answer::Updated)
    });
    let (mut parameters, mut slot) = ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]);
    workload.update(5, 2, &mut parameters, &mut [&mut slot], &[1.0, 1.0, 1.0]).unwrap();
    assert_eq!((parameters, slot), ([-10.0, -19.0, -28.0], [11.0, 21.0, 31.0]));
    drop(workload);
    assert_eq!(thread.join().unwrap().len(), 1);
}

#[test]
fn what_is_assigned_is_told_once_there_is_something_to_compute() {
    let (mut workload, _, thread) = fake::workload(fake::gradient);
    workload.assigned(4, 0..2);
    let batch = MicroBatch { samples: &[1] };
    let (mut gradient, mut state) = ([0.0; PARAMETERS], [0.0; 2]);
    workload.gradient(weights(&[1.0; PARAMETERS], 1), batch, 0, &mut gradient, &mut state).unwrap();
    workload.assigned(4, 1..2);
    let seed = micro_batch_seed(3, 5, 0);
    workload.gradient(weights(&[1.0; PARAMETERS], 2), batch, seed, &mut gradient, &mut state).unwrap();
    drop(workload);
    let asked = thread.join().unwrap();
    assert_eq!(asked.len(), 3 + 3, "{asked:?}");
    assert_eq!(asked[4], Question::Assigned { step: 4, first: 1, end: 2 });
    assert!(matches!(asked[5], Question::Gradient { step: 5, node: 0, .. }), "{asked:?}");
}

#[test]
fn whose_turn_it_is_holds() {
    let (mut asker, mut answerer) = rendezvous();
    let short = Duration::from_millis(1);
    assert!(!answerer.answer(Answer::Updated), "nothing was asked");
    assert_eq!(answerer.wait(short), Wait::Nothing);
    let thread = std::thread::spawn(move || {
        let answer = asker.ask(Question::Evaluate { samples: vec![1], fresh: true });
        asker.ending().send(Question::Over(Err("so".into()))).unwrap();
        answer
    });
    let long = Duration::from_secs(5);
    assert_eq!(answerer.wait(long), Wait::Question(Question::Evaluate { samples: vec![1], fresh: true }));
    assert_eq!(answerer.wait(short), Wait::Unanswered);
    assert!(answerer.answer(Answer::Updated) && !answerer.answer(Answer::Updated), "one answer each");
    assert_eq!(answerer.wait(long), Wait::Question(Question::Over(Err("so".into()))));
    assert_eq!(answerer.wait(short), Wait::Gone);
    assert_eq!(thread.join().unwrap(), Ok(Answer::Updated));
}

#[test]
fn sums_that_the_main_thread_keeps_come_at_their_end() {
    let (workload, vectors, thread) = fake::workload(fake::gradient);
    let mut workload = workload.keeping_sums(true);
    assert!(!workload.keeps_sums(), "nothing is known of the main thread before it computed");
    let parameters = [1.0; PARAMETERS];
    let batch = MicroBatch { samples: &[1] };
    let (mut gradient, mut state) = ([0.0; PARAMETERS], [0.0; 2]);
    workload.gradient(weights(&parameters, 1), batch, 0, &mut gradient, &mut state).unwrap();
    assert!(workload.keeps_sums());
    let positions = [SumPosition { is_first: true, merges: 0 }, SumPosition { is_first: false, merges: 1 }];
    let seed = |node| micro_batch_seed(3, 0, node);
    workload.gradient_into_sum(weights(&parameters, 1), batch, seed(0), positions[0], None).unwrap();
    vectors.0.lock().unwrap().gradient = vec![0.5; PARAMETERS];
    gradient.fill(0.0);
    let out = Some((gradient.as_mut_slice(), state.as_mut_slice()));
    let batch = MicroBatch { samples: &[2] };
    let loss =
        workload.gradient_into_sum(weights(&parameters, 1), batch, seed(1), positions[1], out).unwrap();
    assert_eq!((loss.sum, gradient), (2.0, [2.0; PARAMETERS]), "what the last answer left is taken");
    drop(workload);
    let in_sum = |question| match question {
        Question::Gradient { node, sum, .. } => sum.map(|sum| (node, sum.position, sum.is_last)),
        _ => None,
    };
    let sums: Vec<_> = thread.join().unwrap().into_iter().filter_map(in_sum).collect();
    assert_eq!(sums, [(0, positions[0], false), (1, positions[1], true)]);
}
