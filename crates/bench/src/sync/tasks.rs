//! What is learnt where accuracy is measured.

use super::WORKERS;

/// A task with its recipe: stochastic gradient descent with momentum 0.9, the rate divided by ten after half and after
/// three quarters of the steps, as is usual for image classification.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) name: &'static str,
    model: &'static str,
    data: &'static str,
    pub(super) steps: u64,
    /// Learning rates of the whole batch: one in the middle of those with which synchronous training works, and one at
    /// their upper edge. Found with synchronous runs of other seeds on a ladder of doublings.
    pub(super) rates: &'static [f64],
    /// What guessing would reach, 0…1.
    pub(super) chance: f64,
}

pub(super) const TASKS: [Task; 2] = [
    Task {
        name: "digits",
        model: "kind = \"mlp\"\nhidden = [256, 128]",
        data: "kind = \"digits\"\nheld_out = 0.2",
        steps: 690,
        rates: &[0.1, 0.2],
        chance: 0.1,
    },
    Task {
        name: "teacher",
        model: "kind = \"convnet\"\nfilters = [8, 16]\nhidden = [64, 32]",
        data: "kind = \"teacher\"\nsamples = 12000\nfeatures = 16\nclasses = 4\nnoise = 0.2\nheld_out = 0.25",
        steps: 700,
        rates: &[0.05, 0.1],
        chance: 0.25,
    },
];

impl Task {
    /// The job's file.
    pub(super) fn text(&self, rate: f64, seed: u64) -> String {
        let Task { model, data, steps, .. } = self;
        let (half, quarter) = (steps / 2, steps / 4);
        format!(
            "name = \"bench\"\nseed = {seed}\nsteps = {steps}\n[model]\n{model}\n[data]\n{data}\n\
             [batch]\nsize = 64\nvirtual_nodes = {WORKERS}\n\
             [optimizer]\nkind = \"sgd\"\nlearning_rate = {rate}\nmomentum = 0.9\nweight_decay = 0.0005\n\
             [schedule]\nkind = \"step\"\nat = [{half}, {}]\nfactor = 0.1\n",
            half + quarter
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_jobs() {
        for task in &TASKS {
            let job = bellwether_core::parse::job(&task.text(0.1, 3), "bench", &[]).unwrap();
            assert_eq!((job.seed, job.steps), (3, Some(task.steps)));
        }
    }
}
