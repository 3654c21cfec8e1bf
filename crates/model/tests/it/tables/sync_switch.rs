//! The published runs that switch from synchronous to asynchronous training.

use bellwether_core::InputError;
use bellwether_model::hybrid::{Phase, time_s};

use super::data;

const RUNS: &str = data!("sync-switch/runs.csv");
const SET_UPS: &str = data!("sync-switch/set-ups.csv");

/// Runs of one network on one cluster.
pub struct SetUp {
    pub number: u32,
    pub name: String,
    pub workers: u32,
    pub work_units: f64,
    /// Units per second in synchronous and in asynchronous phases: of the pure runs, or as printed.
    pub rates: [f64; 2],
    pub runs: Vec<Run>,
}

/// The mean of several runs.
pub struct Run {
    /// Share of the work before the switch: 1 for pure synchrony, 0 for pure asynchrony.
    pub switch_at: f64,
    pub accuracy_percent: f64,
    pub time_s: f64,
}

impl SetUp {
    /// Runs that do switch.
    pub fn mixed(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.switch_at > 0.0 && run.switch_at < 1.0)
    }

    /// The predicted time of a run, without time for the switch.
    pub fn predicted_s(&self, run: &Run) -> Result<f64, InputError> {
        let [bsp, asp] = self.rates;
        let phases = [
            Phase { share: run.switch_at, units_per_s: bsp },
            Phase { share: 1.0 - run.switch_at, units_per_s: asp },
        ];
        time_s(self.work_units, &phases, 0.0)
    }

    /// Predicted over measured time less 1.
    pub fn error(&self, run: &Run) -> Result<f64, InputError> {
        Ok(self.predicted_s(run)? / run.time_s - 1.0)
    }
}

fn number(cell: &str) -> f64 {
    cell.parse().expect("a number")
}

/// All set-ups with their runs.
pub fn set_ups() -> Vec<SetUp> {
    let rows = |text: &'static str| text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let all: Vec<Vec<&str>> = rows(RUNS).collect();
    rows(SET_UPS)
        .map(|cells| {
            let runs: Vec<Run> = all
                .iter()
                .filter(|run| run[0] == cells[0])
                .map(|run| Run {
                    switch_at: number(run[2]),
                    accuracy_percent: number(run[4]),
                    time_s: number(run[6]),
                })
                .collect();
            let (workers, work_units) = (cells[3].parse().expect("a count"), number(cells[5]));
            let pure = |at: f64| {
                let run = runs.iter().find(|run| run.switch_at == at).expect("a pure run");
                work_units / run.time_s
            };
            let rates = match cells[6] {
                "" => [pure(1.0), pure(0.0)],
                steps_per_s => [number(steps_per_s) * f64::from(workers), number(cells[7])],
            };
            let name = format!("{}, {}, {} {}", cells[1], cells[2], workers, cells[4]);
            SetUp { number: cells[0].parse().expect("a number"), name, workers, work_units, rates, runs }
        })
        .collect()
}
