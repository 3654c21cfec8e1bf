//! Which share of a recurring job's steps has to be synchronous, found by training it again and again.
//!
//! ```text
//! low = 0, high = 1, best = 1
//! M times:   f = (low + high) / 2;  R sessions, synchronous for the share f of the steps, then asynchronous
//!            if the mean accuracy >= A - b:  best = high = f,  else  low = f
//! ```
//!
//! | symbol | meaning                                                                                       |
//! |--------|-----------------------------------------------------------------------------------------------|
//! | A      | the accuracy that is wanted: given, or the mean of R sessions of which all steps are synchronous |
//! | b      | the margin; of a loss a relative one: the mean loss is at most A (1 + b)                        |
//!
//! The ladder is 1/2, 1/4, 1/8 and so on as long as the sessions pass, and halves the rest after one that did not. A
//! session that diverges fails its setting, and the rest of that setting's sessions are spared. The search pays when
//! the job recurs: its cost is the time of all sessions, those that found A too, and a recurrence saves T(1) - T(best).
//! Where A was given, T(1) was not measured: it is then taken from the line through the mean times of the settings, as
//! T is linear in f.
//!
//! A mean over R sessions has an error, and the search knows nothing of it: where accuracy hardly depends on f,
//! neighbours are told apart by chance. It assumes that more synchronous steps are no worse. Source: Li, Mangoubi, Xu
//! and Guo, Sync-Switch, ICDCS 2021; what a diverged session spares and the margin of a loss are ours.
//!
//! A plain value: sessions are told to it, its whole state can be written down, and what to train next follows from the
//! sessions.

use bellwether_core::InputError;
use serde::{Deserialize, Serialize};

/// Rounding must not fail a mean that is at the margin.
const ROUNDING: f64 = 1e-12;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Share of right predictions on the held-out set at the end, 0…1.
    Accuracy(f64),
    /// Mean loss on the held-out set at the end, where there is no accuracy.
    Loss(f64),
    /// The loss became no number, or grew beyond all bounds.
    Diverged,
}

/// A session that was trained.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Share of its steps that were synchronous, 0…1.
    pub fraction: f64,
    /// Its number among those of its fraction, from 0.
    pub run: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub seconds: f64,
    /// Samples that it trained on, each counted as often as it was seen.
    pub samples: u64,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Train a session.
    Run {
        /// Share of its steps that are synchronous.
        fraction: f64,
        /// Its number among those of its fraction, from 0: equal numbers may have equal seeds.
        run: u32,
    },
    /// The search is over. The least share that passed; 1 where none did, and `None` where synchronous training itself
    /// diverged, so that no target accuracy can be derived.
    Done(Option<f64>),
}

/// The sessions of one fraction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Share of the steps that are synchronous, 0…1.
    pub fraction: f64,
    /// Accuracy or loss of each session that did not diverge.
    pub scores: Vec<f64>,
    /// Sessions that diverged.
    pub diverged: u32,
    /// Mean seconds of a session that did not diverge; absent where all did.
    pub seconds: Option<f64>,
    /// Whether it is good enough; absent while sessions are to come, and for the setting that says what is good.
    pub passed: Option<bool>,
}

/// What the result is worth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Mean seconds of a session of which all steps are synchronous.
    pub synchronous_s: f64,
    /// Whether these were not measured.
    pub extrapolated: bool,
    /// Mean seconds of a session with the best share.
    pub best_s: f64,
    /// Recurrences of the job after which the search has paid for itself; absent where it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrences: Option<f64>,
}

/// A search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// What the mean accuracy may be below the one that is wanted, 0…1; the part by which a loss may be above.
    margin: f64,
    runs_per_setting: u32,
    max_settings: u32,
    /// The accuracy that is wanted, where it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<f64>,
    sessions: Vec<Session>,
}

/// Where the search is, as the sessions have it.
struct Replay {
    settings: Vec<Setting>,
    ask: Ask,
}

impl Search {
    /// A search without sessions yet.
    ///
    /// # Errors
    ///
    /// Returns an error for a margin or a target outside 0 to 1, no session per setting or more than 1000, no setting
    /// or more than 40.
    pub fn new(
        margin: f64,
        runs_per_setting: u32,
        max_settings: u32,
        target: Option<f64>,
    ) -> Result<Search, InputError> {
        let search = Search { margin, runs_per_setting, max_settings, target, sessions: Vec::new() };
        search.check().map(|()| search)
    }

    /// A search that was written down, with its sessions told again, so that no file makes it inconsistent.
    ///
    /// # Errors
    ///
    /// Returns what [`Search::new`] and [`Search::tell`] refuse.
    pub fn again(written: &Search) -> Result<Search, InputError> {
        let Search { margin, runs_per_setting, max_settings, target, .. } = *written;
        let mut search = Search::new(margin, runs_per_setting, max_settings, target)?;
        written.sessions.iter().try_for_each(|session| search.tell(*session))?;
        Ok(search)
    }

    fn check(&self) -> Result<(), InputError> {
        let refuse = |what: String, hint: &str| Err(InputError::new("tune", what).hint(hint));
        if !(0.0..1.0).contains(&self.margin) {
            return refuse(
                format!("a margin of {}", self.margin),
                "give 0 or more and less than 1; 0.01 is one point",
            );
        }
        if !(1..=1000).contains(&self.runs_per_setting) {
            let what = format!("{} sessions per setting", self.runs_per_setting);
            return refuse(what, "give 1 to 1000; 5 tell a difference of a point from chance in most jobs");
        }
        if !(1..=40).contains(&self.max_settings) {
            return refuse(
                format!("{} settings", self.max_settings),
                "give 1 to 40; 5 search down to 1/32 of the steps",
            );
        }
        if let Some(target) = self.target.filter(|target| !(0.0..=1.0).contains(target)) {
            return refuse(format!("an accuracy of {target}"), "an accuracy is between 0 and 1");
        }
        Ok(())
    }

    /// What to do next.
    ///
    /// ```
    /// use bellwether_sched::tune::{Ask, Outcome, Search, Session};
    /// let mut search = Search::new(0.01, 1, 2, Some(0.9))?;
    /// // Half of the steps are enough, and a quarter is not.
    /// while let Ask::Run { fraction, run } = search.next() {
    ///     let outcome = Outcome::Accuracy(if fraction < 0.4 { 0.85 } else { 0.895 });
    ///     search.tell(Session { fraction, run, outcome, seconds: 1.0 + fraction, samples: 1000 })?;
    /// }
    /// assert_eq!(search.next(), Ask::Done(Some(0.5)));
    /// # Ok::<(), bellwether_core::InputError>(())
    /// ```
    #[allow(clippy::should_implement_trait)] // It gives the same answer until a session is told.
    pub fn next(&self) -> Ask {
        self.replay().ask
    }

    /// Takes in the session that was asked for. An accuracy or a loss that is NaN counts as divergence.
    ///
    /// # Errors
    ///
    /// Returns an error on any of these: another session than [`Search::next`] asks for; an accuracy outside 0 to 1;
    /// accuracies and losses in one search, or a loss where an accuracy is wanted; a time or a loss that is negative,
    /// or a time that is not finite.
    pub fn tell(&mut self, session: Session) -> Result<(), InputError> {
        let Session { fraction, run, seconds, .. } = session;
        let refuse = |what: String, hint: &str| {
            Err(InputError::new(format!("session {run} with {fraction} synchronous"), what).hint(hint))
        };
        if self.next() != (Ask::Run { fraction, run }) {
            return refuse(
                "it was not asked for".into(),
                "sessions are told in the order in which the search asks",
            );
        }
        if !(seconds >= 0.0 && seconds.is_finite()) {
            return refuse(format!("it took {seconds} seconds"), "a time is 0 or more");
        }
        let outcome = match session.outcome {
            Outcome::Accuracy(score) | Outcome::Loss(score) if !score.is_finite() => Outcome::Diverged,
            outcome => outcome,
        };
        match outcome {
            Outcome::Accuracy(accuracy) if !(0.0..=1.0).contains(&accuracy) => {
                return refuse(format!("its accuracy is {accuracy}"), "an accuracy is between 0 and 1");
            }
            Outcome::Loss(_) if self.target.is_some() || self.accuracies() == Some(true) => {
                return refuse(
                    "it has a loss and no accuracy".into(),
                    "without a target, losses are compared",
                );
            }
            Outcome::Loss(loss) if loss < 0.0 => {
                return refuse(
                    format!("its loss is {loss}"),
                    "only losses of 0 or more are compared by their ratio",
                );
            }
            Outcome::Accuracy(_) if self.accuracies() == Some(false) => {
                return refuse(
                    "it has an accuracy, and others have a loss".into(),
                    "compare sessions of one job",
                );
            }
            _ => {}
        }
        self.sessions.push(Session { outcome, ..session });
        Ok(())
    }

    /// What the mean accuracy may be below the one that is wanted; of a loss, the part by which it may be above.
    pub fn margin(&self) -> f64 {
        self.margin
    }

    /// Sessions of each setting that nothing diverges in.
    pub fn runs_per_setting(&self) -> u32 {
        self.runs_per_setting
    }

    /// Shares that are tried.
    pub fn max_settings(&self) -> u32 {
        self.max_settings
    }

    /// The accuracy that is wanted, where it was given.
    pub fn given_target(&self) -> Option<f64> {
        self.target
    }

    /// Sessions of the whole search, those that divergence spares too.
    pub fn most_sessions(&self) -> u32 {
        self.runs_per_setting * (self.max_settings + u32::from(self.target.is_none()))
    }

    /// Whether the sessions have accuracies; `None` before that is known.
    pub fn accuracies(&self) -> Option<bool> {
        let known = |session: &Session| match session.outcome {
            Outcome::Accuracy(_) => Some(true),
            Outcome::Loss(_) => Some(false),
            Outcome::Diverged => None,
        };
        self.sessions.iter().find_map(known)
    }

    /// All sessions so far, in their order.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// The settings so far, in their order.
    pub fn settings(&self) -> Vec<Setting> {
        self.replay().settings
    }

    /// The accuracy or loss that is wanted, once it is known, the margin not taken off.
    pub fn target(&self) -> Option<f64> {
        self.target.or_else(|| {
            let first = self.settings().into_iter().next()?;
            let done = first.diverged == 0 && first.scores.len() == self.runs_per_setting as usize;
            done.then(|| mean(&first.scores))
        })
    }

    /// Seconds and samples of all sessions so far.
    pub fn cost(&self) -> (f64, u64) {
        let seconds = self.sessions.iter().map(|session| session.seconds).sum();
        (seconds, self.sessions.iter().fold(0, |sum, session| sum.saturating_add(session.samples)))
    }

    /// What the result is worth; `None` before the search is over, and where times of too few settings are known.
    pub fn gain(&self) -> Option<Gain> {
        let Replay { settings, ask: Ask::Done(Some(best)) } = self.replay() else { return None };
        let points: Vec<(f64, f64)> =
            settings.iter().filter_map(|s| Some((s.fraction, s.seconds?))).collect();
        let at = |fraction: f64| points.iter().find(|(f, _)| *f == fraction).map(|(_, seconds)| *seconds);
        let (synchronous_s, extrapolated) = match at(1.0) {
            Some(seconds) => (seconds, false),
            None => (line(&points)?, true),
        };
        let best_s = at(best).unwrap_or(synchronous_s);
        let saved_s = synchronous_s - best_s;
        let recurrences = (saved_s > 0.0).then(|| self.cost().0 / saved_s);
        Some(Gain { synchronous_s, extrapolated, best_s, recurrences })
    }

    fn replay(&self) -> Replay {
        let mut settings = Vec::new();
        let mut sessions = self.sessions.as_slice();
        let mut setting = |fraction: f64| {
            let own = sessions.iter().take_while(|session| session.fraction == fraction).count();
            let (own, others) = sessions.split_at(own);
            sessions = others;
            Setting::of(fraction, own)
        };
        let target = match self.target {
            Some(target) => target,
            None => {
                let synchronous = setting(1.0);
                settings.push(synchronous.clone());
                if synchronous.diverged > 0 {
                    return Replay { settings, ask: Ask::Done(None) };
                }
                if let Some(run) = synchronous.lacks(self.runs_per_setting) {
                    return Replay { settings, ask: Ask::Run { fraction: 1.0, run } };
                }
                mean(&synchronous.scores)
            }
        };
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..self.max_settings {
            let fraction = 0.5 * (low + high);
            let mut next = setting(fraction);
            if next.diverged == 0
                && let Some(run) = next.lacks(self.runs_per_setting)
            {
                settings.push(next);
                return Replay { settings, ask: Ask::Run { fraction, run } };
            }
            let passed = next.diverged == 0 && self.is_good(mean(&next.scores), target);
            next.passed = Some(passed);
            settings.push(next);
            if passed { high = fraction } else { low = fraction }
        }
        Replay { settings, ask: Ask::Done(Some(high)) }
    }

    fn is_good(&self, score: f64, target: f64) -> bool {
        match self.accuracies() {
            Some(false) => score <= target * (1.0 + self.margin) + ROUNDING,
            _ => score >= target - self.margin - ROUNDING,
        }
    }
}

impl Setting {
    fn of(fraction: f64, sessions: &[Session]) -> Setting {
        let score = |session: &Session| match session.outcome {
            Outcome::Accuracy(score) | Outcome::Loss(score) => Some((score, session.seconds)),
            Outcome::Diverged => None,
        };
        let (scores, seconds): (Vec<f64>, Vec<f64>) = sessions.iter().filter_map(score).unzip();
        let diverged = (sessions.len() - scores.len()) as u32;
        let seconds = (!seconds.is_empty()).then(|| mean(&seconds));
        Setting { fraction, scores, diverged, seconds, passed: None }
    }

    /// The number of the next session, where more are to come.
    fn lacks(&self, runs: u32) -> Option<u32> {
        let done = self.scores.len() as u32;
        (done < runs).then_some(done)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The value at 1 of the line of least squares through points of two places or more.
fn line(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
    (spread > 0.0).then_some(y + slope * (1.0 - x))
}
