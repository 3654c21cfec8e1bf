//! The forms that an exchange may take as replicas are added, and one fitted law of each.

use crate::elastic::overlapped;

/// How the time of an exchange grows with the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `a + b (K - 2)` within a node and, with other parameters, over several: the form of Pollux.
    Replicas,
    /// `a 2 (K - 1)/K + b (K - 1)`: the bandwidth of a ring, and the latency of each of its hops.
    Ring,
    /// `a + b ln(K/2)`: the latency of a tree, or waiting for the slowest of K with exponential tails.
    Logarithm,
    /// A ring in each node, and a ring of nodes after it, which adds `a 2 (N - 1)/N + b (N - 1)`.
    Hierarchy,
    /// A ring in one node; over several `a (K/N)^u (N/2)^v`, times `e^w` from the third node on: the replicas of a
    /// node share its link, and two nodes are a case of their own.
    Shared,
}

/// A form with its parameters: `gamma` and seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    pub(super) form: Form,
    /// Its part in the mean of the laws.
    pub(super) weight: f64,
    /// In the order of [`PARAMETERS`].
    pub(super) values: [f64; 7],
    /// In the order of [`EXPONENTS`]; 0 for every form but [`Form::Shared`].
    pub(super) exponents: [f64; 3],
}

/// Names and units of a law's parameters, in order.
pub(super) const PARAMETERS: [(&str, &str); 7] = [
    ("alpha_c", "s"),
    ("beta_c", "s/sample"),
    ("alpha_r", "s"),
    ("beta_r", "s"),
    ("alpha_n", "s"),
    ("beta_n", "s"),
    ("gamma", "1"),
];

/// Bounds of these exponents: a thousand nodes change a time by 10 orders of magnitude at most.
pub(super) const EXPONENT_RANGE: (f64, f64) = (-3.0, 3.0);

/// Names of the exponents of [`Form::Shared`]: u, v and w.
pub(super) const EXPONENTS: [&str; 3] = ["sharing", "growth", "beyond_two"];

impl Form {
    /// Every form.
    pub const ALL: [Form; 5] = [Form::Replicas, Form::Ring, Form::Logarithm, Form::Hierarchy, Form::Shared];

    /// Its name in a fitted model.
    pub fn name(self) -> &'static str {
        match self {
            Form::Replicas => "replicas",
            Form::Ring => "ring",
            Form::Logarithm => "logarithm",
            Form::Hierarchy => "hierarchy",
            Form::Shared => "shared",
        }
    }
}

impl Law {
    /// Seconds of the gradient of one micro-batch.
    pub(super) fn gradient_s(&self, local_batch: f64) -> f64 {
        self.values[0] + self.values[1] * local_batch
    }

    /// Seconds of an exchange that nothing hides.
    pub(super) fn exchange_s(&self, nodes: u32, replicas: u32) -> f64 {
        if replicas <= 1 {
            return 0.0;
        }
        let [_, _, alpha_r, beta_r, alpha_n, beta_n, _] = self.values;
        let (n, k) = (f64::from(nodes.max(1)), f64::from(replicas));
        let (alpha, beta) = if nodes > 1 { (alpha_n, beta_n) } else { (alpha_r, beta_r) };
        match self.form {
            Form::Replicas => alpha + beta * (k - 2.0),
            Form::Ring => ring_s(alpha, beta, k),
            Form::Logarithm => alpha + beta * (k / 2.0).ln(),
            // The fullest node is the one that the others wait for.
            Form::Hierarchy => {
                let in_node_s = ring_s(alpha_r, beta_r, (k / n).ceil());
                if nodes > 1 { in_node_s + ring_s(alpha_n, beta_n, n) } else { in_node_s }
            }
            Form::Shared if nodes <= 1 => ring_s(alpha_r, beta_r, k),
            Form::Shared => {
                let third = if nodes > 2 { 1.0 } else { 0.0 };
                let terms = [(k / n).max(1.0).ln(), (n / 2.0).ln(), third];
                let log: f64 = terms.iter().zip(self.exponents).map(|(term, exponent)| term * exponent).sum();
                alpha_n * log.exp()
            }
        }
    }

    /// Seconds of a step that accumulates `accumulation_steps` micro-batches before the exchanged one.
    pub(super) fn step_s(&self, nodes: u32, replicas: u32, local_batch: f64, accumulation_steps: u32) -> f64 {
        let gradient_s = self.gradient_s(local_batch);
        let last_s = overlapped(gradient_s, self.exchange_s(nodes, replicas), self.values[6]);
        f64::from(accumulation_steps) * gradient_s + last_s
    }
}

fn ring_s(alpha: f64, beta: f64, members: f64) -> f64 {
    alpha * 2.0 * (members - 1.0) / members + beta * (members - 1.0)
}
