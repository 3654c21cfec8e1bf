//! Tests of the workload and of its rendezvous with the main thread.

use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_runtime::order::micro_batch_seed;
use bellwether_runtime::workload::{Leaf, MicroBatch, Weights, Workload, WorkloadError};

use crate::ask::{Answer, Question, Sum, Wait, rendezvous};
use crate::fake::{self, PARAMETERS};
use crate::workload::PythonWorkload;

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
        asker.ending().say(Err("so".into())).unwrap();
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

/// A workload that has computed once, so that it knows whether sums are kept.
fn summing(
    answer: impl FnMut(&Question, &mut fake::Vectors) -> Option<Answer> + Send + 'static,
) -> (PythonWorkload<fake::Shared>, JoinHandle<Vec<Question>>) {
    let (workload, _, thread) = fake::workload(answer);
    let mut workload = workload.keeping_sums(true);
    assert!(!workload.keeps_sums(), "nothing is known of the main thread before it computed");
    let (mut gradient, mut state) = ([0.0; PARAMETERS], [0.0; 2]);
    let batch = MicroBatch { samples: &[1] };
    workload.gradient(weights(&[1.0; PARAMETERS], 1), batch, 0, &mut gradient, &mut state).unwrap();
    assert!(workload.keeps_sums());
    (workload, thread)
}

/// Sums the gradients of four micro-batches with the samples 1 to 4; `limit`: of those that are computed. Returns the
/// losses, and the gradient.
fn sum_of_four(
    workload: &mut PythonWorkload<fake::Shared>,
    limit: usize,
) -> (Result<(), WorkloadError>, Vec<f64>, [f32; PARAMETERS]) {
    let leaf = |(node, merges)| {
        let seed = micro_batch_seed(3, 0, node);
        Leaf { samples: vec![u64::from(node) + 1], seed, merges }
    };
    let leaves: Vec<Leaf> = [(0, 0), (1, 1), (2, 0), (3, 2)].map(leaf).to_vec();
    let (mut gradient, mut state, mut losses) = ([0.0; PARAMETERS], [0.0; 2], Vec::new());
    let result = workload.sum_of_gradients(
        weights(&[1.0; PARAMETERS], 2),
        &leaves,
        (&mut gradient, &mut state),
        None,
        &mut |result| {
            losses.push(result.loss.sum);
            losses.len() < limit
        },
    );
    (result, losses, gradient)
}

/// Of all questions for a sum: node, whether weights are fresh, and the place in the sum.
fn in_sums(asked: Vec<Question>) -> Vec<(u32, bool, Sum)> {
    let in_sum = |question| match question {
        Question::Gradient { node, fresh, sum, .. } => sum.map(|sum| (node, fresh, sum)),
        _ => None,
    };
    asked.into_iter().filter_map(in_sum).collect()
}

#[test]
fn sums_that_the_main_thread_keeps_come_at_their_end() {
    let (mut workload, thread) = summing(fake::gradient);
    let (result, losses, gradient) = sum_of_four(&mut workload, usize::MAX);
    result.unwrap();
    assert_eq!(
        (losses, gradient),
        (vec![1.0, 2.0, 3.0, 4.0], [4.0; PARAMETERS]),
        "what the last answer left"
    );
    drop(workload);
    let place = |is_first, merges, is_last| Sum { is_first, merges, is_last, in_parts: false };
    assert_eq!(
        in_sums(thread.join().unwrap()),
        [
            (0, true, place(true, 0, false)),
            (1, false, place(false, 1, false)),
            (2, false, place(false, 0, false)),
            (3, false, place(false, 2, true)),
        ]
    );
}

#[test]
fn what_is_asked_at_once_is_withdrawn() {
    for limit in [1, 2, 3] {
        let slow = |question: &Question, vectors: &mut fake::Vectors| {
            std::thread::sleep(Duration::from_millis(5));
            fake::gradient(question, vectors)
        };
        let (mut workload, thread) = summing(slow);
        let (result, losses, gradient) = sum_of_four(&mut workload, limit);
        result.unwrap();
        assert_eq!(
            (losses.len(), gradient),
            (limit, [0.0; PARAMETERS]),
            "a sum that was given up is not taken"
        );
        // The rendezvous is as before: the next question has its own answer.
        let (result, losses, _) = sum_of_four(&mut workload, usize::MAX);
        result.unwrap();
        assert_eq!(losses, [1.0, 2.0, 3.0, 4.0]);
        drop(workload);
        let asked = in_sums(thread.join().unwrap());
        let firsts = asked.iter().filter(|(_, _, sum)| sum.is_first).count();
        assert_eq!(firsts, 2);
        // One more may have been begun in the meantime.
        assert!((limit..=limit + 1).contains(&(asked.len() - 4)), "{limit}: {asked:?}");
    }
}

#[test]
fn a_failure_withdraws_what_was_asked_with_it() {
    let mut asked = 0;
    let (mut workload, _thread) = summing(move |question, vectors| {
        asked += u32::from(matches!(question, Question::Gradient { sum: Some(_), .. }));
        // From the second micro-batch of the first sum on, as a script does that ends.
        let fails = (2..=4).contains(&asked);
        let failure = Answer::Failed { what: "train.py:3: ValueError: no".into(), user: true };
        if fails { Some(failure) } else { fake::gradient(question, vectors) }
    });
    let (result, losses, _) = sum_of_four(&mut workload, usize::MAX);
    let error = result.unwrap_err();
    assert!(error.is_user && error.what.starts_with("train.py:3"), "{error}");
    assert_eq!(losses, [1.0], "the first one that was not told of has failed");
    let batch = MicroBatch { samples: &[9] };
    let evaluated = workload.evaluate(weights(&[1.0; PARAMETERS], 2), batch);
    assert!(
        evaluated.is_err(),
        "the main thread has no answer for it, and it is not that of an older question"
    );
}
