//! Stub until the real one is merged.
use crate::rescale::ObservedStep;
use bellwether_core::prediction::*;
/// Stub.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    kinds: std::collections::BTreeMap<String, (u64, u32, f64)>,
}
impl Observed {
    /// Stub.
    pub fn new(_speeds: std::collections::BTreeMap<String, f64>) -> Observed {
        Observed::default()
    }
    /// Stub.
    pub fn describe(&mut self, kind: &str, batch: u64, nodes: u32, _bytes: u64, node_s: Option<f64>) {
        self.kinds.entry(kind.into()).or_insert((batch, nodes, node_s.unwrap_or(1.0)));
    }
    /// Stub.
    pub fn observe(&mut self, _kind: &str, _workers: u32, _speed: f64, _steps: &[ObservedStep]) {}
}
impl StepModel for Observed {
    fn predict(&self, job: &JobDescription, c: &Configuration) -> Result<Prediction, String> {
        let (batch, nodes, node_s) = self.kinds.get(&job.model).copied().ok_or("unknown")?;
        if c.workers() == 0 || c.workers() > nodes {
            return Err("too many workers".into());
        }
        let step_s = f64::from(nodes.div_ceil(c.workers())) * node_s;
        let rate = batch as f64 / step_s;
        Ok(Prediction {
            examples_per_s: rate,
            low: rate,
            high: rate,
            step_s,
            bottleneck: Bottleneck::Compute,
            validity: Validity::Interpolated,
        })
    }
}
