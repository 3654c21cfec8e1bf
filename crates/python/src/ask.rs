//! The rendezvous between the runtime's thread, which asks, and the Python main thread, which answers.
//!
//! The asking side touches Python's memory only while the main thread waits for it: it copies what a question needs,
//! asks, and takes what the answer left only when the main thread comes back for the next question. So memory is never
//! used by both at once, and never after the interpreter began to go down.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bellwether_runtime::workload::SumPosition;

/// What the main thread has to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Question {
    /// The gradient of the sum of these samples' losses, and the state that they leave; into a sum that is kept, if it
    /// says where in it.
    Gradient { step: u64, node: u32, samples: Vec<u64>, seed: u64, fresh: bool, sum: Option<Sum> },
    /// The losses of these held-out samples.
    Evaluate { samples: Vec<u64>, fresh: bool },
    /// The update of `length` parameters from `start` on.
    Update { step: u64, start: usize, length: usize },
    /// These virtual nodes are this worker's from `step` on. No answer.
    Assigned { step: u64, first: u32, end: u32 },
    /// The worker ended; the reason if it was not the end of its run.
    Over(Result<(), String>),
}

/// Where a micro-batch stands in a sum that the main thread keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) position: SumPosition,
    /// The sum is complete with it, and goes where a gradient goes.
    pub(crate) is_last: bool,
}

/// What the main thread says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// To [`Question::Gradient`]. `data_wait_s` is the part of the time that went by for want of data.
    Loss { sum: f64, weight: f64, data_wait_s: f64 },
    /// To [`Question::Evaluate`].
    Evaluation { loss_sum: f64, correct: u64, predictions: u64 },
    /// To [`Question::Update`].
    Updated,
    /// It cannot be computed; `user` if the user's code is to blame.
    Failed { what: String, user: bool },
}

/// Why a question was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) what: String,
    pub(crate) user: bool,
}

impl Failure {
    /// A failure that is not the user's.
    pub(crate) fn of_system(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), user: false }
    }
}

/// A turn of the main thread: its answer to the last question, if that had one.
type Turn = Option<Answer>;

/// The end of the thread that asks.
#[derive(Debug)]
pub(crate) struct Asker {
    questions: Sender<Question>,
    turns: Receiver<Turn>,
    /// Whether the main thread waits for a question.
    is_awaited: bool,
}

/// The end of the main thread.
#[derive(Debug)]
pub(crate) struct Answerer {
    questions: Receiver<Question>,
    turns: Sender<Turn>,
    state: State,
}

/// Whose turn it is, as the main thread knows.
#[derive(Debug, Clone, PartialEq)]
enum State {
    /// The main thread has to say this (`None`: that it is ready) before it waits.
    Say(Turn),
    /// The main thread said that it waits.
    Waiting,
    /// The main thread has a question to answer.
    Asked,
    /// Nothing will be asked any more.
    Over,
}

/// What waiting for a question came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wait {
    /// A question.
    Question(Question),
    /// None yet.
    Nothing,
    /// None will come: the asking thread is gone.
    Gone,
    /// The last question waits for its answer.
    Unanswered,
}

/// Both ends of a new rendezvous.
pub(crate) fn rendezvous() -> (Asker, Answerer) {
    let (ask, questions) = channel();
    let (say, turns) = channel();
    let asker = Asker { questions: ask, turns, is_awaited: false };
    (asker, Answerer { questions, turns: say, state: State::Say(None) })
}

impl Asker {
    /// Where the thread says how it ended, when it cannot say so by an [`Asker`] any more.
    pub(crate) fn ending(&self) -> Sender<Question> {
        self.questions.clone()
    }

    /// Waits until the main thread waits for a question: its memory may be used then.
    pub(crate) fn meet(&mut self) -> Result<(), Failure> {
        if !self.is_awaited {
            self.turns.recv().map_err(|_| gone())?;
            self.is_awaited = true;
        }
        Ok(())
    }

    /// Tells the main thread something, and waits until it comes for more.
    pub(crate) fn tell(&mut self, question: Question) -> Result<(), Failure> {
        self.turn(question).map(|_| ())
    }

    /// Asks the main thread, and waits until it said the answer and comes for more.
    pub(crate) fn ask(&mut self, question: Question) -> Result<Answer, Failure> {
        match self.turn(question)? {
            Some(Answer::Failed { what, user }) => Err(Failure { what, user }),
            Some(answer) => Ok(answer),
            None => Err(Failure::of_system("the Python side went on without an answer")),
        }
    }

    fn turn(&mut self, question: Question) -> Result<Turn, Failure> {
        self.meet()?;
        self.is_awaited = false;
        self.questions.send(question).map_err(|_| gone())?;
        let turn = self.turns.recv().map_err(|_| gone())?;
        self.is_awaited = true;
        Ok(turn)
    }
}

fn gone() -> Failure {
    Failure::of_system("the Python program is at its end")
}

impl Answerer {
    /// Waits for the next question, not longer than this. Says the answer to the last one first.
    pub(crate) fn wait(&mut self, limit: Duration) -> Wait {
        match &self.state {
            State::Asked => return Wait::Unanswered,
            State::Over => return Wait::Gone,
            State::Waiting => {}
            State::Say(turn) => {
                // A thread that is gone has left its last word in the other channel.
                let _ = self.turns.send(turn.clone());
                self.state = State::Waiting;
            }
        }
        match self.questions.recv_timeout(limit) {
            Ok(question) => {
                self.state = match question {
                    Question::Assigned { .. } => State::Say(None),
                    Question::Over(_) => State::Over,
                    _ => State::Asked,
                };
                Wait::Question(question)
            }
            Err(RecvTimeoutError::Timeout) => Wait::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                self.state = State::Over;
                Wait::Gone
            }
        }
    }

    /// Keeps the answer to the question for the next [`wait`](Answerer::wait). Says whether there was one.
    pub(crate) fn answer(&mut self, answer: Answer) -> bool {
        let asked = self.state == State::Asked;
        if asked {
            self.state = State::Say(Some(answer));
        }
        asked
    }
}
