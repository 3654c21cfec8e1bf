//! The result of a run as a table.

use bellwether_core::record::{
    BUSY, BatchChange, Comparison, ExpectedRun, LastEvaluation, PhaseSummary, Provisioned, Resize,
    Revocations, Summary,
};

use super::duration::written;
use super::figure::{self, difference, loss, money, percent, rate};
use super::table::facts;
use super::words::count;

/// What lost servers cost, beside what was to be expected.
fn lost_servers(revocations: &Revocations) -> Vec<(&'static str, String)> {
    let Revocations { law, time_scale, revoked, time_s, expected, server_hours, cost_dollars } = revocations;
    let scale = if *time_scale == 1.0 { String::new() } else { format!(", time × {time_scale}") };
    let expect = |text: &dyn Fn(&ExpectedRun) -> String| {
        expected.as_ref().map_or(String::new(), |expected| format!(", expected {}", text(expected)))
    };
    let lost = expect(&|e| format!("{:.1}", e.revoked));
    let time = expect(&|e| {
        let [mean, low, high] = [e.time_s, e.low_s, e.high_s].map(written);
        format!("{mean} ({low} … {high})")
    });
    let hours = expect(&|e| format!("{:.2}", e.server_hours));
    let mut rows = vec![
        ("servers lost", format!("{revoked}{lost} ({law}{scale})")),
        ("time on servers", format!("{}{time}", written(*time_s))),
        ("server-hours", format!("{server_hours:.2}{hours}")),
    ];
    if let Some(dollars) = cost_dollars {
        let cost =
            expect(&|e| format!("${:.2}", e.server_hours * dollars / server_hours.max(f64::MIN_POSITIVE)));
        rows.push(("cost", format!("${dollars:.2}{cost}")));
    }
    rows
}

/// What machines a provider gave, what they cost, and whether deadline and budget were kept.
fn machines(provisioned: &Provisioned) -> Vec<(&'static str, String)> {
    let Provisioned { provider, obtained, changes, time_s, cost_dollars, .. } = provisioned;
    let changed = match changes {
        0 => String::new(),
        1 => ", changed once to keep the plan's word".to_owned(),
        many => format!(", changed {many} times to keep the plan's word"),
    };
    let kept = |is_kept: bool| if is_kept { "kept" } else { "missed" };
    let deadline = provisioned.deadline_s.map_or(String::new(), |deadline_s| {
        format!(", deadline of {} {}", written(deadline_s), kept(*time_s <= deadline_s))
    });
    let budget = provisioned.budget_dollars.map_or(String::new(), |budget| {
        format!(", budget of {} {}", money(budget), kept(*cost_dollars <= budget))
    });
    let (expected_s, expected) = (written(provisioned.expected_time_s), provisioned.expected_cost_dollars);
    let mut rows = vec![
        ("machines", format!("{obtained} obtained from {provider}{changed}")),
        ("time of machines", format!("{}, planned {expected_s}{deadline}", written(*time_s))),
        ("cost of machines", format!("{}, planned {}{budget}", money(*cost_dollars), money(expected))),
    ];
    if provisioned.left > 0 {
        let text =
            format!("{} may still be there: `bellwether machines release --orphaned`", provisioned.left);
        rows.push(("machines left", text));
    }
    rows
}

/// Who waited for whom, and how stale updates were.
fn protocols(summary: &Summary) -> Vec<(&'static str, String)> {
    let row = |phase: &PhaseSummary| {
        let PhaseSummary { step, steps, protocol, servers, seconds, stall_s } = phase;
        let through = match *servers {
            0 => String::new(),
            n => format!(" through {}", count(n as usize, "server")),
        };
        let change_ms = stall_s * 1e3;
        let text = format!(
            "step {step}: {steps} steps {protocol}{through} in {seconds:.1} s, {change_ms:.1} ms for the change"
        );
        ("protocol", text)
    };
    let staleness = summary.staleness.iter().map(|staleness| ("staleness", staleness.to_string()));
    summary.phases.iter().map(row).chain(staleness).collect()
}

/// What the evaluation at the end said, or the last one before it.
fn evaluated(
    summary: &Summary,
    at_the_end: Option<f64>,
    of_last: impl Fn(&LastEvaluation) -> Option<f64>,
    text: &dyn Fn(Option<f64>) -> String,
) -> String {
    let last = summary.last_evaluation.as_ref().filter(|_| at_the_end.is_none());
    match last.and_then(|last| Some((last.step, of_last(last)?))) {
        Some((step, value)) => format!("{} at step {step}", text(Some(value))),
        None => text(at_the_end),
    }
}

fn accuracy(share: Option<f64>) -> String {
    share.map_or("–".into(), figure::accuracy)
}

/// What the first steps predicted beside what was measured, and whether that says anything.
fn predictions(summary: &Summary) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    // Other work was measured, too: what is wrong then is not the prediction.
    let is_busy = summary.processor_wait.is_some_and(|share| share > BUSY);
    for comparison in &summary.predictions {
        let Comparison {
            workers, predicted_examples_per_s, low, high, measured_examples_per_s, error, ..
        } = comparison;
        let told = if is_busy { String::new() } else { format!(", error {}", difference(*error)) };
        let text = format!(
            "{}: {}/s ({} … {}), measured {}/s{told}",
            count(*workers as usize, "worker"),
            rate(*predicted_examples_per_s),
            rate(*low),
            rate(*high),
            rate(*measured_examples_per_s),
        );
        rows.push(("predicted at first", text));
    }
    if let Some(share) = summary.processor_wait.filter(|_| is_busy) {
        let text = format!(
            "the machine was busy: for {:.0} % of the time a process waited for a processor, so that measured and \
             predicted speeds tell little of each other",
            share * 100.0
        );
        rows.push(("contention", text));
    }
    rows
}

/// The result as a table.
pub fn table(summary: &Summary) -> String {
    // Epochs in which only newcomers changed are of no interest here.
    let mut workers: Vec<String> = summary.workers.iter().map(u32::to_string).collect();
    workers.dedup();
    let outcome = &summary.outcome;
    let ended = [outcome.summary_word(), &outcome.reason()].join(" ");
    let mut rows = vec![("run", summary.run.clone()), ("outcome", ended.trim().to_string())];
    rows.extend(summary.ended_early.iter().map(|end| ("ended early", end.to_string())));
    rows.extend([
        ("steps", summary.steps.to_string()),
        ("examples", summary.examples.to_string()),
        ("final loss", loss(summary.final_loss)),
        ("held-out loss", evaluated(summary, summary.held_out_loss, |last| Some(last.loss), &loss)),
        ("accuracy", evaluated(summary, summary.accuracy, |last| last.accuracy, &accuracy)),
        ("examples/s", rate(summary.examples_per_s)),
        ("time", format!("{:.1} s", summary.elapsed_s)),
        ("workers", workers.join(" → ")),
        (
            "peak memory of a worker",
            format!("{:.1} MiB", summary.peak_resident_bytes as f64 / f64::from(1 << 20)),
        ),
    ]);
    rows.extend(summary.data_wait.map(|share| {
        (
            "waits for data",
            format!("{} of a step, in {}", percent(share), count(summary.data_waits as usize, "step")),
        )
    }));
    if let Some(planned) = &summary.planned {
        rows.push(("planned", planned.reason.clone()));
    }
    rows.extend(predictions(summary));
    rows.extend(summary.decisions.iter().map(|decision| ("decision", decision.sentence())));
    if let Some(boot) = summary.slowest_boot.filter(|boot| boot.importing_s > 0.0) {
        rows.push(("slowest start", boot.sentence()));
    }
    for Resize { step, from, to, stall_s, reason } in &summary.resizes {
        rows.push(("resize", format!("step {step}: {from} → {to}, {:.1} ms ({reason})", stall_s * 1e3)));
    }
    rows.extend(protocols(summary));
    for change in &summary.batches {
        let BatchChange { step, from, to, learning_rate_factor, .. } = change;
        rows.push((
            "batch",
            format!("step {step}: {from} → {to}, learning rate × {learning_rate_factor:.2}"),
        ));
    }
    rows.extend(summary.mismatches.iter().map(|mismatch| ("mismatch", mismatch.sentence())));
    for crash in &summary.crashes {
        let next =
            crash.seconds.map_or("no step followed".into(), |s| format!("next step after {:.0} ms", s * 1e3));
        rows.push(("crash", format!("step {}: worker {}, {next}", crash.step, crash.worker)));
    }
    if let Some(revocations) = &summary.revocations {
        rows.extend(lost_servers(revocations));
    }
    rows.extend(summary.provisioned.iter().flat_map(machines));
    rows.push(("parameters", summary.params_digest.clone().unwrap_or("–".into())));
    rows.push(("checkpoint", summary.checkpoint.clone().unwrap_or("–".into())));
    facts(&rows)
}
