//! Clouds as a provider, through SkyPilot's command `sky`: a machine is a cluster of one node, known by its name.
//!
//! Written for SkyPilot 0.14 from its command's own help and answers. The command was tried as installed, up to the
//! point where a cloud would have to answer; on a real cloud nothing of this was tried.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use bellwether_core::machines::{Machine, Notice, Offer, Phase, Pool, Provider, ProviderError, Request, Tag};
use bellwether_core::plan::Market;
use bellwether_runtime::private;
use serde_json::{Map, Value, json};

use super::ways::{Ways, of_program, way};
use crate::programs::Call;

const NAME: &str = "SkyPilot";

/// The beginning of the names of clusters that are machines.
const BEGINNING: &str = "bellwether-";

/// Minutes without a job after which a cluster ends by itself, whatever became of its holder.
const IDLE_MINUTES: &str = "5";

/// How long `sky` may take: it may have to start its server first.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long an answer is used again: each asks the clouds for all clusters.
const LISTED: Duration = Duration::from_secs(15);

/// A cluster that was asked for is listed only once its request is worked on.
const APPEARS: Duration = Duration::from_secs(120);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct SkyPilot {
    ways: Ways,
    /// Machines that were requested, and when, of those that were not listed since.
    requested: BTreeMap<Tag, Option<Instant>>,
    listed: Option<(Instant, String, Vec<Machine>)>,
}

impl SkyPilot {
    pub(super) fn new(ways: Ways) -> SkyPilot {
        SkyPilot { ways, requested: BTreeMap::new(), listed: None }
    }

    fn clusters(lease: &str) -> Result<Vec<Machine>, ProviderError> {
        let unanswered = |why: String| ProviderError::Unanswered { provider: NAME, why };
        let pattern = format!("{BEGINNING}{lease}-*");
        let text = sky(["status", "--refresh", "-o", "json", &pattern]).answer();
        clusters(&text.map_err(|error| unanswered(error.to_string()))?).map_err(unanswered)
    }
}

fn sky<'a>(words: impl IntoIterator<Item = &'a str>) -> Call {
    // Clouds are asked with the user's own credentials, and no usage is told to others.
    let quiet = vec![("SKYPILOT_DISABLE_USAGE_COLLECTION".into(), "1".into())];
    Call::new("sky", words.into_iter().map(OsString::from))
        .keeping_credentials()
        .variables(quiet)
        .patience(PATIENCE)
}

/// A task for `sky launch`. JSON is YAML, too.
pub(super) fn task(
    resources: &BTreeMap<String, String>,
    pool: &Pool,
    script: &str,
    secrets: &[String],
) -> Value {
    let mut wanted: Map<String, Value> =
        resources.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
    wanted.insert("use_spot".into(), Value::Bool(pool.market == Market::Transient));
    let secrets: Map<String, Value> = secrets.iter().map(|name| (name.clone(), Value::Null)).collect();
    json!({ "num_nodes": 1, "resources": wanted, "secrets": secrets, "run": script })
}

impl Provider for SkyPilot {
    fn name(&self) -> &'static str {
        "skypilot"
    }

    fn settle_s(&self) -> f64 {
        APPEARS.as_secs_f64()
    }

    fn offers(&mut self) -> Result<Vec<Offer>, ProviderError> {
        Ok(Vec::new())
    }

    fn request(&mut self, request: &Request) -> Result<(), ProviderError> {
        let unanswered = |why: String| ProviderError::Unanswered { provider: NAME, why };
        let way = way(&self.ways, &request.pool, NAME)?;
        let names: Vec<String> = request.secrets.keys().cloned().collect();
        let task = task(&way.skypilot, &request.pool, &request.script, &names);
        if let Some(asked) = self.requested.get(&request.tag) {
            // A second launch would run the task twice on one cluster, which may not be listed yet.
            let is_new = asked.is_some_and(|at| at.elapsed() < APPEARS);
            let there = SkyPilot::clusters(&request.tag.lease)?;
            if is_new || there.iter().any(|machine| machine.tag == request.tag) {
                return Ok(());
            }
        }
        self.requested.insert(request.tag.clone(), Some(Instant::now()));
        self.listed = None;
        let file = std::env::temp_dir().join(format!("{BEGINNING}{}.yaml", request.tag));
        let written = private::file(&file)
            .and_then(|mut opened| std::io::Write::write_all(&mut opened, task.to_string().as_bytes()));
        written.map_err(|error| unanswered(format!("{}: {error}", file.display())))?;
        let name = format!("{BEGINNING}{}", request.tag);
        let path = file.display().to_string();
        let mut words =
            vec!["launch", "--yes", "--async", "--detach-run", "--down", "-i", IDLE_MINUTES, "-c", &name];
        // Their values are in the environment, and `sky` takes them from there.
        words.extend(names.iter().flat_map(|name| ["--secret", name.as_str()]));
        words.push(&path);
        let secrets = request.secrets.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let answer = sky(words).variables(secrets).answer();
        // It was read by now.
        let _ = std::fs::remove_file(&file);
        let answer = answer.map(drop).map_err(|error| of_program(NAME, &error));
        if let Err(ProviderError::Refused { .. }) = answer {
            self.requested.remove(&request.tag);
        }
        answer
    }

    fn list(&mut self, lease: &str) -> Result<Vec<Machine>, ProviderError> {
        let known = self.listed.as_ref().filter(|(at, of, _)| at.elapsed() < LISTED && of == lease);
        let mut machines = match known {
            Some((_, _, machines)) => machines.clone(),
            None => {
                let machines = SkyPilot::clusters(lease)?;
                self.listed = Some((Instant::now(), lease.to_owned(), machines.clone()));
                machines
            }
        };
        for (tag, at) in &mut self.requested {
            if machines.iter().any(|machine| machine.tag == *tag) {
                *at = None;
            }
            if at.is_some_and(|at| at.elapsed() < APPEARS) && tag.lease == lease {
                let reason = "SkyPilot has the request".to_owned();
                machines.push(Machine { tag: tag.clone(), phase: Phase::Waits { reason } });
            }
        }
        Ok(machines)
    }

    fn release(&mut self, tag: &Tag) -> Result<(), ProviderError> {
        self.listed = None;
        let name = format!("{BEGINNING}{tag}");
        let there = SkyPilot::clusters(&tag.lease)?.iter().any(|machine| machine.tag == *tag);
        if !there {
            return Ok(());
        }
        let asked = sky(["down", "--yes", "--async", &name]).answer();
        asked.map(drop).map_err(|error| ProviderError::Unanswered { provider: NAME, why: error.to_string() })
    }
}

/// The machines in an answer of `sky status -o json`.
///
/// # Errors
///
/// Says what is wrong with the answer. Nothing in it is to be believed then.
pub fn clusters(text: &str) -> Result<Vec<Machine>, String> {
    // What its server says when it begins comes before the answer.
    let begins = text.find('[').ok_or("its answer is not JSON")?;
    let list: Vec<Value> =
        serde_json::from_str(&text[begins..]).map_err(|error| format!("its answer is not JSON: {error}"))?;
    let mut machines = Vec::new();
    for cluster in &list {
        let name = cluster["name"].as_str().and_then(|name| name.strip_prefix(BEGINNING));
        let Some(tag) = name.and_then(|name| name.parse::<Tag>().ok()) else { continue };
        let text = |key: &str| cluster[key].as_str().unwrap_or_default().to_owned();
        let phase = match cluster["status"].as_str() {
            // One that is not healthy any more may still cost: the run leaves it, and it is released.
            Some("INIT") if cluster["init_kind"] == "unhealthy" => {
                let why = format!("its cluster is not healthy: {}", text("init_status_reason"));
                Phase::Runs { place: text("region"), notice: Some(Notice { left_s: 0.0, why }) }
            }
            Some("INIT" | "PENDING") => Phase::Waits { reason: text("init_status_reason") },
            Some("UP" | "STOPPED" | "AUTOSTOPPING") => {
                let place = [text("cloud"), text("region")].join(" ");
                Phase::Runs { place: place.trim().to_owned(), notice: None }
            }
            other => {
                return Err(format!(
                    "a cluster has the status `{}`",
                    other.unwrap_or_default().escape_debug()
                ));
            }
        };
        machines.push(Machine { tag, phase });
    }
    Ok(machines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_read_without_trust() {
        let text = r#"Starting a local server.
            [{"name": "bellwether-a1-1", "status": "UP", "cloud": "GCP", "region": "us-east1", "nodes": 1},
             {"name": "bellwether-a1-2", "status": "INIT", "init_kind": "launching",
              "init_status_reason": "Provisioning"},
             {"name": "mine", "status": "UP"}]"#;
        let machines = clusters(text).unwrap();
        assert_eq!(machines.len(), 2);
        assert_eq!(machines[0].phase, Phase::Runs { place: "GCP us-east1".into(), notice: None });
        assert_eq!(machines[1].phase, Phase::Waits { reason: "Provisioning".into() });
        assert_eq!(clusters("[]"), Ok(Vec::new()));
        let strange = r#"[{"name": "bellwether-a1-1", "status": "DANCING"}]"#;
        assert!(["", "{}", "[", strange].iter().all(|text| clusters(text).is_err()));
    }

    #[test]
    fn a_task_names_its_secrets_and_holds_none() {
        let resources = BTreeMap::from([("infra".to_owned(), "gcp/us-east1".to_owned())]);
        let pool = Pool { machine: "k80".into(), market: Market::Transient };
        let task = task(&resources, &pool, "exec bellwether worker", &["BELLWETHER_TOKEN".into()]);
        assert_eq!(task["resources"], json!({ "infra": "gcp/us-east1", "use_spot": true }));
        assert_eq!(task["secrets"], json!({ "BELLWETHER_TOKEN": null }));
    }
}
