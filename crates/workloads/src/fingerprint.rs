//! The kernel class: all that decides bits beyond the job file, as one line that people can compare.
//!
//! The instruction set alone would not do. Matrix products are cut into blocks by the sizes of the
//! CPU's caches, which changes the order of sums, and some functions come from the system's
//! mathematics library. So the line ends with a digest of one gradient of the very network (the
//! "probe"): workers whose kernels differ disagree on it, whatever the reason.

use bellwether_core::job::Model;

/// The back-end, with the version that the workspace pins.
pub const BACK_END: &str = "burn-flex 0.22.1";

/// The line for a network.
pub(crate) fn text(model: &Model, parameters: usize, data_digest: &str, probe: &str) -> String {
    let kind = kind(model);
    let set = instruction_set();
    format!(
        "{BACK_END}; isa {set}; 1 thread; {kind}, {parameters} parameters; data {data_digest}; probe {probe}"
    )
}

/// The line for a network that is only applied: its probe is of scores.
pub(crate) fn applied(model: &Model, parameters: usize, probe: &str) -> String {
    let (kind, set) = (kind(model), instruction_set());
    format!("{BACK_END}; isa {set}; 1 thread; {kind}, {parameters} parameters; scores {probe}")
}

/// The word that names a model in a job file.
pub(crate) fn kind(model: &Model) -> &'static str {
    match model {
        Model::Mlp { .. } => "mlp",
        Model::Convnet { .. } => "convnet",
        Model::Resnet { .. } => "resnet",
        Model::Cell(_) => "cell",
        Model::Transformer { .. } => "transformer",
        Model::Custom { .. } => "custom",
        Model::Python { .. } => "python",
        Model::Synthetic { .. } => "synthetic",
    }
}

/// The best instruction set of this CPU among those that the kernels distinguish.
#[cfg(target_arch = "x86_64")]
pub fn instruction_set() -> &'static str {
    use std::arch::is_x86_feature_detected as has;
    if has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl") {
        "avx512"
    } else if has!("avx512f") {
        "avx512f"
    } else if has!("avx2") && has!("fma") {
        "avx2+fma"
    } else {
        "sse2"
    }
}

/// Other architectures have one set that the kernels use.
#[cfg(not(target_arch = "x86_64"))]
pub fn instruction_set() -> &'static str {
    std::env::consts::ARCH
}
