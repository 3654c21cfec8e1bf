//! The loop that asks a policy and hands its decisions to a backend: the same for every backend.

use bellwether_core::cluster::ClusterView;
use bellwether_core::policy::{Action, Backend, Decision, Fault, Policy, PolicyInput};
use bellwether_core::prediction::{Prediction, StepModel};

/// Asks `policy` whenever `backend` says that something has changed, until all is over. `model` is what the policy
/// believes.
///
/// # Errors
///
/// Returns an error if the policy breaks a law, or the backend fails.
pub fn drive(policy: &mut dyn Policy, backend: &mut dyn Backend, model: &dyn StepModel) -> Result<(), Fault> {
    let expects = backend.wants_expectations();
    let mut wakeup_s = None;
    while let Some(input) = backend.next(wakeup_s, model)? {
        let mut decision = ask(policy, &input);
        wakeup_s = decision.next_wakeup_s;
        if wakeup_s.is_some_and(|time_s| time_s.is_nan() || time_s <= input.now_s) {
            let what =
                format!("at {} s it asks to be woken at {wakeup_s:?}, which is not later", input.now_s);
            return Err(Fault::Broken(what));
        }
        if expects {
            foresee(&mut decision, input.view, model);
        }
        backend.apply(decision)?;
    }
    Ok(())
}

/// What a policy decides, and in which way each job trains where the policy leaves that open.
pub fn ask(policy: &mut dyn Policy, input: &PolicyInput<'_>) -> Decision {
    let mut decision = policy.decide(input);
    choose_ways(&mut decision, input.view, input.model);
    decision
}

/// Says in which way the workers of each job are kept together whose author left several: a job whose devices stay goes
/// on as it is.
fn choose_ways(decision: &mut Decision, view: &ClusterView, model: &dyn StepModel) {
    for action in &mut decision.actions {
        let Action::Allocate { job, allocation, batch, way, .. } = action else { continue };
        let Some(seen) = view.jobs.get(job).filter(|seen| seen.job.ways.len() > 1) else { continue };
        if way.is_some() || allocation.is_empty() {
            continue;
        }
        let best = || view.fastest_way(model, &seen.job, allocation, *batch).map(|(way, _)| way);
        *way = if *allocation == seen.allocation { seen.way.or_else(best) } else { best() };
    }
}

/// Adds what the model expects of each allocation.
fn foresee(decision: &mut Decision, view: &ClusterView, model: &dyn StepModel) {
    for action in &mut decision.actions {
        let Action::Allocate { job, allocation, batch, expected, beside, way } = action else { continue };
        let Some(seen) = view.jobs.get(job).filter(|_| expected.is_none() && !allocation.is_empty()) else {
            continue;
        };
        let way = way.unwrap_or_else(|| seen.job.way());
        let configuration = view.configuration_in(way, &seen.job, allocation, *batch);
        let description = &seen.job.description;
        let kept = match beside.and_then(|other| view.jobs.get(&other)) {
            None => Some(1.0),
            Some(other) => model.shared(description, &configuration, &other.job.description).ok().flatten(),
        };
        let alone = model.predict(description, &configuration).ok();
        *expected = alone.zip(kept).map(|(alone, kept)| slowed(alone, kept));
    }
}

/// A prediction for a job that keeps this part of its speed alone.
fn slowed(alone: Prediction, kept: f64) -> Prediction {
    Prediction {
        examples_per_s: alone.examples_per_s * kept,
        low: alone.low * kept,
        high: alone.high * kept,
        step_s: alone.step_s / kept,
        ..alone
    }
}
