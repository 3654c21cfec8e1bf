//! The jobs that are measured, as the text of their files.

use bellwether_core::units::Bytes;

/// A job on the synthetic device.
#[derive(Debug, Clone)]
pub(super) struct Synthetic {
    /// Milliseconds that one virtual node takes, whatever its samples.
    pub(super) step_ms: u64,
    pub(super) parameters: Bytes,
    pub(super) virtual_nodes: u32,
    /// Steps of the run; most runs are ended from outside.
    pub(super) steps: u64,
    /// Adam keeps two slots per parameter, plain SGD none.
    pub(super) adam: bool,
}

/// More steps than any measurement waits for.
pub(super) const ENDLESS: u64 = 100_000_000;

impl Synthetic {
    pub(super) fn text(&self) -> String {
        let Synthetic { step_ms, parameters, virtual_nodes, steps, adam } = self;
        let optimizer = if *adam { "adam" } else { "sgd" };
        format!(
            "name = \"bench\"\nseed = 1\nsteps = {steps}\nworkers = 1\n\
             [model]\nkind = \"synthetic\"\nstep_time = \"{step_ms}ms\"\nparameters = \"{parameters}\"\n\
             [data]\nkind = \"indices\"\nsamples = 1000000\n\
             [batch]\nsize = {virtual_nodes}\nvirtual_nodes = {virtual_nodes}\n\
             [optimizer]\nkind = \"{optimizer}\"\nlearning_rate = 0.001\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_a_job() {
        let parameters = Bytes(64 << 20);
        let job = Synthetic { step_ms: 20, parameters, virtual_nodes: 8, steps: 5, adam: true };
        let job = bellwether_core::parse::job(&job.text(), "bench", &[]).unwrap();
        assert_eq!((job.batch.virtual_nodes, job.steps), (8, Some(5)));
    }
}
