//! How long a workload computes between the tensors that it takes and gives: what a profile of training through
//! parameter servers is made of.
//!
//! The order of the calls is the workload's own and the same in every gradient; how long they wait is the network's
//! doing. So a record holds neither transfers nor waiting, but only the computing between the calls.

use std::time::Instant;

use bellwether_core::record::Call;
use serde::{Deserialize, Serialize};

use crate::workload::{TensorExchange, WorkloadError};

/// One gradient by parts: the calls in order, and the computing around them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PartsRecord {
    /// The calls.
    pub calls: Vec<Call>,
    /// Seconds of computing before each call, and after the last: one more than there are calls.
    pub compute_s: Vec<f64>,
}

/// Parts whose calls are timed.
pub struct TimedExchange<'a> {
    parts: &'a mut dyn TensorExchange,
    record: PartsRecord,
    computes_since: Instant,
}

impl<'a> TimedExchange<'a> {
    /// Computing begins now.
    pub fn new(parts: &'a mut dyn TensorExchange) -> Self {
        TimedExchange { parts, record: PartsRecord::default(), computes_since: Instant::now() }
    }

    /// Computing ends now.
    pub fn finish(mut self) -> PartsRecord {
        self.computed();
        self.record
    }

    fn computed(&mut self) {
        self.record.compute_s.push(self.computes_since.elapsed().as_secs_f64());
    }

    /// Carries a call out while nothing is computed.
    fn call<T>(&mut self, call: Call, work: impl FnOnce(&mut dyn TensorExchange) -> T) -> T {
        self.computed();
        self.record.calls.push(call);
        let result = work(self.parts);
        self.computes_since = Instant::now();
        result
    }
}

impl TensorExchange for TimedExchange<'_> {
    fn pull(&mut self, tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
        self.call(Call::Take(tensor as u32), |parts| parts.pull(tensor, out))
    }

    fn push(&mut self, tensor: usize, gradient: &[f32]) -> Result<(), WorkloadError> {
        self.call(Call::Give(tensor as u32), |parts| parts.push(tensor, gradient))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Slow;

    impl TensorExchange for Slow {
        fn pull(&mut self, _tensor: usize, out: &mut [f32]) -> Result<(), WorkloadError> {
            std::thread::sleep(Duration::from_millis(30));
            out.fill(1.0);
            Ok(())
        }

        fn push(&mut self, tensor: usize, _gradient: &[f32]) -> Result<(), WorkloadError> {
            Err(WorkloadError::new(format!("no {tensor}")))
        }
    }

    #[test]
    fn computing_is_recorded_and_waiting_is_not() {
        let (mut slow, mut out) = (Slow, [0.0; 3]);
        let mut timed = TimedExchange::new(&mut slow);
        timed.pull(2, &mut out).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(timed.push(5, &out), Err(WorkloadError::new("no 5")));
        let record = timed.finish();
        assert_eq!((record.calls, out), (vec![Call::Take(2), Call::Give(5)], [1.0; 3]));
        assert_eq!(record.compute_s.len(), 3);
        // Nothing but the sleep is computing; the machine may be busy.
        assert!(record.compute_s[0] < 0.02 && record.compute_s[1] >= 0.02, "{:?}", record.compute_s);
        assert!(record.compute_s.iter().sum::<f64>() < 0.05 + 0.1, "{:?}", record.compute_s);
    }
}
