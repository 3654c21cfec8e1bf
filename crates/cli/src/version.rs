//! What this program is: version, commit, kernels.

use std::sync::LazyLock;

/// The commit, where the build named it.
const COMMIT: Option<&str> = option_env!("BELLWETHER_COMMIT");

/// A name and a value each. The kernels and the instruction set decide the bits that training computes.
pub(crate) fn facts() -> Vec<(&'static str, String)> {
    vec![
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("commit", COMMIT.unwrap_or("not said when it was built").into()),
        ("kernels", bellwether_workloads::BACK_END.into()),
        ("instruction set", bellwether_workloads::instruction_set().into()),
    ]
}

/// What `--version` prints behind the name.
pub(crate) fn long_version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let facts = facts();
        let rest = facts.iter().skip(1).map(|(name, value)| format!("\n{name}: {value}"));
        facts.first().map(|(_, version)| version.clone()).into_iter().chain(rest).collect()
    });
    &TEXT
}
