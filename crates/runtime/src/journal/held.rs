//! Commits that follow each other wait for one another, so that a long run has not a line for every few steps.

use bellwether_core::record::{Event, Line};

use super::joined;

/// Seconds after its first line in which a journal holds nothing back: an observer of a young run sees every step.
const YOUNG_S: f64 = 60.0;

/// For this part of the journal's age a commit waits for the next, ...
const SHARE: f64 = 1e-3;

/// ... and for this many seconds at most.
const LONGEST_S: f64 = 1.0;

/// The last commits as one line, which may become longer.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// When the first line came.
    began_s: Option<f64>,
    /// The line, and when it began to wait.
    commits: Option<(f64, Line)>,
}

impl Held {
    /// Takes a line in; returns those that are to be written now, in order.
    pub(super) fn take(&mut self, line: Line) -> impl Iterator<Item = Line> + use<> {
        let now_s = line.time_s;
        self.began_s.get_or_insert(now_s);
        let (mut before, mut now) = (None, None);
        if let Some((_, held)) = &mut self.commits
            && joined(&mut held.event, &line.event)
        {
            held.time_s = now_s;
        } else {
            before = self.release();
            match line.event {
                Event::Committed { .. } => self.commits = Some((now_s, line)),
                _ => now = Some(line),
            }
        }
        [before, now, self.due(now_s)].into_iter().flatten()
    }

    /// What has waited for long enough.
    pub(super) fn due(&mut self, now_s: f64) -> Option<Line> {
        let (since_s, _) = self.commits.as_ref()?;
        let age_s = now_s - self.began_s.unwrap_or(now_s);
        let longest_s = if age_s < YOUNG_S { 0.0 } else { (age_s * SHARE).min(LONGEST_S) };
        // The clock may be set back.
        let waits = (0.0..longest_s).contains(&(now_s - since_s));
        if waits { None } else { self.release() }
    }

    /// What waits, whether its time is over or not.
    pub(super) fn release(&mut self) -> Option<Line> {
        self.commits.take().map(|(_, line)| line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(time_s: f64, step: u64) -> Line {
        Line { time_s, event: Event::Committed { first: step, last: step, accumulation: 1 } }
    }

    fn spans(lines: &[Line]) -> Vec<(u64, u64)> {
        let span = |line: &Line| match line.event {
            Event::Committed { first, last, .. } => Some((first, last)),
            _ => None,
        };
        lines.iter().filter_map(span).collect()
    }

    #[test]
    fn ten_million_steps_are_some_lines_per_thousandth_of_their_time() {
        let (mut held, mut lines, steps) = (Held::default(), Vec::new(), 10_000_000);
        (0..steps).for_each(|step| lines.extend(held.take(commit(1e9 + step as f64 * 2e-3, step))));
        lines.extend(held.release());
        // 20,000 s: a line for each of 30,000 steps of the first minute, 1,000 per e-fold up to 1,000 s, one per
        // second then.
        assert!((48_000..56_000).contains(&lines.len()), "{}", lines.len());
        let spans = spans(&lines);
        assert!(spans.windows(2).all(|pair| pair[1].0 == pair[0].1 + 1));
        assert_eq!((spans[0], spans[spans.len() - 1].1), ((0, 0), steps - 1));
        assert!(lines.windows(2).all(|pair| pair[1].time_s - pair[0].time_s < 1.1 * LONGEST_S));
    }

    #[test]
    fn nothing_comes_before_the_commits_that_it_follows() {
        let mut held = Held::default();
        assert_eq!(held.take(commit(0.0, 0)).count(), 1, "a young run");
        assert_eq!(held.take(commit(1000.0, 1)).count(), 0);
        assert_eq!(held.take(commit(1000.1, 2)).count(), 0);
        let end = Line { time_s: 1000.2, event: Event::RolledBack { to: 1 } };
        let lines: Vec<Line> = held.take(end.clone()).collect();
        assert_eq!((spans(&lines), lines.last()), (vec![(1, 2)], Some(&end)));
        assert_eq!(lines[0].time_s, 1000.1, "when the last of them was committed");
        // Of another history.
        assert_eq!(held.take(commit(1000.3, 1)).count(), 0);
        assert_eq!(spans(&held.take(commit(1000.4, 7)).collect::<Vec<_>>()), [(1, 1)]);
        assert_eq!(held.due(1001.3), None);
        assert_eq!(held.due(1001.5).map(|line| spans(&[line])), Some(vec![(7, 7)]));
    }

    #[test]
    fn a_clock_that_is_set_back_holds_nothing_up() {
        let mut held = Held::default();
        held.take(commit(0.0, 0)).for_each(drop);
        assert_eq!(held.take(commit(5000.0, 1)).count(), 0);
        assert!(held.due(4000.0).is_some());
    }
}
