//! The rendezvous between the runtime's thread, which asks, and the Python main thread, which answers.
//!
//! The asking side touches Python's memory only while the main thread waits for it: it copies what a question needs,
//! asks, and takes what the answer left only when the main thread comes back for the next question. So memory is never
//! used by both at once, and never after the interpreter began to go down. The sum of a gradient may come in parts:
//! then the main thread says that a tensor of it is complete, and leaves that one alone.
//!
//! Several questions may be asked at once: waking a thread takes as long as a small micro-batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What the main thread has to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Question {
    /// The gradient of the sum of these samples' losses, and the state that they leave; into a sum that is kept, if it
    /// says where in it.
    Gradient { step: u64, node: u32, samples: Vec<u64>, seed: u64, fresh: bool, sum: Option<Sum> },
    /// The losses of these held-out samples.
    Evaluate { samples: Vec<u64>, fresh: bool },
    /// The scores of samples without targets, each `width` numbers.
    Predict { values: Vec<f32>, width: usize, fresh: bool },
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
    /// It begins a sum; what is left of an earlier one counts no more.
    pub(crate) is_first: bool,
    /// Additions that follow: each adds the newest sum to the one before it.
    pub(crate) merges: u32,
    /// The sum is complete with it, and goes where a gradient goes.
    pub(crate) is_last: bool,
    /// Tensors of the sum may be said to be complete while others are computed.
    pub(crate) in_parts: bool,
}

/// What the main thread says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// Before the answer to a [`Question::Gradient`] whose sum comes in parts: the sum of the gradients of this tensor
    /// is complete, and stays as it is until the next question.
    Part { tensor: usize },
    /// To [`Question::Gradient`]. `data_wait_s` is the part of the time that went by for want of data.
    Loss { sum: f64, weight: f64, data_wait_s: f64 },
    /// To [`Question::Evaluate`].
    Evaluation { loss_sum: f64, correct: u64, predictions: u64 },
    /// To [`Question::Predict`]: the same number for each sample.
    Scores(Vec<f32>),
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

/// What the main thread is sent.
#[derive(Debug)]
enum Message {
    /// A question, with its number.
    Question(u64, Question),
    /// Those before it were withdrawn: a turn without an answer says that none of them is at work.
    Withdrawn,
}

/// Questions below this number are not to be answered any more.
type Withdrawn = Arc<AtomicU64>;

/// Where a thread says how it ended, when it cannot say so by an [`Asker`] any more.
pub(crate) struct Ending(Sender<Message>);

impl Ending {
    /// Says it; an error if the main thread is gone.
    pub(crate) fn say(&self, result: Result<(), String>) -> Result<(), Failure> {
        self.0.send(Message::Question(u64::MAX, Question::Over(result))).map_err(|_| gone())
    }
}

/// The end of the thread that asks.
#[derive(Debug)]
pub(crate) struct Asker {
    questions: Sender<Message>,
    turns: Receiver<Turn>,
    withdrawn: Withdrawn,
    /// The number of the next question.
    next: u64,
    /// Whether the main thread waits for a question.
    is_awaited: bool,
}

/// The end of the main thread.
#[derive(Debug)]
pub(crate) struct Answerer {
    questions: Receiver<Message>,
    turns: Sender<Turn>,
    withdrawn: Withdrawn,
    state: State,
}

/// Says that parts of an answer are complete while the main thread works on the others.
#[derive(Debug, Clone)]
pub(crate) struct Parts(Sender<Turn>);

impl Parts {
    /// The sum of the gradients of this tensor is complete.
    pub(crate) fn is_complete(&self, tensor: usize) {
        // A thread that is gone needs no part.
        let _ = self.0.send(Some(Answer::Part { tensor }));
    }
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
    let withdrawn = Withdrawn::default();
    let asker =
        Asker { questions: ask, turns, withdrawn: Arc::clone(&withdrawn), next: 0, is_awaited: false };
    (asker, Answerer { questions, turns: say, withdrawn, state: State::Say(None) })
}

impl Asker {
    /// Where the thread says how it ended, when it has no [`Asker`] any more.
    pub(crate) fn ending(&self) -> Ending {
        Ending(self.questions.clone())
    }

    /// Waits until the main thread waits for a question: its memory may be used then.
    pub(crate) fn meet(&mut self) -> Result<(), Failure> {
        if !self.is_awaited {
            self.hear()?;
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
        self.turn(question).and_then(answered)
    }

    /// Asks the main thread several questions at once, and tells each answer, in order, as soon as it is there; waits
    /// until the main thread comes for more. `tell` says whether to go on: if not, or after a failure, the questions
    /// that are left are withdrawn. A part of an answer is told, too; what `tell` says to it counts only if it fails.
    pub(crate) fn ask_all(
        &mut self,
        questions: Vec<Question>,
        mut tell: impl FnMut(Answer) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.meet()?;
        self.is_awaited = false;
        let count = questions.len();
        for question in questions {
            self.send(question)?;
        }
        let mut left = count;
        while left > 0 {
            let heard = self.hear().and_then(answered);
            if let Ok(part @ Answer::Part { .. }) = heard {
                tell(part)?;
                continue;
            }
            left -= 1;
            let goes_on = heard.and_then(&mut tell);
            let ends = !matches!(goes_on, Ok(true));
            if ends && left > 0 {
                self.withdraw()?;
            }
            self.is_awaited = ends || left == 0;
            if !goes_on? {
                break;
            }
        }
        Ok(())
    }

    /// Takes back all questions; returns when the main thread waits for another one.
    fn withdraw(&mut self) -> Result<(), Failure> {
        self.withdrawn.store(self.next, Ordering::Release);
        self.questions.send(Message::Withdrawn).map_err(|_| gone())?;
        // The answers to those that were begun in the meantime come before.
        while self.hear()?.is_some() {}
        Ok(())
    }

    fn send(&mut self, question: Question) -> Result<(), Failure> {
        let number = self.next;
        self.next += 1;
        self.questions.send(Message::Question(number, question)).map_err(|_| gone())
    }

    fn hear(&self) -> Result<Turn, Failure> {
        self.turns.recv().map_err(|_| gone())
    }

    fn turn(&mut self, question: Question) -> Result<Turn, Failure> {
        self.meet()?;
        self.is_awaited = false;
        self.send(question)?;
        let turn = self.hear()?;
        self.is_awaited = true;
        Ok(turn)
    }
}

/// What the main thread answered.
fn answered(turn: Turn) -> Result<Answer, Failure> {
    match turn {
        Some(Answer::Failed { what, user }) => Err(Failure { what, user }),
        Some(answer) => Ok(answer),
        None => Err(Failure::of_system("the Python side went on without an answer")),
    }
}

fn gone() -> Failure {
    Failure::of_system("the Python program is at its end")
}

impl Answerer {
    /// Waits for the next question, not longer than this. Says the answer to the last one first.
    pub(crate) fn wait(&mut self, limit: Duration) -> Wait {
        let until = Instant::now() + limit;
        loop {
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
            match self.questions.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Withdrawn) => self.state = State::Say(None),
                // It was withdrawn: no answer is waited for.
                Ok(Message::Question(number, _)) if number < self.withdrawn.load(Ordering::Acquire) => {}
                Ok(Message::Question(_, question)) => {
                    self.state = match question {
                        Question::Assigned { .. } => State::Say(None),
                        Question::Over(_) => State::Over,
                        _ => State::Asked,
                    };
                    return Wait::Question(question);
                }
                Err(RecvTimeoutError::Timeout) => return Wait::Nothing,
                Err(RecvTimeoutError::Disconnected) => {
                    self.state = State::Over;
                    return Wait::Gone;
                }
            }
        }
    }

    /// What says that parts of an answer are complete, from whatever thread.
    pub(crate) fn parts(&self) -> Parts {
        Parts(self.turns.clone())
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
