//! How long something may take, from what it took.

use std::collections::BTreeMap;

use crate::membership::{Activity, Position};

/// Seconds, and how many times what is usual, after which people are told.
const WARN: (f64, f64) = (0.5, 2.0);

/// The same after which a member is lost.
const LOSE: (f64, f64) = (1.0, 3.0);

/// Seconds that something may take that was never done before.
const FIRST_S: f64 = 10.0;

/// How often patience may double.
const PATIENCE_MAX: f64 = 16.0;

/// How many times the longest recent silence a member may be silent before people are told, and before it is lost.
const SILENCE: f64 = 1.5;
const LOST: f64 = 2.0;

/// How many times the heartbeat's time-out that may be at most.
const LOST_MAX: f64 = 4.0;

/// Seconds without a false alarm after which patience is halved again.
const CALM_S: f64 = 600.0;

/// What was measured of how long things take.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// The longest that is usual for any member.
    usual_s: BTreeMap<Activity, f64>,
    /// Grows when a member was late and got on by itself.
    patience: f64,
    wrong_s: f64,
    /// What an answer takes, the longest of late.
    answer_s: f64,
    /// The longest recent silence of a member that was asked, and then spoke.
    silence_s: f64,
    /// When that was.
    spoke_s: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            usual_s: BTreeMap::new(),
            patience: 1.0,
            wrong_s: 0.0,
            answer_s: 0.0,
            silence_s: 0.0,
            spoke_s: 0.0,
        }
    }
}

impl Limits {
    /// A member told what something takes it.
    pub(super) fn learn(&mut self, position: &Position) {
        if let Some(told_s) = position.usual_s {
            let known_s = self.usual_s.entry(position.activity).or_insert(told_s);
            // Slowly forgets those who were slower.
            *known_s = told_s.max(*known_s - 0.05 * (*known_s - told_s));
        }
    }

    /// A question was answered after this many seconds.
    pub(super) fn answered(&mut self, seconds: f64) {
        self.answer_s = seconds.max(0.9 * self.answer_s);
    }

    /// Seconds that an answer may take.
    pub(super) fn answer_s(&self) -> f64 {
        5.0 * self.answer_s
    }

    /// A member that was asked spoke after this many seconds of silence.
    pub(super) fn spoke(&mut self, after_s: f64, now_s: f64) {
        if after_s >= self.silence_s {
            (self.silence_s, self.spoke_s) = (after_s, now_s);
        }
    }

    /// Seconds that a living member may be silent, from how long that happened recently.
    pub(super) fn silence_s(&self) -> f64 {
        SILENCE * self.silence_s
    }

    /// Seconds of silence after which a member is lost: longer than `timeout_s` where living members were nearly as
    /// silent.
    pub(super) fn loss_s(&self, timeout_s: f64) -> f64 {
        // For people, in tenths of a second.
        let longer_s = (10.0 * LOST * self.silence_s).ceil() / 10.0;
        longer_s.clamp(timeout_s, LOST_MAX * timeout_s)
    }

    /// A member was late and got on by itself.
    pub(super) fn was_wrong(&mut self, now_s: f64) {
        self.patience = (2.0 * self.patience()).min(PATIENCE_MAX);
        self.wrong_s = now_s;
    }

    /// Time passes without a late member.
    pub(super) fn calm_down(&mut self, now_s: f64) {
        if now_s - self.wrong_s > CALM_S {
            self.patience = (0.5 * self.patience).max(1.0);
            self.wrong_s = now_s;
        }
        if now_s - self.spoke_s > CALM_S {
            (self.silence_s, self.spoke_s) = (0.5 * self.silence_s, now_s);
        }
    }

    pub(super) fn patience(&self) -> f64 {
        self.patience
    }

    /// Seconds after which people are told of a member that stands here, and after which it is lost. `expected_s` is
    /// what a model predicts of a step.
    pub(super) fn of(&self, position: &Position, expected_s: Option<f64>) -> (f64, f64) {
        if let Some(allowance_s) = position.allowance_s {
            return (allowance_s, allowance_s);
        }
        let known_s = self.usual_s.get(&position.activity).copied();
        let Some(usual_s) = position.usual_s else {
            // The first time takes longer, also where others have done it before.
            let usual_s = known_s.or(expected_s).unwrap_or(0.0);
            return (FIRST_S + WARN.1 * usual_s, 3.0 * (FIRST_S + LOSE.1 * usual_s));
        };
        let usual_s = usual_s.max(known_s.unwrap_or(0.0));
        let (warn_s, lose_s) = (WARN.0 + WARN.1 * usual_s, LOSE.0 + LOSE.1 * usual_s);
        (self.patience * warn_s, self.patience * lose_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computing(usual_s: Option<f64>) -> Position {
        Position { activity: Activity::Computing, usual_s, ..Position::default() }
    }

    #[test]
    fn limits_follow_what_was_measured_and_the_first_time_has_an_allowance() {
        let mut limits = Limits::default();
        assert_eq!(limits.of(&computing(None), None), (10.0, 30.0));
        assert_eq!(limits.of(&computing(None), Some(2.0)), (14.0, 48.0));
        assert_eq!(limits.of(&computing(Some(0.25)), Some(2.0)), (1.0, 1.75));
        limits.learn(&computing(Some(2.0)));
        assert_eq!(limits.of(&computing(Some(0.25)), None), (4.5, 7.0), "another is as slow");
        let building =
            Position { activity: Activity::Building, allowance_s: Some(77.0), ..Position::default() };
        assert_eq!(limits.of(&building, None), (77.0, 77.0));
    }

    #[test]
    fn a_member_that_was_silent_and_lived_makes_patient_for_a_while() {
        let mut limits = Limits::default();
        assert_eq!((limits.silence_s(), limits.loss_s(5.0)), (0.0, 5.0));
        limits.spoke(0.4, 1.0);
        assert_eq!(limits.loss_s(5.0), 5.0, "no member was silent for long");
        limits.spoke(4.0, 2.0);
        limits.spoke(1.0, 3.0);
        assert_eq!((limits.silence_s(), limits.loss_s(5.0)), (6.0, 8.0));
        limits.spoke(40.0, 4.0);
        assert_eq!(limits.loss_s(5.0), 20.0, "a machine that is dead is lost some day");
        limits.calm_down(500.0);
        assert_eq!(limits.silence_s(), 60.0);
        limits.calm_down(700.0);
        assert_eq!(limits.silence_s(), 30.0);
    }

    #[test]
    fn a_false_alarm_makes_patient_for_a_while() {
        let mut limits = Limits::default();
        limits.was_wrong(5.0);
        assert_eq!(limits.of(&computing(Some(0.25)), None), (2.0, 3.5));
        (0..9).for_each(|_| limits.was_wrong(6.0));
        assert_eq!(limits.patience(), PATIENCE_MAX);
        limits.calm_down(500.0);
        assert_eq!(limits.patience(), PATIENCE_MAX);
        limits.calm_down(700.0);
        assert_eq!(limits.patience(), PATIENCE_MAX / 2.0);
    }
}
