//! How many worker pods a job may have.

/// Allowed numbers of worker pods. There is at least one.
///
/// ```
/// use bellwether_operator::crd::Sizes;
/// let by_step = Sizes::new(2, 9, 3, vec![]);
/// assert_eq!((by_step.min(), by_step.max(), by_step.at_most(7)), (2, 8, Some(5)));
/// let listed = Sizes::new(1, 8, 1, vec![2, 4]);
/// assert_eq!((listed.min(), listed.max(), listed.at_most(7), listed.at_most(1)), (2, 4, Some(4), None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    min: u32,
    max: u32,
    step: u32,
    discrete: Vec<u32>,
}

impl Sizes {
    /// Sizes from `min` to `max`: every `step`-th, or these where any are listed. They have to rise within the limits.
    pub fn new(min: u32, max: u32, step: u32, discrete: Vec<u32>) -> Sizes {
        Sizes { min, max: max.max(min), step: step.max(1), discrete }
    }

    /// The smallest.
    pub fn min(&self) -> u32 {
        self.discrete.first().copied().unwrap_or(self.min)
    }

    /// The largest.
    pub fn max(&self) -> u32 {
        self.at_most(self.max).unwrap_or(self.min)
    }

    /// The largest that is not above `pods`; `None` where all are.
    pub fn at_most(&self, pods: u32) -> Option<u32> {
        if !self.discrete.is_empty() {
            return self.discrete.iter().copied().filter(|size| *size <= pods).max();
        }
        let above = pods.min(self.max).checked_sub(self.min)?;
        Some(self.min + above / self.step * self.step)
    }

    /// Whether all numbers between the smallest and the largest are allowed.
    pub fn are_contiguous(&self) -> bool {
        let all = self.max() - self.min() + 1;
        if self.discrete.is_empty() { self.step == 1 || all == 1 } else { self.discrete.len() as u32 == all }
    }
}
