//! Figures of other systems, printed beside ours. None of them was measured by this program.

use serde_json::{Value, json};

/// Where the figures come from.
pub(super) const SOURCE: &str = "published figures measured elsewhere";

/// One figure of another system.
#[derive(Debug)]
pub(super) struct Published {
    /// Which system, doing what.
    what: &'static str,
    /// Its value, with what is known of its spread and circumstances.
    value: &'static str,
}

const fn figure(what: &'static str, value: &'static str) -> Published {
    Published { what, value }
}

/// Death of a worker to the next step.
pub(super) const RECOVERY: &[Published] = &[
    figure("torchrun, 2 workers, SIGKILL one, to the next step", "10.6 s (2-3 steps lost)"),
    figure("torchft 0.2.0, 2 replicas, default settings, to the next commit", "5.06 s"),
    figure("torchft 0.2.0, 2 replicas, heartbeat 1 s, join 0.1 s", "1.03 s"),
    figure("torchft 0.2.0, 4 replicas, heartbeat 1 s, join 0.1 s", "0.23 s"),
    figure("torchft 0.2.0, kill inside a collective", "not measured"),
];

/// What a change of the number of workers costs those who stay.
pub(super) const RESIZE: &[Published] = &[
    figure("torchrun, an agent joins, default settings", "never finishes (3 of 3 runs)"),
    figure("torchrun, an agent joins, with a work-around: training stands still", "13.2-16.6 s"),
    figure("torchft 0.2.0, a replica rejoins: longest pause of a survivor, 2 replicas", "0.11-0.27 s"),
    figure("torchft 0.2.0, a replica rejoins: longest pause of a survivor, 4 replicas", "0.27-0.97 s"),
    figure("AdaptDL 0.2.11, 2 to 1 and 1 to 2 (checkpoint and restart)", "25.4 s and 35.0 s"),
];

/// All-reduce of `f32` on a machine of the same kind.
pub(super) const ALLREDUCE: &[Published] = &[
    figure("gloo, 2 processes: 4 B, 256 KiB, 1 MiB", "90 µs, 280-332 µs, 750-769 µs"),
    figure("gloo, 4 processes: 4 B, 256 KiB, 1 MiB", "0.36-0.50 ms, 3.4-5.7 ms, 3.2-5.0 ms"),
    figure("gloo, 256 MiB: bus bandwidth of 2 and of 4 processes", "0.75-0.83 and 0.43-0.66 GB/s"),
];

/// Examples per second on one thread, forward, backward and plain SGD.
pub(super) const TRAINING: &[Published] = &[
    figure(
        "burn 0.22 flex with x86-v4, plain loop: MLP, LeNet, ResNet-20, transformer",
        "81,303, 5,034, 92.1, 64.2 /s",
    ),
    figure("PyTorch 2.15: MLP, LeNet, ResNet-20, transformer", "67,673, 7,692, 303.6, 238.2 /s"),
];

/// Rank correlation of supernets with training from scratch, CIFAR-10, NAS-Bench-201 (Zhao et al., ICML 2021).
pub(super) const NAS: &[Published] = &[
    figure(
        "authors' released tables, 15,625 architectures: Kendall's τ of one-shot and of few-shot (5)",
        "0.485, 0.551",
    ),
    figure("re-runs in the issues of that repository: one-shot, few-shot (5)", "0.50-0.54, 0.54-0.69"),
    figure("best true accuracy of the top 1 and of the top 10: one-shot", "91.0 %, 91.4 %"),
    figure("the same: few-shot (5)", "92.7 %, 93.3 %"),
];

pub(super) fn json(figures: &[Published]) -> Value {
    if figures.is_empty() {
        return Value::Null;
    }
    let figures: Vec<Value> = figures.iter().map(|f| json!({ "what": f.what, "value": f.value })).collect();
    json!({ "source": SOURCE, "figures": figures })
}

pub(super) fn text(figures: &[Published]) -> String {
    figures.iter().map(|f| format!("  {}: {}\n", f.what, f.value)).collect()
}

/// Accuracy of throughput predictions. Other workloads, so for orientation only.
pub(super) const SCALING: &[Published] = &[];
