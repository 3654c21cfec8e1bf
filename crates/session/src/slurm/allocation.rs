//! An allocation of Slurm's in which this process runs: its tasks may be workers.

use std::env::var;
use std::ffi::OsString;

/// An allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The number of its job.
    pub job: u64,
    /// Its tasks: each may be a worker or a server.
    pub tasks: u32,
    /// Its nodes.
    pub nodes: u32,
    /// Processors of each task, where its owner said how many.
    pub processors_per_task: Option<u32>,
}

impl Allocation {
    /// The one in which this process runs, by the variables that Slurm sets; `None` outside of one, or in a step of
    /// several tasks, of which it is one.
    pub fn here() -> Option<Allocation> {
        Allocation::told(|name| var(name).ok())
    }

    fn told(value: impl Fn(&str) -> Option<String>) -> Option<Allocation> {
        let number = |name: &str| value(name)?.parse::<u32>().ok();
        // A batch script has this one too, and `salloc`'s shell does not.
        let is_task = value("SLURM_STEP_ID").is_some_and(|step| step.parse::<u32>().is_ok())
            && number("SLURM_STEP_NUM_TASKS").is_some_and(|tasks| tasks > 1);
        let job = value("SLURM_JOB_ID")?.parse().ok().filter(|_| !is_task)?;
        let nodes = number("SLURM_NNODES").or_else(|| number("SLURM_JOB_NUM_NODES")).unwrap_or(1);
        Some(Allocation {
            job,
            tasks: number("SLURM_NTASKS").unwrap_or(nodes).max(1),
            nodes,
            processors_per_task: number("SLURM_CPUS_PER_TASK"),
        })
    }

    /// The command that starts one task of it.
    pub fn launcher(&self) -> Vec<OsString> {
        let mut words = vec!["srun", "--exact", "--nodes=1", "--ntasks=1", "--input=none", "--quiet"]
            .into_iter()
            .map(OsString::from)
            .collect::<Vec<_>>();
        words.extend(self.processors_per_task.map(|count| format!("--cpus-per-task={count}").into()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_recognised_by_its_variables() {
        let told = |variables: &[(&str, &str)]| {
            let variables: Vec<(String, String)> =
                variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Allocation::told(move |name| {
                variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            })
        };
        assert_eq!(told(&[]), None);
        let batch = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4"), ("SLURM_NNODES", "3")];
        let allocation = told(&batch).unwrap();
        assert_eq!((allocation.job, allocation.tasks, allocation.nodes), (7, 4, 3));
        assert_eq!(told(&[("SLURM_JOB_ID", "7"), ("SLURM_NNODES", "2")]).unwrap().tasks, 2);
        let task = [batch[0], batch[1], ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(told(&task), None);
        assert_eq!(told(&[("SLURM_JOB_ID", "x")]), None);
    }
}
