//! What has to be seen to without news of any object: jobs that were removed, and progress of those that train.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bellwether_serve::request::Request;
use bellwether_serve::snapshot::JobState;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep};

use crate::controller::Context;
use crate::crd::ElasticJob;
use crate::reconcile::News;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(250);

/// Time between two looks at jobs of which only progress is new, and at which jobs were removed.
const PROGRESS: Duration = Duration::from_secs(10);
const REMOVED: Duration = Duration::from_secs(2);

/// Looks again and again.
pub(super) async fn run(context: Arc<Context>, jobs: Store<ElasticJob>, wake: broadcast::Sender<String>) {
    if jobs.wait_until_ready().await.is_err() {
        return;
    }
    let mut seen: BTreeMap<String, (Arc<JobState>, Instant)> = BTreeMap::new();
    let mut removed_at = Instant::now();
    let mut version = 0;
    loop {
        sleep(PERIOD).await;
        let snapshot = context.engine.now();
        if snapshot.version != version {
            version = snapshot.version;
            for (run, state) in &snapshot.jobs {
                let before = seen.get(run);
                let is_due = before.is_none_or(|(before, at)| {
                    !Arc::ptr_eq(before, state) && (differs(before, state) || at.elapsed() >= PROGRESS)
                });
                if is_due {
                    seen.insert(run.clone(), (Arc::clone(state), Instant::now()));
                    // Without a listener nothing is told.
                    let _ = wake.send(run.clone());
                }
            }
        }
        if removed_at.elapsed() >= REMOVED {
            removed_at = Instant::now();
            forget_removed(&context, &jobs).await;
        }
    }
}

/// Whether more than progress has changed.
fn differs(a: &JobState, b: &JobState) -> bool {
    let of = |state: &JobState| {
        (
            state.state,
            state.workers,
            state.target_workers,
            state.why.clone(),
            state.preemptions,
            state.ended_s,
        )
    };
    of(a) != of(b)
}

/// The engine ends the runs of jobs that are not there any more; Kubernetes removes their pods.
async fn forget_removed(context: &Context, jobs: &Store<ElasticJob>) {
    let there: std::collections::BTreeSet<String> = jobs.state().iter().filter_map(|job| job.uid()).collect();
    for (uid, run) in context.removed(&there) {
        let Some(run) = run else {
            context.forget(&uid);
            continue;
        };
        // One that has ended is left alone.
        let _ = context.engine.ask(Request::Cancel { job: run.clone() }).await;
        if context.has_no_pods(&uid) {
            context.desk.tell(&run, &News::Lost("it was removed".into()));
            context.desk.forget(&run);
            context.forget(&uid);
        }
    }
}
