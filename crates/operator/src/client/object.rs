//! What is asked of a daemon, as an `ElasticJob`: a submission becomes an object, other limits a patch of one.

use axum::http::StatusCode;
use bellwether_core::InputError;
use bellwether_core::job::{Job, WorkerRange};
use bellwether_serve::api::body::{Limits, Pods, Submit};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::files;
use crate::crd::{
    self, Elastic, ElasticJob, ElasticJobSpec, PROFILE_KEY, PodRole, Policy, ProfileRef, Worker,
};

/// The client's own word for a submission, as an annotation: sent twice, it is accepted once.
const KEY: &str = "train.bellwether.dev/submission";

/// Most letters of an object's name, as its schema has it.
const NAME_MAX: usize = 52;

/// An object that is to be created.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) object: ElasticJob,
    /// What the object refers to: what was measured of the job, and its script.
    pub(super) files: Vec<ConfigMap>,
    /// Whether its author chose its name, so that another one will not do.
    pub(super) is_named: bool,
    key: Option<String>,
}

impl Wanted {
    /// The object of a submission, once nothing is wrong with it.
    pub(super) fn of(submit: Submit, namespace: &str) -> Result<Wanted, Failure> {
        refuse_what_needs_a_daemon(&submit)?;
        let mut job = match (submit.job, submit.job_toml) {
            (Some(job), None) => job,
            (None, Some(text)) => Job::clone(&*bellwether_core::parse::job(&text, "job_toml", &[])?),
            _ => {
                let failure = Failure::invalid("body", "exactly one of `job` and `job_toml` is needed");
                return Err(failure.hint("give the job file as JSON in `job`, or its text in `job_toml`"));
            }
        };
        let name = match &submit.name {
            Some(name) if valid(name) == *name => name.clone(),
            Some(name) => {
                let what = format!("`{name}` cannot be the name of an object of Kubernetes");
                return Err(Failure::invalid("--name", what).hint(format!("write `{}`", valid(name))));
            }
            None => valid(&job.name),
        };
        let workers = submit.workers.map_or(job.workers, |workers| workers.0);
        let profile = submit.profile.map(|profile| files::of_profile(&profile, namespace)).transpose()?;
        let named = profile.as_ref().and_then(|profile| profile.metadata.name.clone());
        let Pods { image, script } = submit.pods.unwrap_or_default();
        let script = script.map(|text| files::of_script(text, &mut job, namespace)).transpose()?;
        let template = files::template(image, script.as_ref());
        let role = || template.clone().map(|template| PodRole { template: Some(template) });
        let spec = ElasticJobSpec {
            job: Some(file(&job)),
            profile_ref: named.map(|name| ProfileRef { name, key: PROFILE_KEY.to_owned() }),
            coordinator: role(),
            worker: Worker { template: template.clone(), ..Worker::default() },
            elastic: Elastic {
                min_replicas: Some(workers.min),
                max_replicas: Some(workers.max),
                ..Elastic::default()
            },
            queue: submit.queue,
            weight: submit.priority.unwrap_or(1.0),
            // Kubernetes counts whole seconds.
            deadline_seconds: submit.deadline.map(|deadline| deadline.0.ceil().max(1.0) as u64),
            ..ElasticJobSpec::default()
        };
        let mut object = ElasticJob::new(&name, spec);
        object.metadata = ObjectMeta { namespace: Some(namespace.to_owned()), ..object.metadata };
        let key = submit.key;
        object.metadata.annotations = key.clone().map(|key| [(KEY.to_owned(), key)].into());
        crd::check(&object).map_err(Failure::of_fields)?;
        let files = profile.into_iter().chain(script).collect();
        Ok(Wanted { object, files, is_named: submit.name.is_some(), key })
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The object of this submission among those that are there, if it was sent before.
    pub(super) fn find<'o>(&self, objects: &'o [ElasticJob]) -> Option<&'o ElasticJob> {
        let key = self.key.as_ref()?;
        let key_of = |object: &ElasticJob| object.metadata.annotations.as_ref()?.get(KEY).cloned();
        objects.iter().find(|object| key_of(object).as_ref() == Some(key))
    }

    /// Takes the first name with a number that none of these objects has, from 2 on.
    pub(super) fn rename(&mut self, objects: &[ElasticJob], base: &str) {
        let names: std::collections::BTreeSet<&str> =
            objects.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
        let numbered = |number: u64| {
            let number = format!("-{number}");
            let base = base.get(..NAME_MAX - number.len()).unwrap_or(base).trim_end_matches('-');
            format!("{base}{number}")
        };
        let free = (2..).map(numbered).find(|name| !names.contains(name.as_str()));
        self.object.metadata.name = free;
    }
}

fn refuse_what_needs_a_daemon(submit: &Submit) -> Result<(), Failure> {
    let refused = [
        (
            submit.provision.is_some(),
            "--provision",
            "an operator finds places for its pods itself",
            "submit to a daemon of your own, with `--provision kubernetes`, or leave --plan and --provision out",
        ),
        (
            !submit.rates.is_empty(),
            "--profile",
            "an operator reads profiles, and no fitted models or runs",
            "give the file that `bellwether profile` wrote",
        ),
        (
            submit.profile_first,
            "--profile-first",
            "an operator profiles no jobs",
            "leave it out: speeds are measured while the job trains",
        ),
        (
            !submit.protocols.is_empty(),
            "--protocols",
            "an operator leaves it to the job file who waits for whom",
            "write for example --set sync.policy=asp",
        ),
        (
            submit.servers.is_some(),
            "--servers",
            "an operator leaves the number of parameter servers to the job file",
            "write for example --set sync.servers=2",
        ),
    ];
    for (is_so, place, what, hint) in refused {
        if is_so {
            return Err(Failure::invalid(place, what).hint(hint));
        }
    }
    Ok(())
}

/// The job file as it stands in an object, without what is absent and without what the object says itself.
fn file(job: &Job) -> Value {
    let mut file = json!(job);
    without_nulls(&mut file);
    if let Some(file) = file.as_object_mut() {
        file.remove("workers");
    }
    file
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|_, value| !value.is_null());
            object.values_mut().for_each(without_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// The nearest name that an object may have.
fn valid(name: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let name: String = name.chars().map(letter).collect();
    let name = name.trim_matches('-');
    let name = name.get(..NAME_MAX).unwrap_or(name).trim_end_matches('-');
    if name.is_empty() { "job".into() } else { name.into() }
}

/// What other limits change of an object, as a merge patch, once nothing is wrong with what comes of it.
pub(super) fn limited(job: &ElasticJob, limits: &Limits) -> Result<Value, Failure> {
    if limits.workers.is_none() && limits.weight.is_none() {
        return Err(Failure::invalid("body", "nothing is to change").hint("give `workers`, `weight` or both"));
    }
    let mut changed = job.clone();
    let mut spec = Map::new();
    if let Some(workers) = limits.workers {
        let pods = pods(job, workers.0)?;
        spec.insert("elastic".into(), resize(&mut changed.spec.elastic, pods));
    }
    if let Some(weight) = limits.weight {
        changed.spec.weight = weight;
        spec.insert("weight".into(), json!(weight));
    }
    crd::check(&changed).map_err(Failure::of_fields)?;
    Ok(json!({ "spec": spec }))
}

/// Changes the limits, and tells what of them has changed. A job whose size a person chooses gets one within them.
fn resize(elastic: &mut Elastic, pods: WorkerRange) -> Value {
    let WorkerRange { min, max } = pods;
    let is_manual = elastic.policy == Policy::Manual;
    if is_manual && min == max {
        // The limits stay what they are, as far as the number allows it.
        elastic.min_replicas = elastic.min_replicas.map(|fewest| fewest.min(min));
        elastic.max_replicas = elastic.max_replicas.map(|most| most.max(max));
        elastic.replicas = Some(min);
    } else {
        (elastic.min_replicas, elastic.max_replicas) = (Some(min), Some(max));
        elastic.replicas =
            elastic.replicas.map(|chosen| if is_manual { chosen.clamp(min, max) } else { chosen });
    }
    json!({
        "minReplicas": elastic.min_replicas, "maxReplicas": elastic.max_replicas, "replicas": elastic.replicas,
    })
}

/// Numbers of pods with these numbers of workers.
fn pods(job: &ElasticJob, workers: WorkerRange) -> Result<WorkerRange, Failure> {
    let slots = job.spec.slots_per_pod();
    if let Some(odd) = [workers.min, workers.max].into_iter().find(|number| number % slots != 0) {
        let what = format!("{odd} workers do not fill pods of {slots}");
        return Err(Failure::invalid("--workers", what).hint(format!("write multiples of {slots}")));
    }
    Ok(WorkerRange { min: workers.min / slots, max: workers.max / slots })
}

/// Refuses to change what is over.
pub(super) fn over(name: &str, how: &str) -> Failure {
    let error = InputError::new(name, format!("the job {how}"));
    let error = error.hint("submit it again with `bellwether submit --kubernetes`");
    Failure { status: StatusCode::CONFLICT, error }
}

#[cfg(test)]
mod tests {
    use bellwether_core::profile::Profile;
    use bellwether_serve::api::body::{Deadline, Workers};

    use super::*;

    fn submission(change: impl FnOnce(&mut Job)) -> Submit {
        let text = "
            name = 'Hand_written.digits'
            steps = 300
            workers = '1..4'
            [data]
            kind = 'digits'
            [model]
            kind = 'mlp'
            hidden = [32]
            [batch]
            size = 64
            virtual_nodes = 4
            [optimizer]
            kind = 'adam'
            learning_rate = 0.003
        ";
        let mut job = Job::clone(&*bellwether_core::parse::job(text, "job.toml", &[]).unwrap());
        change(&mut job);
        Submit { job: Some(job), ..Submit::default() }
    }

    fn range(min: u32, max: u32) -> Workers {
        Workers(WorkerRange { min, max })
    }

    #[test]
    fn a_submission_becomes_an_object() {
        let submit = Submit {
            priority: Some(2.0),
            deadline: Some(Deadline(90.5)),
            queue: Some("vision".into()),
            key: Some("0f".into()),
            ..submission(|_| {})
        };
        let wanted = Wanted::of(submit, "research").unwrap();
        assert_eq!((wanted.name(), wanted.is_named), ("hand-written-digits", false));
        let object = json!(wanted.object);
        assert_eq!(object["metadata"]["namespace"], "research");
        assert_eq!(object["metadata"]["annotations"][KEY], "0f");
        let spec = &object["spec"];
        assert_eq!(
            (&spec["elastic"]["minReplicas"], &spec["elastic"]["maxReplicas"]),
            (&json!(1), &json!(4))
        );
        assert_eq!(
            (&spec["weight"], &spec["queue"], &spec["deadlineSeconds"]),
            (&json!(2.0), &json!("vision"), &json!(91))
        );
        assert_eq!((&spec["job"]["steps"], &spec["job"]["workers"]), (&json!(300), &Value::Null));
        assert_eq!(spec["job"]["name"], "Hand_written.digits");
        // What was sent is what is read back.
        let read = crd::read(&object).unwrap();
        let state = crate::client::state::state(&read);
        assert_eq!((state.min_workers, state.max_workers, state.total_steps), (1, 4, 300));
        assert!(wanted.find(&[read]).is_some());
    }

    #[test]
    fn a_script_goes_into_an_object_that_its_pods_mount() {
        let script = |job: &mut Job| {
            job.model =
                serde_json::from_value(json!({"kind": "python", "script": "/mine/my train.py"})).unwrap();
            job.data = serde_json::from_value(json!({"kind": "python", "training_samples": 9})).unwrap();
        };
        let pods = |script: Option<&str>| {
            Some(Pods { image: Some("torch:1".into()), script: script.map(str::to_owned) })
        };
        let submit = Submit { pods: pods(Some("print(1)")), ..submission(script) };
        let Wanted { object, files, .. } = Wanted::of(submit, "research").unwrap();
        let spec = json!(object.spec);
        let path = spec["job"]["model"]["script"].as_str().unwrap();
        let (folder, file) = path.rsplit_once('/').unwrap();
        assert_eq!(json!(files[0])["data"], json!({ file: "print(1)" }));
        for role in ["coordinator", "worker"] {
            let pod = &spec[role]["template"]["spec"];
            assert_eq!(pod["containers"][0]["image"], "torch:1");
            assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], folder);
            assert_eq!(pod["volumes"][0]["configMap"]["name"], json!(files[0].metadata.name));
        }
        // One that the image has stays where it is.
        let submit = Submit { pods: pods(None), ..submission(script) };
        let Wanted { object, files, .. } = Wanted::of(submit, "research").unwrap();
        assert_eq!(json!(object.spec)["job"]["model"]["script"], "/mine/my train.py");
        assert!(files.is_empty());
        // What is not a script has none, and one that no object holds is refused.
        for (job, text) in
            [(submission(|_| {}), "print(1)".to_owned()), (submission(script), "#".repeat(1 << 20))]
        {
            let submit = Submit { pods: pods(Some(&text)), ..job };
            assert!(Wanted::of(submit, "research").is_err());
        }
    }

    #[test]
    fn workers_of_the_command_come_before_those_of_the_job_file() {
        let submit = Submit { workers: Some(range(2, 2)), ..submission(|_| {}) };
        let elastic = Wanted::of(submit, "research").unwrap().object.spec.elastic;
        assert_eq!((elastic.min_replicas, elastic.max_replicas), (Some(2), Some(2)));
    }

    #[test]
    fn a_profile_becomes_an_object_that_the_job_names() {
        let profile: Profile = serde_json::from_value(json!({
            "version": 1, "job": "digits", "source": "s", "device": "cpu", "batch": 64, "virtual_nodes": 4,
            "parameter_bytes": 8, "parts": [], "operations": [], "steps": [],
        }))
        .unwrap();
        let submit = || Submit { profile: Some(Box::new(profile.clone())), ..submission(|_| {}) };
        let wanted = Wanted::of(submit(), "research").unwrap();
        let [map] = <[ConfigMap; 1]>::try_from(wanted.files).unwrap();
        let named = wanted.object.spec.profile_ref.unwrap();
        assert_eq!(Some(&named.name), map.metadata.name.as_ref());
        let text = &map.data.unwrap()[&named.key];
        assert_eq!(serde_json::from_str::<Profile>(text).unwrap(), profile);
        let again = Wanted::of(submit(), "research").unwrap().files.remove(0);
        assert_eq!(again.metadata.name.as_ref(), Some(&named.name), "sent twice, it is there once");
    }

    #[test]
    fn names_that_are_taken_get_a_number() {
        let mut wanted = Wanted::of(submission(|job| job.name = "x".repeat(60)), "research").unwrap();
        let base = wanted.name().to_owned();
        assert_eq!(base.len(), NAME_MAX);
        let mut there = vec![wanted.object.clone()];
        for number in 2..4 {
            wanted.rename(&there, &base);
            assert!(wanted.name().ends_with(&format!("x-{number}")), "{}", wanted.name());
            assert_eq!(wanted.name().len(), NAME_MAX);
            there.push(wanted.object.clone());
        }
        let named =
            |name: &str| Wanted::of(Submit { name: Some(name.into()), ..submission(|_| {}) }, "research");
        assert!(named("digits-1").unwrap().is_named);
        let refused = named("Digits_1").unwrap_err().error;
        assert_eq!((refused.place.as_str(), refused.hint.as_str()), ("--name", "write `digits-1`"));
        assert_eq!((valid("…"), valid("a--")), ("job".into(), "a".into()));
    }

    #[test]
    fn what_pods_cannot_find_is_refused_with_its_field() {
        let relative = submission(|job| job.checkpoint.folder = Some("checkpoints".into()));
        let refused = Wanted::of(relative, "research").unwrap_err();
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(refused.error.place, "job.checkpoint.folder");
        assert!(refused.error.what.contains("`checkpoints` is relative"), "{refused:?}");
        let wrong = Wanted::of(submission(|job| job.batch.size = 0), "research").unwrap_err();
        assert_eq!(wrong.error.place, "job.batch.size");
        let early = Submit { profile_first: true, ..submission(|_| {}) };
        assert_eq!(Wanted::of(early, "research").unwrap_err().error.place, "--profile-first");
    }

    #[test]
    fn limits_become_a_patch() {
        let mut object = Wanted::of(submission(|_| {}), "research").unwrap().object;
        let patch = limited(&object, &Limits { workers: Some(range(2, 3)), weight: Some(4.0) }).unwrap();
        let elastic = json!({"minReplicas": 2, "maxReplicas": 3, "replicas": null});
        assert_eq!(patch, json!({"spec": {"elastic": elastic, "weight": 4.0}}));
        object.spec.elastic.policy = Policy::Manual;
        object.spec.elastic.replicas = Some(1);
        let patch = limited(&object, &Limits { workers: Some(range(3, 3)), weight: None }).unwrap();
        assert_eq!(patch["spec"]["elastic"], json!({"minReplicas": 1, "maxReplicas": 4, "replicas": 3}));
        object.spec.worker.slots_per_pod = Some(2);
        let odd = limited(&object, &Limits { workers: Some(range(2, 3)), weight: None }).unwrap_err();
        assert_eq!(odd.error.what, "3 workers do not fill pods of 2");
        let weight = limited(&object, &Limits { workers: None, weight: Some(-1.0) }).unwrap_err();
        assert_eq!(weight.error.place, "spec.weight");
        assert!(limited(&object, &Limits::default()).is_err());
    }
}
