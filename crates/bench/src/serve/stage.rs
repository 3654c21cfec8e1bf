//! A daemon in a folder of its own, and jobs for it.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::job::CheckedJob;
use bellwether_core::parse;
use bellwether_serve::daemon;
use bellwether_serve::snapshot::JobState;
use serde_json::{Value, json};

use super::client::Client;
use crate::failure::Failure;
use crate::folder::Folder;
use crate::programs::bellwether;

/// What is waited for never takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// KiB of a job's parameters, unless another size is asked for.
const MODEL_KIB: u32 = 64;

/// A daemon that can be killed and comes back.
pub(crate) struct Stage {
    folder: Folder,
    child: Child,
    pub(super) client: Client,
}

impl Stage {
    pub(super) fn start(policy: &str) -> Result<Stage, Failure> {
        Stage::start_with(policy, 4)
    }

    pub(crate) fn start_with(policy: &str, slots: u32) -> Result<Stage, Failure> {
        Stage::start_as(&["--policy", policy, "--slots", &slots.to_string()])
    }

    /// Starts a daemon with these options.
    pub(crate) fn start_as(options: &[&str]) -> Result<Stage, Failure> {
        let folder = Folder::new("serve")?;
        let child = launch(&folder, options)?;
        let client = Client::new(folder.path());
        let stage = Stage { folder, child, client };
        stage.wait_until_it_answers()?;
        Ok(stage)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().into()
    }

    /// Kills it without a warning.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        ended.map(drop).map_err(|e| Failure::at("the daemon", e))
    }

    /// Lets it begin again; seconds until it answers, with all jobs taken over.
    pub(super) fn come_back(&mut self) -> Result<f64, Failure> {
        let since = Instant::now();
        self.child = launch(&self.folder, &[])?;
        self.wait_until_it_answers()?;
        Ok(since.elapsed().as_secs_f64())
    }

    fn wait_until_it_answers(&self) -> Result<(), Failure> {
        let since = Instant::now();
        let process = self.child.id();
        while daemon::endpoint(&self.path()).is_none_or(|endpoint| endpoint.process != process) {
            if since.elapsed() > PATIENCE {
                return Err(Failure::at("the daemon", "does not begin"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.client.get::<Value>("/v1/cluster").map(drop)
    }

    pub(crate) fn submit(&self, name: &str, job: &CheckedJob, workers: &str) -> Result<JobState, Failure> {
        let body = json!({ "name": name, "job": job, "workers": workers, "key": name });
        self.client.post("/v1/jobs", Some(&body))
    }

    /// All jobs as they are.
    pub(crate) fn jobs(&self) -> Result<Vec<JobState>, Failure> {
        self.client.jobs()
    }

    /// Cancels a job.
    pub(crate) fn cancel(&self, name: &str) -> Result<(), Failure> {
        self.client.post::<Value>(&format!("/v1/jobs/{name}/cancel"), None).map(drop)
    }

    /// All jobs, when all have ended.
    pub(crate) fn wait_for_the_end(&self) -> Result<Vec<JobState>, Failure> {
        let since = Instant::now();
        loop {
            let jobs = self.client.jobs()?;
            if jobs.iter().all(|job| job.state.has_ended()) {
                return Ok(jobs);
            }
            if since.elapsed() > PATIENCE {
                return Err(Failure::at("the jobs", "do not end"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Jobs that still run are cancelled, so that nothing outlives the measurement.
        if let Ok(jobs) = self.client.jobs() {
            for job in jobs.iter().filter(|job| !job.state.has_ended()) {
                let _ = self.cancel(&job.name);
            }
            let _ = self.wait_for_the_end();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(folder: &Folder, more: &[&str]) -> Result<Child, Failure> {
    let mut command = bellwether()?;
    command.arg("serve").arg("--state-dir").arg(folder.path()).args(more);
    command.stderr(Stdio::null()).spawn().map_err(|e| Failure::at("the daemon", e))
}

/// The text of a job of `steps` steps of 8 virtual nodes that take `node_ms` each, with so large a model.
fn text(kib: u32, seed: u64, steps: u64, node_ms: f64) -> String {
    format!(
        "name = \"bench\"\nseed = {seed}\nsteps = {steps}\n[model]\nkind = \"synthetic\"\nstep_time = \"{node_ms}ms\"\n\
         parameters = \"{kib}KiB\"\n[data]\nkind = \"indices\"\nsamples = 1000\n[batch]\nsize = 16\nvirtual_nodes = 8\n\
         [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    )
}

/// Such a job.
pub(crate) fn synthetic(seed: u64, steps: u64, node_ms: f64) -> Result<CheckedJob, Failure> {
    synthetic_of(MODEL_KIB, seed, steps, node_ms)
}

/// The same with a model of another size.
pub(crate) fn synthetic_of(kib: u32, seed: u64, steps: u64, node_ms: f64) -> Result<CheckedJob, Failure> {
    Ok(parse::job(&text(kib, seed, steps, node_ms), "bench", &[])?)
}

/// How many of the jobs trained what an undisturbed run of the same job trains. How long the device sleeps
/// decides no bit.
pub(super) fn same_digests(jobs: &[JobState], described: &[(String, CheckedJob)]) -> Result<u64, Failure> {
    let folder = Folder::new("undisturbed")?;
    let mut same = 0;
    for (name, job) in described {
        let path = folder.write("job.toml", text(MODEL_KIB, job.seed, job.steps.unwrap_or(1), 0.01))?;
        let mut command = bellwether()?;
        command.arg("run").arg(&path).args(["--workers", "1", "--format", "json", "--state-dir"]);
        let output = command.arg(folder.path()).stdout(Stdio::piped()).stderr(Stdio::null()).output();
        let output = output.map_err(|e| Failure::at("an undisturbed run", e))?;
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let digest = jobs.iter().find(|job| job.name == *name).and_then(|job| job.digest.clone());
        same += u64::from(digest.is_some() && summary["params_digest"].as_str() == digest.as_deref());
    }
    Ok(same)
}
