//! Every Rust file says what it is for; models and policies say it under fixed headings.

use crate::generate;
use crate::problem::Problem;

/// The headings of a model, whose header is its specification.
const MODEL: [&str; 5] = ["# Model", "# Source", "# Assumes", "# Valid", "# Checked by"];

/// The headings of a scheduling policy.
const POLICY: [&str; 5] = ["# Idea", "# Source", "# Reads", "# Complexity", "# Bad when"];

/// Checks the header of one file; files of other kinds pass.
pub(crate) fn check(path: &str, text: &str) -> Vec<Problem> {
    if !path.ends_with(".rs") || path == generate::OUTPUT {
        return Vec::new();
    }
    let header: Vec<&str> =
        text.trim_start().lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    if header.is_empty() {
        return vec![Problem::at_line(
            path,
            1,
            "open the file with `//!` and a sentence that says what it holds",
        )];
    }
    let mut problems = Vec::new();
    let paragraph: Vec<&str> = header.iter().copied().take_while(|line| !line.is_empty()).collect();
    if !is_sentence(&paragraph.join(" ")) {
        let message = "the first paragraph of the header is not a sentence; say in a few words what the file holds, \
                       and end with a full stop";
        problems.push(Problem::at_line(path, 1, message));
    }
    let needed = headings_of(path);
    let lacking: Vec<&str> = needed.iter().copied().filter(|heading| !header.contains(heading)).collect();
    if !lacking.is_empty() {
        let (lacking, needed) = (lacking.join("`, `"), needed.join("`, `"));
        let message = format!("the header lacks `{lacking}`; it needs `{needed}`, each a line of its own");
        problems.push(Problem::at_line(path, 1, message));
    }
    problems
}

fn is_sentence(paragraph: &str) -> bool {
    paragraph.split_whitespace().count() >= 3 && paragraph.ends_with(['.', ':', '!', '?'])
}

/// The headings that the header of this file must have.
fn headings_of(path: &str) -> &'static [&'static str] {
    let name = path.rsplit('/').next().unwrap_or(path);
    // These tie models or policies together and are none themselves.
    if ["lib.rs", "mod.rs", "error.rs", "tests.rs"].contains(&name) {
        return &[];
    }
    // A model is a file at the top of its crate, a policy one in its folder; a folder beside it holds its parts.
    let directly_in = |folder| path.strip_prefix(folder).is_some_and(|rest: &str| !rest.contains('/'));
    if directly_in("crates/model/src/") && name != "import.rs" {
        &MODEL
    } else if directly_in("crates/sched/src/policy/") {
        &POLICY
    } else {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::shown;

    #[test]
    fn a_file_without_a_header_is_named() {
        let problems = shown(&check("crates/core/src/job.rs", "use std::fmt;\n//! Too late for a header.\n"));
        let expected =
            "crates/core/src/job.rs:1: open the file with `//!` and a sentence that says what it holds";
        assert_eq!(problems, [expected]);
        assert_eq!(check("crates/core/src/job.rs", "").len(), 1);
        assert_eq!(check("crates/cli/tests/run.rs", "#![allow(x)]\n").len(), 1);
    }

    #[test]
    fn a_header_is_a_sentence() {
        assert!(check("a.rs", "//! The job that\n//! a user describes.\n\nuse x;").is_empty());
        assert_eq!(check("a.rs", "//! Jobs.\n").len(), 1);
        assert_eq!(check("a.rs", "//! the module of jobs\n").len(), 1);
        assert_eq!(check("a.rs", "//!\n//! The job of a user.\n").len(), 1);
        assert!(check("a.toml", "").is_empty());
    }

    #[test]
    fn a_model_has_every_heading() {
        let full = "//! Time of a ring.\n//!\n//! # Model\n//! # Source\n//! # Assumes\n//! # Valid\n//! # Checked by\n";
        assert!(check("crates/model/src/collective.rs", full).is_empty());
        let lacking = full.replace("//! # Valid\n", "//! # Validity\n");
        // A part of a model has no specification of its own.
        assert!(check("crates/model/src/collective/ring.rs", &lacking).is_empty());
        let problems = shown(&check("crates/model/src/collective.rs", &lacking));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("the header lacks `# Valid`"), "{problems:?}");
        assert!(check("crates/model/src/lib.rs", "//! All the models.\n").is_empty());
    }

    #[test]
    fn a_policy_has_every_heading() {
        let problems =
            check("crates/sched/src/policy/fifo.rs", "//! First in, first out.\n//!\n//! # Idea\n");
        let lacking =
            "the header lacks `# Source`, `# Reads`, `# Complexity`, `# Bad when`; it needs `# Idea`";
        assert!(shown(&problems)[0].contains(lacking), "{problems:?}");
        assert!(
            check("crates/sched/src/policy/las/queues.rs", "//! The queues of one cluster.\n").is_empty()
        );
        assert!(check("crates/sched/src/drive.rs", "//! The loop over a backend.\n").is_empty());
    }
}
