//! Kubernetes, as far as the client needs it: the elastic jobs of a namespace and their pods.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use bellwether_serve::api::body::{Limits, Submit};
use bellwether_serve::snapshot::{JobState, Phase};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::failure::{Asked, Failure, no_job};
use super::object::{Wanted, limited, over};
use super::state::{state, submitted_s};
use crate::crd::ElasticJob;

/// How long Kubernetes may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clients that follow a job ask four times a second; Kubernetes is asked once in this time.
const RECENT: Duration = Duration::from_secs(1);

/// Objects in an answer to a list.
const PAGE: u32 = 500;

/// How often another name is tried where others submit jobs of the same name at the same time.
const ATTEMPTS: usize = 20;

/// Most letters of any object's name.
const NAME_MAX: usize = 253;

/// The jobs of a namespace.
pub(super) struct Cluster {
    client: kube::Client,
    namespace: String,
    url: String,
    has_answered: AtomicBool,
    recent: Mutex<BTreeMap<String, (Instant, JobState)>>,
}

/// Whether this can be the name of an object; anything else could be another path of the server.
pub(super) fn is_name(name: &str) -> bool {
    let letter = |letter: u8| matches!(letter, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let ends = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= NAME_MAX && bytes.iter().copied().all(letter) && ends(bytes.first()) && ends(bytes.last())
}

/// Whether an object could not be created because there is one of its name.
fn is_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

impl Cluster {
    pub(super) fn new(client: kube::Client, namespace: String, url: String) -> Cluster {
        let recent = Mutex::new(BTreeMap::new());
        Cluster { client, namespace, url, has_answered: AtomicBool::new(false), recent }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn api(&self) -> Api<ElasticJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The pods of the namespace.
    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A question about elastic jobs.
    fn asked<'a>(&'a self, verb: &'a str, name: Option<&'a str>) -> Asked<'a> {
        self.asked_of("elasticjobs", verb, name)
    }

    /// A question about something else.
    pub(super) fn asked_of<'a>(
        &'a self,
        resource: &'a str,
        verb: &'a str,
        name: Option<&'a str>,
    ) -> Asked<'a> {
        let is_known = self.has_answered.load(Ordering::Relaxed);
        Asked { verb, resource, name, namespace: &self.namespace, url: &self.url, is_known }
    }

    /// Waits for an answer, though not for ever.
    pub(super) async fn answer<T>(
        &self,
        asked: Asked<'_>,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        self.answer_or(asked, answer).await?.map_err(|error| asked.failed(&error))
    }

    /// The same, where an error may be an answer, too.
    pub(super) async fn answer_or<T>(
        &self,
        asked: Asked<'_>,
        answer: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, Failure> {
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let answer = answer.map_err(|_| asked.late(PATIENCE.as_secs()))?;
        if matches!(answer, Ok(_) | Err(kube::Error::Api(_))) {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        Ok(answer)
    }

    /// All objects, in the order of their creation.
    async fn objects(&self) -> Result<Vec<ElasticJob>, Failure> {
        let api = self.api();
        let (mut objects, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut page = ListParams::default().limit(PAGE);
            page.continue_token = next.take();
            let list = self.answer(self.asked("list", None), api.list(&page)).await?;
            objects.extend(list.items);
            next = list.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
        objects.sort_by(|a, b| {
            submitted_s(a).total_cmp(&submitted_s(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
        });
        Ok(objects)
    }

    /// All jobs, in the order of submission.
    pub(super) async fn jobs(&self) -> Result<Vec<JobState>, Failure> {
        Ok(self.objects().await?.iter().map(state).collect())
    }

    /// An object.
    pub(super) async fn object(&self, name: &str) -> Result<ElasticJob, Failure> {
        if !is_name(name) {
            return Err(no_job(name, &self.namespace));
        }
        self.answer(self.asked("get", Some(name)), self.api().get(name)).await
    }

    /// A job, as it was a second ago at most.
    pub(super) async fn job(&self, name: &str) -> Result<JobState, Failure> {
        let known = self.recent().get(name).cloned();
        if let Some((_, job)) = known.filter(|(at, _)| at.elapsed() < RECENT) {
            return Ok(job);
        }
        let job = self.object(name).await?;
        Ok(self.seen(&job))
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Instant, JobState)>> {
        self.recent.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What was just heard of a job.
    fn seen(&self, job: &ElasticJob) -> JobState {
        let state = state(job);
        self.recent().insert(state.name.clone(), (Instant::now(), state.clone()));
        state
    }

    /// Creates the object of a submission; says whether it was not there before.
    pub(super) async fn submit(&self, submit: Submit) -> Result<(JobState, bool), Failure> {
        let mut wanted = Wanted::of(submit, &self.namespace)?;
        for file in &wanted.files {
            self.keep(file).await?;
        }
        let (api, base, parameters) = (self.api(), wanted.name().to_owned(), PostParams::default());
        for _ in 0..ATTEMPTS {
            let name = wanted.name().to_owned();
            let asked = self.asked("create", Some(&name));
            let created = api.create(&parameters, &wanted.object);
            match self.answer_or(asked, created).await? {
                Ok(job) => return Ok((self.seen(&job), true)),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(asked.failed(&error)),
            }
            let objects = self.objects().await?;
            if let Some(job) = wanted.find(&objects) {
                return Ok((self.seen(job), false));
            }
            if wanted.is_named {
                break;
            }
            wanted.rename(&objects, &base);
        }
        let what = format!("the namespace `{}` has an elastic job `{}`", self.namespace, wanted.name());
        let failure = Failure::new(StatusCode::CONFLICT, "--name", what);
        Err(failure.hint("choose another name, or leave it out"))
    }

    /// Writes down what a job refers to, unless it is there.
    async fn keep(&self, file: &ConfigMap) -> Result<(), Failure> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let asked = self.asked_of("configmaps", "create", file.metadata.name.as_deref());
        match self.answer_or(asked, api.create(&PostParams::default(), file)).await? {
            Err(error) if !is_taken(&error) => Err(asked.failed(&error)),
            _ => Ok(()),
        }
    }

    /// What a submission would create: an object, or a list of that and what it refers to.
    pub(super) fn manifest(&self, submit: Submit) -> Result<Value, Failure> {
        let wanted = Wanted::of(submit, &self.namespace)?;
        let mut object = json!(wanted.object);
        // A key is for one submission.
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("annotations");
        }
        if wanted.files.is_empty() {
            return Ok(object);
        }
        let items: Vec<Value> = wanted.files.iter().map(|file| json!(file)).chain([object]).collect();
        Ok(json!({"apiVersion": "v1", "kind": "List", "items": items}))
    }

    /// An object that can still be changed.
    async fn changeable(&self, name: &str) -> Result<ElasticJob, Failure> {
        let job = self.object(name).await?;
        match state(&job).state {
            Phase::Finished => Err(over(name, "is finished")),
            Phase::Failed => Err(over(name, "has failed")),
            Phase::Cancelled => Err(over(name, "was cancelled")),
            _ => Ok(job),
        }
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<JobState, Failure> {
        let (api, patch) = (self.api(), Patch::Merge(patch));
        let parameters = PatchParams::default();
        let patched = api.patch(name, &parameters, &patch);
        let job = self.answer(self.asked("patch", Some(name)), patched).await?;
        Ok(self.seen(&job))
    }

    /// Changes the limits of a job.
    pub(super) async fn limit(&self, name: &str, limits: &Limits) -> Result<JobState, Failure> {
        let job = self.changeable(name).await?;
        self.patch(name, &limited(&job, limits)?).await
    }

    /// Lets a job wait, or go on.
    pub(super) async fn suspend(&self, name: &str, is_to_wait: bool) -> Result<JobState, Failure> {
        let job = self.changeable(name).await?;
        if job.spec.suspend == is_to_wait {
            return Ok(self.seen(&job));
        }
        self.patch(name, &json!({ "spec": { "suspend": is_to_wait } })).await
    }

    /// Deletes an object; tells of the job as it was.
    pub(super) async fn remove(&self, name: &str) -> Result<JobState, Failure> {
        let job = self.object(name).await?;
        let (api, parameters) = (self.api(), DeleteParams::default());
        self.answer(self.asked("delete", Some(name)), api.delete(name, &parameters)).await?;
        self.recent().remove(name);
        Ok(state(&job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_become_a_part_of_a_path() {
        assert!(is_name("digits-2") && is_name("a.b"));
        let long = "a".repeat(NAME_MAX + 1);
        for wrong in ["", "..", "a/b", "../pods/x", "a?x", "A", "é", "-a", "a b", "a%2F", &long] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
