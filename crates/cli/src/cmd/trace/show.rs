//! A trace's description for people.

use std::fmt::Write;

use bellwether_render::duration::{brief, column};
use bellwether_render::figure::{grouped, percent};
use bellwether_render::table::aligned;
use bellwether_sim::trace::Format;
use bellwether_sim::workload::{Arrivals, Description, Group, Summary};

/// Rows of the load over time.
const WINDOWS_MAX: usize = 14;

pub(super) fn table(description: &Description, format: Format) -> String {
    let Description { jobs, span_s, work, sizes, device_types, .. } = description;
    let timed = description.says_durations;
    let mut text = format!("{jobs} jobs ({format}) arrive within {}\n", brief(*span_s));
    let what = if timed { "durations" } else { "work" };
    let _ = writeln!(text, "{what}: {}", figures(work, timed));
    if let (Some(hours), Some(offered)) = (description.gpu_hours, description.offered_gpus) {
        let share = description.offered_load.map_or(String::new(), |load| format!(", a load of {load:.2}"));
        let _ = writeln!(
            text,
            "{} GPU-hours: {offered:.1} GPUs would be busy on average if nothing waited{share}",
            grouped(hours, 0)
        );
    }
    if let Some(at_once) = &description.concurrency {
        let _ = writeln!(
            text,
            "at once: {:.1} jobs on {:.1} GPUs on average, {} jobs and {} GPUs at most",
            at_once.mean_jobs, at_once.mean_gpus, at_once.most_jobs, at_once.most_gpus
        );
    }
    text.push('\n');
    text.push_str(&groups("GPUs", sizes, timed, *jobs));
    if !device_types.is_empty() {
        text.push('\n');
        text.push_str(&groups("type", device_types, timed, *jobs));
    }
    text.push_str(&load(description));
    text.push_str(&arrivals(description));
    text.trim_end().to_owned()
}

fn figures(work: &Summary, timed: bool) -> String {
    if !work.largest.is_finite() {
        return "not said; the tables of a model hold it".to_owned();
    }
    let Summary { mean, median, p95, p99, largest, variation } = *work;
    let shown = amounts(&[mean, median, p95, p99, largest], timed);
    let named = ["mean", "median", "p95", "p99", "longest"].iter().zip(shown);
    let named: Vec<String> = named.map(|(name, value)| format!("{name} {value}")).collect();
    format!("{}, coefficient of variation {variation:.2}", named.join(", "))
}

/// Work side by side: times in one unit, or numbers.
fn amounts(values: &[f64], timed: bool) -> Vec<String> {
    if timed { column(values) } else { values.iter().map(|value| grouped(*value, 0)).collect() }
}

fn groups(title: &str, groups: &[Group], timed: bool, jobs: usize) -> String {
    let mut rows = vec![
        [
            title,
            "jobs",
            "part",
            if timed { "mean duration" } else { "mean work" },
            "median",
            "p95",
            "GPU-hours",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    let work = |of: fn(&Summary) -> f64| {
        amounts(&groups.iter().map(|group| of(&group.work)).collect::<Vec<_>>(), timed)
    };
    let columns = [work(|work| work.mean), work(|work| work.median), work(|work| work.p95)];
    for (place, group) in groups.iter().enumerate() {
        let mut row =
            vec![group.name.clone(), group.jobs.to_string(), percent(group.jobs as f64 / jobs.max(1) as f64)];
        row.extend(columns.iter().map(|column| column[place].clone()));
        row.push(group.gpu_hours.map_or(String::new(), |hours| grouped(hours, 0)));
        rows.push(row);
    }
    aligned(&rows)
}

/// Load over time, in as many rows as an eye takes in.
fn load(description: &Description) -> String {
    let windows = &description.windows;
    if windows.len() < 2 {
        return String::new();
    }
    let every = windows.len().div_ceil(WINDOWS_MAX);
    let begin_s = windows[0].begin_s;
    let mut rows = vec![["from", "jobs", "GPUs offered", "load"].map(str::to_owned).to_vec()];
    let begins_s: Vec<f64> = windows.chunks(every).map(|chunk| chunk[0].begin_s - begin_s).collect();
    for (chunk, begin) in windows.chunks(every).zip(column(&begins_s)) {
        let length_s: f64 = chunk.iter().map(|window| window.length_s).sum();
        let device_s: f64 = chunk.iter().map(|window| window.offered_gpus * window.length_s).sum();
        let offered_s: f64 = chunk.iter().filter_map(|w| Some(w.offered_load? * w.length_s)).sum();
        let jobs: usize = chunk.iter().map(|window| window.jobs).sum();
        rows.push(vec![
            begin,
            jobs.to_string(),
            format!("{:.1}", device_s / length_s),
            if description.offered_load.is_some() {
                format!("{:.2}", offered_s / length_s)
            } else {
                String::new()
            },
        ]);
    }
    format!("\n{}", aligned(&rows))
}

fn arrivals(description: &Description) -> String {
    let Some(fit) = &description.arrivals else {
        return "\ntoo few jobs to tell how they arrive\n".to_owned();
    };
    let mut text = format!(
        "\narrivals in bins of {}: variance over mean {:.2} ({} if they were Poisson)\n",
        brief(fit.bin_s),
        fit.dispersion.index,
        match fit.dispersion.p_value {
            p if p < 1e-12 => "p < 1e-12".to_owned(),
            p => format!("p = {p:.2e}"),
        }
    );
    let mut rows = vec![["law", "parameters", "log-likelihood", "AIC", "BIC"].map(str::to_owned).to_vec()];
    for candidate in &fit.candidates {
        rows.push(vec![
            law(&candidate.law),
            candidate.parameters.to_string(),
            format!("{:.1}", candidate.log_likelihood),
            format!("{:.1}", candidate.aic),
            format!("{:.1}", candidate.bic),
        ]);
    }
    text.push_str(&aligned(&rows));
    if let (Some(gaps), Some(rates)) = (&fit.gaps, fit.candidates.first()) {
        let _ = writeln!(
            text,
            "BIC of the gaps between jobs and the classes of jobs: {} {:.1}, {} {:.1}",
            gaps.law.kind(),
            gaps.bic,
            rates.law.kind(),
            gaps.rates_bic
        );
    }
    if let Some(best) = fit.best() {
        let _ = writeln!(text, "the best of these: {}", law(best));
    }
    text
}

fn law(law: &Arrivals) -> String {
    match law {
        Arrivals::Poisson { per_hour } => format!("poisson, {:.2} per hour", per_hour.unwrap_or(f64::NAN)),
        Arrivals::Mmpp { states } => {
            let state = |state: &bellwether_sim::workload::State| {
                format!("{:.2} per hour for {}", state.per_hour, brief(state.stay.0))
            };
            format!("mmpp, {}", states.iter().map(state).collect::<Vec<_>>().join(" and "))
        }
        Arrivals::Diurnal { per_hour, days } => {
            let (low, high) = per_hour
                .iter()
                .fold((f64::MAX, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
            let week = if days.is_empty() { "" } else { ", by day of the week" };
            format!("diurnal, {low:.2} to {high:.2} per hour{week}")
        }
        Arrivals::Gaps { gaps, states } => {
            let last = gaps.last().map_or(&[][..], Vec::as_slice);
            let longest_s = last.iter().map(|gap| gap.0).fold(0.0, f64::max);
            let plural = if states.len() == 1 { "" } else { "s" };
            format!("gaps of {} kinds up to {}, {} state{plural}", gaps.len(), brief(longest_s), states.len())
        }
    }
}
