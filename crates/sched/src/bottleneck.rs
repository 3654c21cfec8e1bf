//! Whether parameter servers hold asynchronous workers up, and what would help.
//!
//! ```text
//! own speed of a worker  1/(compute + e)        e: the mean of the three quickest exchanges of the run
//! bottleneck             X < 0.9 sum of the own speeds, in three windows in a row;   over: X > 0.95 of it
//! what would help        X(W, D) by mean-value analysis for fixed times, D so that X(W, D) is what was measured:
//!                        another server X(W, D M/(M + 1)),  fewer workers the smallest n with X(n, D) >= 0.97 X
//! ```
//!
//! | symbol | meaning                                                                        | unit |
//! |--------|--------------------------------------------------------------------------------|------|
//! | X      | units of all workers together, in a window of ten units of each worker or more | 1/s  |
//! | e      | exchange of a unit that waits for no other one: neither computing nor samples   | s    |
//! | D      | time of a unit at the busiest server                                           | s    |
//! | W, M   | workers, parameter servers                                                     | 1    |
//!
//! Source: the deviation of the measured speed from the sum of the workers' own as the sign of a bottleneck is that of
//! Li, Walls and Guo, ICDCS 2020; the quickest exchanges, the windows and the advice are ours. Workers are taken to
//! have links alike: one with a slower link than the others looks as if it waited. Where every exchange of a run waits
//! for others, from the first on, the quickest have waited, too, and the alarm does not come; as workers of a run do
//! not come all at once, the first ones usually see the servers idle.

use std::collections::BTreeMap;
use std::fmt;

use bellwether_model::queueing::{ClosedNetwork, low_variance};

/// Part of the workers' own speeds below which servers hold them up, ...
const ALARM: f64 = 0.9;
/// ... and above which they do not any more.
const CALM: f64 = 0.95;
/// Windows in a row that say the same.
const WINDOWS: u32 = 3;
/// Units of each worker in a window.
const UNITS: u32 = 10;
/// A window is at least this long.
const WINDOW_S: f64 = 0.25;
/// Quickest exchanges of which the mean is taken.
const QUICKEST: usize = 3;
/// As many workers as do this part of the work of all do as much.
const AS_MUCH: f64 = 0.97;

/// A unit of work of one worker: a pull, the gradient of some virtual nodes, and a push.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// Who did it.
    pub worker: u64,
    /// Seconds from its begin to the last acknowledgement.
    pub duration_s: f64,
    /// Seconds of it in which the worker computed or waited for samples.
    pub own_s: f64,
}

/// Servers hold workers up, or do not any more.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// They do.
    Alarm(Alarm),
    /// They did, and do not any more.
    Over,
}

/// How much servers hold workers up.
#[derive(Debug, Clone, PartialEq)]
pub struct Alarm {
    /// Units per second of all workers together, as measured.
    pub measured_per_s: f64,
    /// The same if no worker waited for another one.
    pub own_per_s: f64,
    /// Workers.
    pub workers: u32,
    /// Parameter servers.
    pub servers: u32,
    /// What another server would make of it.
    pub with_another_server_per_s: Option<f64>,
    /// Workers that do as much.
    pub enough_workers: u32,
}

/// Watches the units of a run.
#[derive(Debug, Default)]
pub struct ServerWatch {
    /// The quickest exchanges through the present servers, ascending.
    quickest_s: Vec<f64>,
    window: Window,
    /// Windows in a row that say the other than what was told last.
    in_a_row: u32,
    is_told: bool,
}

#[derive(Debug, Default)]
struct Window {
    servers: u32,
    elapsed_s: f64,
    /// Of each worker its units, and the seconds of them in which it computed or waited for samples.
    each: BTreeMap<u64, (u32, f64)>,
}

impl ServerWatch {
    /// Takes in the units of a step that took `elapsed_s`, through this many servers. Answers when that changes what is
    /// known of a bottleneck.
    pub fn observe(&mut self, elapsed_s: f64, servers: u32, units: &[Unit]) -> Option<News> {
        if self.window.servers != servers {
            self.quickest_s.clear();
            self.window = Window { servers, ..Window::default() };
        }
        self.quickest_s.extend(units.iter().map(|unit| (unit.duration_s - unit.own_s).max(0.0)));
        self.quickest_s.sort_unstable_by(f64::total_cmp);
        self.quickest_s.truncate(QUICKEST);
        self.window.elapsed_s += elapsed_s;
        for unit in units {
            let (count, own_s) = self.window.each.entry(unit.worker).or_default();
            (*count, *own_s) = (*count + 1, *own_s + unit.own_s);
        }
        let Window { elapsed_s, each, .. } = &self.window;
        if *elapsed_s < WINDOW_S || each.len() < 2 || each.values().any(|(count, _)| *count < UNITS) {
            return None;
        }
        let window = std::mem::replace(&mut self.window, Window { servers, ..Window::default() });
        self.judge(&window)
    }

    /// What a worker would do per second if it waited for no other one.
    fn own_per_s(&self, (count, own_s): (u32, f64)) -> f64 {
        let exchange_s = self.quickest_s.iter().sum::<f64>() / self.quickest_s.len().max(1) as f64;
        1.0 / (own_s / f64::from(count) + exchange_s)
    }

    fn judge(&mut self, window: &Window) -> Option<News> {
        let own_per_s: f64 = window.each.values().map(|done| self.own_per_s(*done)).sum();
        let units: u32 = window.each.values().map(|(count, _)| count).sum();
        let workers = window.each.len() as u32;
        let measured_per_s = f64::from(units) / window.elapsed_s;
        let part = measured_per_s / own_per_s;
        let is_other = if self.is_told { part > CALM } else { part < ALARM };
        self.in_a_row = if is_other { self.in_a_row + 1 } else { 0 };
        if self.in_a_row < WINDOWS {
            return None;
        }
        (self.in_a_row, self.is_told) = (0, !self.is_told);
        if !self.is_told {
            return Some(News::Over);
        }
        let lone_s = f64::from(workers) / own_per_s;
        let servers = window.servers;
        let (another, enough) = advice(lone_s, measured_per_s, workers, servers);
        Some(News::Alarm(Alarm {
            measured_per_s,
            own_per_s,
            workers,
            servers,
            with_another_server_per_s: another,
            enough_workers: enough,
        }))
    }

    /// Other workers train from now on: what is not a whole window yet says nothing of them.
    pub fn changed(&mut self) {
        self.window = Window { servers: self.window.servers, ..Window::default() };
        self.in_a_row = 0;
    }
}

/// Units per second with another server, and how many workers do as much as all.
fn advice(lone_s: f64, measured_per_s: f64, workers: u32, servers: u32) -> (Option<f64>, u32) {
    let throughput = |demand_s: f64, count: u32| {
        let network = ClosedNetwork::of_lone_step(lone_s, &[demand_s]).ok()?;
        low_variance(&network, 0.0, count).ok().map(|solution| solution.throughput_per_s)
    };
    // More time at the server makes it slower, down to the reciprocal of that time.
    let (mut low_s, mut high_s) = (0.0, lone_s.min(1.0 / measured_per_s));
    for _ in 0..60 {
        let middle_s = 0.5 * (low_s + high_s);
        match throughput(middle_s, workers) {
            Some(predicted) if predicted > measured_per_s => low_s = middle_s,
            _ => high_s = middle_s,
        }
    }
    let another = throughput(high_s * f64::from(servers) / f64::from(servers + 1), workers);
    let does_as_much =
        |count: &u32| throughput(high_s, *count).is_some_and(|one| one >= AS_MUCH * measured_per_s);
    let enough = (1..=workers).find(does_as_much).unwrap_or(workers);
    (another.filter(|another| *another > measured_per_s / AS_MUCH), enough)
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            News::Alarm(alarm) => alarm.fmt(f),
            News::Over => f.write_str("parameter servers do not hold the workers up any more"),
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Alarm { measured_per_s, own_per_s, workers, servers, with_another_server_per_s, enough_workers } =
            self;
        let word = if *servers == 1 { "server holds" } else { "servers hold" };
        let part = 100.0 * measured_per_s / own_per_s;
        write!(
            f,
            "{servers} parameter {word} {workers} workers up: they do {measured_per_s:.3} units/s, {part:.0} % of "
        )?;
        write!(f, "the {own_per_s:.3} that they would do if none waited for another")?;
        if let Some(another) = with_another_server_per_s {
            let gain = 100.0 * (another / measured_per_s - 1.0);
            write!(f, "; another server would give about {gain:.0} % more")?;
        }
        if enough_workers < workers {
            write!(f, "; {enough_workers} workers do as much")?;
        }
        Ok(())
    }
}
