//! Which steps of a run tell how long such steps take.

/// Steps at the beginning that do not count: memory and caches are cold.
pub const WARM_UP_STEPS: usize = 10;

/// Steps after a change of the number of workers that do not count.
pub const SETTLING_STEPS: usize = 2;

/// Fewer steps tell nothing, neither to learn from nor to compare with.
pub const STEPS_MIN: usize = 5;

/// Follows the steps of a run, one after the other, to find those that tell something.
///
/// ```
/// use bellwether_model::observed::{Calm, WARM_UP_STEPS};
/// let mut calm = Calm::default();
/// let warm = (0..20).map(|_| calm.tells(1, 0)).collect::<Vec<bool>>();
/// assert!(!warm[WARM_UP_STEPS - 1] && warm[WARM_UP_STEPS]);
/// // A second worker receives state, joins, and has settled from its third step on.
/// assert_eq!([(1, 1), (2, 0), (2, 0), (2, 0)].map(|(workers, shadows)| calm.tells(workers, shadows)), [false, false, false, true]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calm {
    workers: u32,
    /// Steps since something changed.
    steps: usize,
    /// Steps since the beginning.
    all: usize,
}

impl Calm {
    /// For how many steps nothing has changed, the one that is seen now included; 0 while newcomers (`shadows`)
    /// receive state, who use processors and links, too.
    pub fn see(&mut self, workers: u32, shadows: u32) -> usize {
        if shadows > 0 || workers != self.workers {
            self.steps = 0;
        }
        self.workers = workers;
        self.steps += usize::from(shadows == 0);
        self.all += 1;
        self.steps
    }

    /// Whether the step that is seen now tells how long such steps take: workers are warm and have settled.
    pub fn tells(&mut self, workers: u32, shadows: u32) -> bool {
        self.see(workers, shadows) > SETTLING_STEPS && self.all > WARM_UP_STEPS
    }
}
