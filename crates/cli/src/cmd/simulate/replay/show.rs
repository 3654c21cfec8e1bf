//! A replay as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether::simulate::replay::{Compared, Coverage, Difference, Given, JobTimes, Replay};
use bellwether_core::cluster::JobId;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::duration::{brief, column};
use bellwether_render::figure::difference;
use bellwether_render::{self as render, table::aligned};
use serde_json::{Value, json};

use crate::options::TableFormat;

/// Allocations before and after the first that differs that are shown.
const AROUND: usize = 3;

pub(super) fn render(replay: &Replay, foresight: Option<Coverage>, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(replay) + &foresight.map_or_else(String::new, told),
        TableFormat::Json => {
            let mut value = value(replay);
            if let Some(Coverage { all, within, early }) = foresight {
                value["outlook"] = json!({ "starts": all, "within": within, "early": early });
            }
            render::json(&value)
        }
        TableFormat::Csv => csv(&replay.simulated.jobs),
    }
}

fn told(foresight: Coverage) -> String {
    let Coverage { all, within, early } = foresight;
    let late = foresight.late();
    format!(
        "\noutlook: {within} of {all} starts within the interval that is meant to hold 90 %, {early} before it, \
         {late} after it"
    )
}

fn outcome(job: &JobTimes) -> Value {
    job.outcome.map_or(json!("not ended"), |outcome| json!(outcome))
}

fn value(replay: &Replay) -> Value {
    let Replay { recorded, decisions, policy, simulated } = replay;
    let name =
        |job: JobId| recorded.state.jobs.get(&job).map_or("?", |record| record.submitted.name.as_str());
    let devices = |given: &[Given], job: JobId| -> Vec<u32> {
        given.iter().filter(|given| given.job == job).map(|given| given.devices).collect()
    };
    let one = |job: &JobTimes| {
        json!({
            "job": job.name,
            "outcome": outcome(job),
            "submitted_s": job.submitted_s,
            "measured_s": job.measured_s,
            "simulated_s": job.simulated_s,
            "gap": job.gap(),
            "measured_devices": devices(&recorded.given, job.job),
            "simulated_devices": devices(&simulated.given, job.job),
        })
    };
    let means = replay.means();
    let same = replay.common();
    let next = |given: &[Given]| {
        given.get(same).map(|given| json!({ "job": name(given.job), "devices": given.devices }))
    };
    let first = |difference: &Difference| {
        let Difference { number, time_s, recorded, replayed } = difference;
        json!({ "number": number, "time_s": time_s, "recorded": recorded, "replayed": replayed })
    };
    let compared = |Compared { all, same, first: difference, .. }: &Compared| json!({ "all": all, "same": same, "first_difference": difference.as_ref().map(first) });
    json!({
        "policy": policy,
        "time_scale": recorded.state.time_scale,
        "decisions": decisions.as_ref().map(compared),
        "start_s": simulated.start_s,
        "restart_s": simulated.restart_s,
        "jobs": simulated.jobs.iter().map(one).collect::<Vec<_>>(),
        "mean_measured_s": means.map(|(measured_s, _)| measured_s),
        "mean_simulated_s": means.map(|(_, simulated_s)| simulated_s),
        "mean_gap": means.map(|(measured_s, simulated_s)| simulated_s / measured_s - 1.0),
        // Those before a compaction are not known.
        "allocations": recorded.compacted.is_none().then(|| json!({
            "measured": recorded.given.len(),
            "simulated": simulated.given.len(),
            "same": same,
            "next_measured": next(&recorded.given),
            "next_simulated": next(&simulated.given),
        })),
        "remarks": replay.remarks(),
    })
}

fn csv(jobs: &[JobTimes]) -> String {
    let mut csv = Csv::new(["job", "outcome", "submitted_s", "measured_s", "simulated_s", "gap"]);
    for job in jobs {
        let outcome = outcome(job);
        let outcome = outcome.as_str().unwrap_or_default();
        let [measured_s, simulated_s, gap] = [job.measured_s, job.simulated_s, job.gap()].map(cell);
        csv.row(&[&job.name, &outcome, &job.submitted_s, &measured_s, &simulated_s, &gap]);
    }
    csv.text()
}

fn table(replay: &Replay) -> String {
    let Replay { recorded, decisions, policy, simulated } = replay;
    let mut text = String::new();
    if let Some(Compared { all, same, first, .. }) = decisions {
        let _ = writeln!(text, "decisions: {same} of {all} the same when the policy is asked again");
        if let Some(Difference { number, time_s, recorded, replayed }) = first {
            let _ = writeln!(text, "  the first that differs is number {number}, at {time_s:.3} s");
            let _ = writeln!(text, "  recorded: {recorded}\n  replayed: {replayed}");
        }
    }
    let (starts, start) = (recorded.starts_s.len(), brief(simulated.start_s));
    let restart = brief(simulated.restart_s);
    let _ = writeln!(
        text,
        "simulated under {policy}: a first start costs {start} (mean of {starts}), a restart {restart}"
    );
    text.push('\n');
    let gap = |gap: Option<f64>| gap.map_or("-".into(), difference);
    let devices = |given: &[Given], job: JobId| {
        let given = given.iter().filter(|given| given.job == job);
        given.map(|given| given.devices.to_string()).collect::<Vec<_>>().join(" ")
    };
    let title = ["job", "outcome", "measured", "simulated", "gap", "devices", "simulated devices"];
    let mut rows: Vec<Vec<String>> = vec![title.map(String::from).to_vec()];
    let means = replay.means();
    // Both columns have the same unit, and their means, too.
    let measured_s = simulated.jobs.iter().map(|job| job.measured_s);
    let simulated_s = simulated.jobs.iter().map(|job| job.simulated_s);
    let all: Vec<f64> = measured_s
        .chain(simulated_s)
        .map(|time_s| time_s.unwrap_or(f64::NAN))
        .chain(means.into_iter().flat_map(|(measured_s, simulated_s)| [measured_s, simulated_s]))
        .collect();
    let mut times = column(&all).into_iter();
    let measured: Vec<String> = times.by_ref().take(simulated.jobs.len()).collect();
    let replayed: Vec<String> = times.by_ref().take(simulated.jobs.len()).collect();
    rows.extend(simulated.jobs.iter().zip(measured).zip(replayed).map(|((job, measured), replayed)| {
        vec![
            job.name.clone(),
            outcome(job).as_str().unwrap_or_default().into(),
            measured,
            replayed,
            gap(job.gap()),
            devices(&recorded.given, job.job),
            devices(&simulated.given, job.job),
        ]
    }));
    if let Some((measured_s, simulated_s)) = means {
        let of_both = gap(Some(simulated_s / measured_s - 1.0));
        rows.push(["mean".into(), String::new()].into_iter().chain(times).chain([of_both]).collect());
    }
    text.push_str(&aligned(&rows));
    text.push('\n');
    if recorded.compacted.is_none() {
        text.push_str(&parting(replay));
    }
    for remark in replay.remarks() {
        let _ = writeln!(text, "{remark}");
    }
    text.trim_end().to_owned()
}

/// Where the sequences of allocations part.
fn parting(replay: &Replay) -> String {
    let (measured, simulated) = (&replay.recorded.given, &replay.simulated.given);
    let same = replay.common();
    if same == measured.len() && same == simulated.len() {
        return format!("allocations: all {same} in the same order\n");
    }
    let jobs = &replay.recorded.state.jobs;
    let from = same.saturating_sub(AROUND);
    let part = |given: &[Given]| {
        let upto = given.len().min(same + AROUND);
        let said = given[from.min(upto)..upto].iter().map(|given| {
            let name = jobs.get(&given.job).map_or("?", |record| record.submitted.name.as_str());
            format!("{name} {}", given.devices)
        });
        said.collect::<Vec<_>>().join(", ")
    };
    format!(
        "allocations: {} measured, {} simulated; {} the same\n  measured:  … {}\n  simulated: … {}\n",
        measured.len(),
        simulated.len(),
        match same {
            0 => "not even the first is".into(),
            1 => "the first is".into(),
            same => format!("the first {same} are"),
        },
        part(measured),
        part(simulated)
    )
}
