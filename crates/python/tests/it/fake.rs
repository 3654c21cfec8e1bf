//! The Python side without Python: vectors under a lock, and a main thread that answers by a closure.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::job::CheckedJob;

use crate::ask::{Answer, Answerer, Question, Wait, rendezvous};
use crate::declaration::Declaration;
use crate::workload::{Memory, Place, PythonWorkload};

/// Parameters of the fake model: a matrix and a vector.
pub(crate) const PARAMETERS: usize = 6 + 2;

/// The vectors, by place.
#[derive(Default)]
pub(crate) struct Vectors {
    pub(crate) parameters: Vec<f32>,
    pub(crate) state: Vec<f32>,
    pub(crate) gradient: Vec<f32>,
    pub(crate) state_out: Vec<f32>,
    pub(crate) piece: [Vec<f32>; 3],
    /// How often parameters came.
    pub(crate) brought: u32,
}

#[derive(Clone, Default)]
pub(crate) struct Shared(pub(crate) Arc<Mutex<Vectors>>);

impl Vectors {
    fn at(&mut self, place: Place) -> &mut Vec<f32> {
        match place {
            Place::Parameters => &mut self.parameters,
            Place::State => &mut self.state,
            Place::Gradient | Place::Tensor(_) => &mut self.gradient,
            Place::StateOut => &mut self.state_out,
            Place::PieceParameters => &mut self.piece[0],
            Place::PieceGradient => &mut self.piece[1],
            Place::PieceSlot(_) => &mut self.piece[2],
        }
    }
}

impl Memory for Shared {
    fn put(&self, place: Place, values: &[f32]) -> Result<(), String> {
        let mut vectors = self.0.lock().unwrap();
        vectors.brought += u32::from(place == Place::Parameters);
        *vectors.at(place) = values.to_vec();
        Ok(())
    }

    fn take(&self, place: Place, out: &mut [f32]) -> Result<(), String> {
        let mut vectors = self.0.lock().unwrap();
        match place {
            Place::Tensor(0) => out.copy_from_slice(&vectors.gradient[..6]),
            Place::Tensor(_) => out.copy_from_slice(&vectors.gradient[6..]),
            place => out.copy_from_slice(vectors.at(place)),
        }
        Ok(())
    }
}

/// What a script with a model of these tensors declares.
pub(crate) fn declaration() -> &'static str {
    r#"{
        "version": 1,
        "job": {
            "name": "mine", "seed": 3, "steps": 10, "batch": {"size": 4, "virtual_nodes": 4},
            "model": {"kind": "custom", "name": "mine"},
            "data": {"training_samples": 16, "held_out_samples": 4},
            "optimizer": {"kind": "sgd", "learning_rate": 0.5}
        },
        "layout": {"parameters": [["w", [2, 3]], ["b", [2]]], "state": [["mean", [2]]]}
    }"#
}

/// A job as that script declares it.
pub(crate) fn job() -> CheckedJob {
    let text = "name = \"mine\"\nseed = 3\nsteps = 10\n[model]\nkind = \"custom\"\nname = \"mine\"\n\
        [data]\nkind = \"custom\"\n[batch]\nsize = 4\nvirtual_nodes = 4\n\
        [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.5\n";
    bellwether_core::parse::job(text, "job.toml", &[]).unwrap()
}

/// A main thread: answers each question by `answer`, until the workload is gone; `None` leaves at once. Returns the
/// questions that were asked.
pub(crate) fn main_thread(
    mut answerer: Answerer,
    vectors: Shared,
    mut answer: impl FnMut(&Question, &mut Vectors) -> Option<Answer> + Send + 'static,
) -> JoinHandle<Vec<Question>> {
    std::thread::spawn(move || {
        let mut asked = Vec::new();
        loop {
            match answerer.wait(Duration::from_secs(5)) {
                Wait::Question(question) => {
                    asked.push(question.clone());
                    match answer(&question, &mut vectors.0.lock().unwrap()) {
                        Some(reply) => assert!(answerer.answer(reply)),
                        None if matches!(question, Question::Assigned { .. }) => {}
                        None => return asked,
                    }
                }
                Wait::Gone => return asked,
                wait => panic!("{wait:?} after {asked:?}"),
            }
        }
    })
}

/// A workload whose main thread answers by `answer`.
pub(crate) fn workload(
    answer: impl FnMut(&Question, &mut Vectors) -> Option<Answer> + Send + 'static,
) -> (PythonWorkload<Shared>, Shared, JoinHandle<Vec<Question>>) {
    let (asker, answerer) = rendezvous();
    let vectors = Shared::default();
    let thread = main_thread(answerer, vectors.clone(), answer);
    let declaration = Declaration::parse(declaration()).unwrap();
    let workload = PythonWorkload::new(asker, vectors.clone(), &declaration, "fake 1".into(), &job());
    (workload, vectors, thread)
}

/// Answers a gradient with the samples' sum in every element of the gradient, and the state plus 1.
pub(crate) fn gradient(question: &Question, vectors: &mut Vectors) -> Option<Answer> {
    let Question::Gradient { samples, .. } = question else { return None };
    let sum = samples.iter().sum::<u64>() as f32;
    vectors.gradient = vec![sum * vectors.parameters[0]; PARAMETERS];
    vectors.state_out = vectors.state.iter().map(|value| value + 1.0).collect();
    Some(Answer::Loss { sum: f64::from(sum), weight: samples.len() as f64, data_wait_s: 0.25 })
}
