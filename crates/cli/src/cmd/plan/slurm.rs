//! `--export slurm`: what was chosen, as a script for `sbatch`.

use std::fmt::Write;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::plan::{Candidate, Plan};

use super::PlanArguments;
use super::words::{alike, quoted, run_words};

/// The limit of time is as many times what 95 % of the runs take, and at least this.
const LIMIT_TIMES: f64 = 1.5;
const LIMIT_MIN_S: f64 = 600.0;

/// The script: one job, whose tasks are the workers.
pub(super) fn script(
    arguments: &PlanArguments,
    job: &Path,
    plan: &Plan,
    chosen: &Candidate,
) -> Result<String, InputError> {
    let (machines, kind) = alike("slurm", plan, chosen)?;
    let mut text = String::from("#!/bin/sh\n");
    let _ = writeln!(text, "# {}", plan.reason.replace('\n', " "));
    let mut option = |option: &str| {
        let _ = writeln!(text, "#SBATCH {option}");
    };
    option(&format!("--job-name={}", quoted(&[format!("bellwether-{}", plan.job)])));
    option(&format!("--nodes={} --ntasks-per-node={}", machines.count, machines.devices));
    let own = kind.obtain.slurm_of(machines.market);
    if !own.iter().any(|option| option.starts_with("--time") || option.starts_with("-t")) {
        option(&format!("--time={}", limit(LIMIT_TIMES * chosen.p95_time_s)));
    }
    own.iter().for_each(|own| option(own));
    if !kind.obtain.setup.is_empty() {
        let _ = writeln!(text, "{}", kind.obtain.setup.trim_end());
    }
    let _ = writeln!(text, "exec {}", quoted(&run_words(arguments, job, chosen)));
    Ok(text)
}

/// Seconds as Slurm reads a limit: `DAYS-HH:MM:SS`.
fn limit(seconds: f64) -> String {
    let whole = seconds.clamp(LIMIT_MIN_S, 365.0 * 86_400.0).ceil() as u64;
    let (minutes, seconds) = (whole / 60, whole % 60);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let (days, hours) = (hours / 24, hours % 24);
    match days {
        0 => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        days => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::limit;

    #[test]
    fn limits_are_as_slurm_reads_them() {
        assert_eq!(limit(3.0), "00:10:00");
        assert_eq!(limit(3723.2), "01:02:04");
        assert_eq!(limit(90_000.0), "1-01:00:00");
    }
}
