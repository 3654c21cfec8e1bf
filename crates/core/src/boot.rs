//! What a worker does before it can train, and what that takes.

use serde::{Deserialize, Serialize};

/// What a worker's start took, by its stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Boot {
    /// Seconds from the request for it until its session was open; 0 where it joined by hand.
    pub start_s: f64,
    /// Seconds of a Python script until it says what it trains; 0 for built-in models.
    pub importing_s: f64,
    /// Seconds in which data were read and the model was made.
    pub building_s: f64,
    /// Seconds of the first computation.
    pub compiling_s: f64,
}

impl Boot {
    /// Its stages by their names.
    pub fn stages(&self) -> [(&'static str, f64); 4] {
        let Boot { start_s, importing_s, building_s, compiling_s } = *self;
        [
            ("starting", start_s),
            ("importing", importing_s),
            ("building", building_s),
            ("compiling", compiling_s),
        ]
    }

    /// Seconds of all of them.
    pub fn total_s(&self) -> f64 {
        self.stages().iter().map(|(_, seconds)| seconds).sum()
    }

    /// It in words: `4.1 s: 0.3 s starting, 2.0 s importing, 0.1 s building, 1.7 s compiling`.
    pub fn sentence(&self) -> String {
        let stages = self.stages().map(|(name, seconds)| format!("{seconds:.1} s {name}"));
        format!("{:.1} s: {}", self.total_s(), stages.join(", "))
    }
}
