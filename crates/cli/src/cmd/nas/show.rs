//! What a search found, as a table or as JSON.

use std::fmt::Write;

use bellwether_core::job::architecture_text;
use bellwether_core::units::{Bytes, Dollars};
use bellwether_render as render;
use bellwether_render::duration::{precise, written};
use bellwether_render::table::aligned;
use serde_json::{Value, json};

use super::{Outcome, supernets};
use crate::options::Format;

pub(super) fn render(outcome: &Outcome<'_>, format: Format) -> String {
    match format {
        Format::Table => table(outcome),
        Format::Json => render::json(&value(outcome)),
    }
}

fn table(outcome: &Outcome<'_>) -> String {
    let findings = outcome.findings;
    let seconds: f64 = outcome.trained.iter().map(|trained| trained.seconds).sum();
    let mut text = format!(
        "{:<10} {}, {} of training\n{:<10} {} different architectures in {} questions\n",
        "trained",
        supernets(outcome.trained.len()),
        written(seconds),
        "searched",
        findings.found.len(),
        findings.evaluations,
    );
    if let Some(predictor) = outcome.predictor {
        let (time, memory) = predictor.left_out_errors();
        let memory = memory.map_or(String::new(), |error| format!(", the memory by {:.1} %", error * 100.0));
        let _ = writeln!(
            text,
            "{:<10} from {} that were measured; left-out ones are off by {:.1} % in the step time{memory}",
            "predicted",
            predictor.measured.len(),
            time * 100.0,
        );
    }
    let mut rows =
        vec![["", "accuracy", "loss", "step", "memory", "price", "architecture"].map(String::from).to_vec()];
    let none = || "–".to_string();
    for (place, found) in findings.found.iter().take(outcome.file.search.top).enumerate() {
        let costs = found.costs.as_ref();
        let memory = costs.and_then(|costs| costs.memory_bytes);
        let dollars = costs.and_then(|costs| costs.dollars);
        rows.push(vec![
            (place + 1).to_string(),
            format!("{:.2} %", found.score.accuracy * 100.0),
            format!("{:.4}", found.score.loss),
            costs.map_or_else(none, |costs| precise(costs.step_s)),
            memory.map_or_else(none, |bytes| Bytes(bytes.max(0.0) as u64).to_string()),
            dollars.map_or_else(none, |dollars| Dollars::new(dollars).to_string()),
            architecture_text(&found.architecture),
        ]);
    }
    text.push('\n');
    text.push_str(&aligned(&rows));
    let _ = write!(text, "\n{:<10} `bellwether run {}` trains it", "the best", outcome.winner.display());
    text
}

fn value(outcome: &Outcome<'_>) -> Value {
    let supernets: Vec<Value> = outcome
        .family
        .iter()
        .zip(outcome.trained)
        .map(|(member, trained)| {
            json!({
                "run": trained.run,
                "level": member.level,
                "architectures": member.cell.count(),
                "seconds": trained.seconds,
                "accuracy": trained.accuracy,
            })
        })
        .collect();
    let found: Vec<Value> = outcome
        .findings
        .found
        .iter()
        .map(|found| {
            let costs = found.costs.map(|costs| {
                json!({
                    "step_s": costs.step_s,
                    "step_interval_s": [costs.step_interval_s.0, costs.step_interval_s.1],
                    "memory_bytes": costs.memory_bytes,
                    "dollars": costs.dollars,
                })
            });
            json!({
                "architecture": architecture_text(&found.architecture),
                "accuracy": found.score.accuracy,
                "loss": found.score.loss,
                "predicted": costs,
            })
        })
        .collect();
    let predictor = outcome.predictor.map(|predictor| {
        let (step_time, memory) = predictor.left_out_errors();
        json!({
            "measured": predictor.measured,
            "level": predictor.level(),
            "left_out_error": { "step_time": step_time, "memory": memory },
        })
    });
    json!({
        "supernets": supernets,
        "evaluations": outcome.findings.evaluations,
        "predictor": predictor,
        "found": found,
        "winner": outcome.winner,
    })
}
