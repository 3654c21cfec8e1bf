//! How long processes may take to leave: by what is known of their steps and their state.

use std::time::Duration;

/// How long a coordinator may take to give its machines back: SkyPilot ends one cluster after the other.
pub(super) const RELEASING_PATIENCE: Duration = Duration::from_secs(600);

/// Bytes of a parameter with what an optimizer keeps for it.
const PARAMETER_BYTES: f64 = 12.0;

/// Steps that may pass until all have reached the same boundary, the one in flight among them.
const STEPS: f64 = 4.0;

/// Patience with processes that were told to leave. News of them, such as a step or a checkpoint, restart it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Patience {
    /// What every job has, beside its steps and its state.
    pub floor: Duration,
    /// What a step may take as long as none was measured.
    pub first_step: Duration,
    /// Bytes per second at which the state is handed over and written at least.
    pub state_bytes_per_s: f64,
    /// A run that has news for this many times its patience and still does not leave never will.
    pub most: u32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            floor: Duration::from_secs(30),
            first_step: Duration::from_secs(600),
            state_bytes_per_s: 10e6,
            most: 10,
        }
    }
}

impl Patience {
    /// Without news, with processes whose step takes this long (`None` if that is unknown) and whose model has this
    /// many parameters.
    pub(super) fn with(&self, step_s: Option<f64>, parameters: u64) -> Duration {
        let steps_s = step_s.map_or(self.first_step.as_secs_f64(), |step_s| STEPS * step_s);
        let state_s = parameters as f64 * PARAMETER_BYTES / self.state_bytes_per_s;
        self.floor + Duration::try_from_secs_f64(steps_s + state_s).unwrap_or(Duration::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_steps_and_large_states_get_more_time() {
        let patience = Patience::default();
        let seconds = |step_s, parameters| patience.with(step_s, parameters).as_secs();
        assert_eq!(seconds(Some(0.01), 1000), 30);
        assert_eq!(seconds(Some(40.0), 1000), 190, "four steps of 40 s");
        assert_eq!(seconds(Some(0.01), 1_000_000_000), 1230, "12 GB at 10 MB/s");
        assert_eq!(seconds(None, 0), 630);
        assert!(seconds(Some(1e300), u64::MAX) > 1 << 40);
    }
}
