//! The rules that a type cannot say, each in CEL and in Rust. Those in [`super::fixed()`] compare two versions of a
//! job.

use super::backend::Backend;
use super::job::{ElasticJob, Policy};
use super::queue::Queue;
use bellwether_core::queue::DEFAULT_QUEUE;

/// A rule about a resource.
#[derive(Debug)]
pub struct Rule<T: 'static> {
    /// The node of the schema that has it: names of properties, from the object's root. `self` in the rule is its
    /// value.
    pub node: &'static [&'static str],
    /// The field at fault where the rule does not hold.
    pub field: &'static str,
    /// The rule in CEL, in words that servers of 1.25 know.
    pub cel: &'static str,
    /// What is wrong where it does not hold.
    pub message: &'static str,
    /// What to do then; empty where the message says it.
    pub hint: &'static str,
    /// The rule in Rust.
    pub holds: fn(&T) -> bool,
}

const ELASTIC: &[&str] = &["spec", "elastic"];
const SPEC: &[&str] = &["spec"];

/// Whether `a ≤ b`, where both are said.
fn ordered(a: Option<u32>, b: Option<u32>) -> bool {
    a.zip(b).is_none_or(|(a, b)| a <= b)
}

fn is_native(job: &ElasticJob) -> bool {
    job.spec.is_native()
}

/// The rules about jobs.
pub static RULES: &[Rule<ElasticJob>] = &[
    Rule {
        node: ELASTIC,
        field: "spec.elastic.minReplicas",
        cel: "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        message: "minReplicas is above maxReplicas",
        hint: "lower minReplicas, or raise maxReplicas",
        holds: |job| ordered(job.spec.elastic.min_replicas, job.spec.elastic.max_replicas),
    },
    Rule {
        node: ELASTIC,
        field: "spec.elastic.replicas",
        cel: "self.policy != 'Manual' || has(self.replicas)",
        message: "policy Manual needs replicas",
        hint: "say how many workers the job should have, or choose policy Auto",
        holds: |job| job.spec.elastic.policy != Policy::Manual || job.spec.elastic.replicas.is_some(),
    },
    Rule {
        node: ELASTIC,
        field: "spec.elastic.replicas",
        cel: "self.policy != 'Manual' || !has(self.replicas) || \
              ((!has(self.minReplicas) || self.minReplicas <= self.replicas) && \
               (!has(self.maxReplicas) || self.replicas <= self.maxReplicas))",
        message: "replicas is not within minReplicas and maxReplicas",
        hint: "change it, or the limits",
        holds: |job| {
            let elastic = &job.spec.elastic;
            elastic.policy != Policy::Manual
                || (ordered(elastic.min_replicas, elastic.replicas)
                    && ordered(elastic.replicas, elastic.max_replicas))
        },
    },
    Rule {
        node: ELASTIC,
        field: "spec.elastic.step",
        cel: "!has(self.step) || !has(self.discreteSizes)",
        message: "step and discreteSizes exclude each other",
        hint: "leave one of them out",
        holds: |job| job.spec.elastic.step.is_none() || job.spec.elastic.discrete_sizes.is_none(),
    },
    Rule {
        node: ELASTIC,
        field: "spec.elastic.discreteSizes",
        cel: "!has(self.discreteSizes) || self.discreteSizes.all(size, \
              (!has(self.minReplicas) || self.minReplicas <= size) && \
              (!has(self.maxReplicas) || size <= self.maxReplicas))",
        message: "discreteSizes has sizes that are not within minReplicas and maxReplicas",
        hint: "leave them out, or change the limits",
        holds: |job| {
            let elastic = &job.spec.elastic;
            let fits = |size: u32| {
                ordered(elastic.min_replicas, Some(size)) && ordered(Some(size), elastic.max_replicas)
            };
            elastic.discrete_sizes.iter().flatten().all(|size| fits(*size))
        },
    },
    Rule {
        node: ELASTIC,
        field: "spec.elastic.discreteSizes",
        cel: "!has(self.discreteSizes) || (self.discreteSizes.isSorted() && \
              self.discreteSizes.all(size, self.discreteSizes.exists_one(other, other == size)))",
        message: "discreteSizes does not rise",
        hint: "write each size once, the smallest first",
        holds: |job| {
            let sizes = job.spec.elastic.discrete_sizes.as_deref().unwrap_or_default();
            sizes.is_sorted_by(|a, b| a < b)
        },
    },
    Rule {
        node: SPEC,
        field: "spec.job",
        cel: "self.rendezvous.backend != 'native' || has(self.job)",
        message: "the backend native needs job",
        hint: "write the job file as JSON there, or choose another rendezvous.backend",
        holds: |job| !is_native(job) || job.spec.job.is_some(),
    },
    Rule {
        node: SPEC,
        field: "spec.job",
        cel: "self.rendezvous.backend == 'native' || !has(self.job)",
        message: "only the backend native trains a job file",
        hint: "leave job out; work says what there is to do",
        holds: |job| is_native(job) || job.spec.job.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.work",
        cel: "self.rendezvous.backend != 'native' || !has(self.work)",
        message: "the job file says what there is to do",
        hint: "leave work out",
        holds: |job| !is_native(job) || job.spec.work.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.work",
        cel: "self.rendezvous.backend == 'native' || has(self.work)",
        message: "work is missing: schedulers have to know what remains to be done",
        hint: "write work.samples, or work.steps and work.batchSize",
        holds: |job| is_native(job) || job.spec.work.is_some(),
    },
    Rule {
        node: SPEC,
        field: "spec.worker.template",
        cel: "self.rendezvous.backend == 'native' || has(self.worker.template)",
        message: "worker.template is missing: it has the image and the command that trains",
        hint: "",
        holds: |job| is_native(job) || job.spec.worker.template.is_some(),
    },
    Rule {
        node: SPEC,
        field: "spec.server",
        cel: "self.rendezvous.backend != 'torchrun' || !has(self.server)",
        message: "the backend torchrun has no parameter servers",
        hint: "leave server out",
        holds: |job| job.spec.rendezvous.backend != Backend::Torchrun || job.spec.server.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.coordinator",
        cel: "self.rendezvous.backend == 'native' || !has(self.coordinator)",
        message: "only the backend native has a coordinator",
        hint: "leave coordinator out",
        holds: |job| is_native(job) || job.spec.coordinator.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.checkpoint",
        cel: "self.rendezvous.backend == 'native' || !has(self.checkpoint)",
        message: "only the backend native has its checkpoints written for it",
        hint: "leave checkpoint out, and give the script a volume in worker.template",
        holds: |job| is_native(job) || job.spec.checkpoint.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.profileRef",
        cel: "self.rendezvous.backend == 'native' || !has(self.profileRef)",
        message: "only jobs of the backend native can be profiled",
        hint: "leave profileRef out: the speed is learnt while the job runs",
        holds: |job| is_native(job) || job.spec.profile_ref.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.rendezvous.throughput",
        cel: "self.rendezvous.backend != 'native' || !has(self.rendezvous.throughput)",
        message: "the backend native measures its throughput itself",
        hint: "leave rendezvous.throughput out",
        holds: |job| !is_native(job) || job.spec.rendezvous.throughput.is_none(),
    },
    Rule {
        node: SPEC,
        field: "spec.checkpoint.secretRef",
        cel: "!has(self.checkpoint) || !has(self.checkpoint.secretRef) || has(self.checkpoint.url) || \
              (has(self.job) && has(self.job.checkpoint) && has(self.job.checkpoint.url))",
        message: "checkpoint.secretRef is for an object store, and there is no checkpoint.url",
        hint: "write the store's URL, or leave the secret out",
        holds: |job| {
            let of_job = job.spec.job.as_ref().is_some_and(|job| !job["checkpoint"]["url"].is_null());
            let checkpoint = job.spec.checkpoint.as_ref();
            checkpoint.is_none_or(|checkpoint| {
                checkpoint.secret_ref.is_none() || checkpoint.url.is_some() || of_job
            })
        },
    },
    Rule {
        node: &["spec", "work"],
        field: "spec.work",
        cel: "has(self.samples) != has(self.steps)",
        message: "exactly one of samples and steps is given",
        hint: "",
        holds: |job| job.spec.work.as_ref().is_none_or(|work| work.samples.is_some() != work.steps.is_some()),
    },
    Rule {
        node: &["spec", "work"],
        field: "spec.work.batchSize",
        cel: "!has(self.steps) || has(self.batchSize)",
        message: "steps need batchSize: speeds are in samples per second",
        hint: "say how many samples a step takes, over all workers",
        holds: |job| {
            job.spec.work.as_ref().is_none_or(|work| work.steps.is_none() || work.batch_size.is_some())
        },
    },
    Rule {
        node: &["spec", "failurePolicy"],
        field: "spec.failurePolicy.rules",
        cel: "!has(self.rules) || !self.rules.exists(rule, !has(rule.onExitCodes) && !rule.nodeGone) || \
              (self.rules.exists_one(rule, !has(rule.onExitCodes) && !rule.nodeGone) && \
               !has(self.rules[self.rules.size() - 1].onExitCodes) && !self.rules[self.rules.size() - 1].nodeGone)",
        message: "a rule without onExitCodes and nodeGone fits every failure, and rules stand behind it",
        hint: "put it last",
        holds: |job| {
            let rules = &job.spec.failure_policy.rules;
            rules.split_last().is_none_or(|(_, before)| before.iter().all(|rule| !rule.fits_all()))
        },
    },
];

/// The rules about queues.
pub(super) static QUEUE_RULES: &[Rule<Queue>] = &[
    Rule {
        node: &[],
        field: "spec.parent",
        cel: "self.metadata.name != 'default' || !has(self.spec.parent)",
        message: "jobs that name no queue are in `default`, which has no parent",
        hint: "leave parent out, or give the queue another name",
        holds: |queue| queue.metadata.name.as_deref() != Some(DEFAULT_QUEUE) || queue.spec.parent.is_none(),
    },
    Rule {
        node: &[],
        field: "spec.parent",
        cel: "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
        message: "a queue cannot be below itself",
        hint: "leave parent out, or name another queue",
        holds: |queue| queue.spec.parent.is_none() || queue.spec.parent != queue.metadata.name,
    },
    Rule {
        node: SPEC,
        field: "spec.guaranteed",
        cel: "(!has(self.guaranteed) || !('all' in self.guaranteed) || self.guaranteed.size() == 1) && \
              (!has(self.limit) || !('all' in self.limit) || self.limit.size() == 1)",
        message: "the key `all` means every type of device, and stands alone",
        hint: "keep `all`, or name each type",
        holds: |queue| {
            let is_alone = |amounts: &std::collections::BTreeMap<_, _>| {
                !amounts.contains_key("all") || amounts.len() == 1
            };
            is_alone(&queue.spec.guaranteed) && is_alone(&queue.spec.limit)
        },
    },
    // An object alone does not tell whether it changed: in Rust the queues that jobs wait in tell it.
    Rule {
        node: SPEC,
        field: "spec.parent",
        cel: "has(self.parent) == has(oldSelf.parent) && (!has(self.parent) || self.parent == oldSelf.parent)",
        message: "parent cannot be changed: jobs wait in the queue by its place",
        hint: "create another queue",
        holds: |_| true,
    },
];
