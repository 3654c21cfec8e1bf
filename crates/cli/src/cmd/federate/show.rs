//! A federation's report as a table, as JSON, or as CSV.

use std::fmt::Write;

use bellwether_federation::answer::format::{and, figure, money};
use bellwether_federation::answer::{Market, MemberRow, Report, Share, SplitRow};
use bellwether_render as render;
use bellwether_render::csv::{Csv, cell};
use bellwether_render::figure::percent;
use bellwether_render::table::aligned;

use crate::options::TableFormat;

/// Coalitions of a table that is still read.
const COALITIONS: usize = 26;
/// Runs of the plan that are shown.
const RUNS: usize = 20;

pub(super) fn render(report: &Report, format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(report),
        TableFormat::Json => render::json(report),
        TableFormat::Csv => csv(report),
    }
}

fn table(report: &Report) -> String {
    let mut text = aligned(&members(report));
    let within = match report.half_width_dollars_per_hour {
        width if width > 0.0 => format!(" ± {}", money(width)),
        _ => String::new(),
    };
    let saved = report.saved_dollars_per_hour;
    let together =
        if report.advice.blocks.len() > 1 && report.splits.first().is_some_and(|s| s.split == "stable") {
            "so grouped, the members"
        } else {
            "all together"
        };
    let verb = if saved < 0.0 { "lose" } else { "save" };
    let _ = writeln!(text, "{together} {verb} {}{within} per hour", money(saved.abs()));
    if let Some(fluid) = report.market.as_ref().and_then(|market| market.fluid_saved_dollars_per_hour) {
        let _ = writeln!(text, "without queues and with parts of devices it would be {}", money(fluid));
    }
    if let Some(market) = &report.market {
        text.push('\n');
        text.push_str(&self::market(market));
    }
    if let [split] = &report.splits[..] {
        text.push('\n');
        text.push_str(&settlement(report, split));
    } else if !report.splits.is_empty() {
        text.push('\n');
        text.push_str(&aligned(&splits(report)));
    }
    for split in &report.splits {
        for leaver in &split.leavers {
            let _ = writeln!(
                text,
                "{}: {} would rather leave: {} more",
                split.split,
                and(&leaver.members),
                money(leaver.gain_dollars_per_hour)
            );
        }
    }
    if !report.coalitions.is_empty() && report.members.len() > 2 {
        text.push('\n');
        text.push_str(&aligned(&coalitions(report)));
    }
    text.push('\n');
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text.push_str(&report.advice.sentence);
    text
}

fn members(report: &Report) -> Vec<Vec<String>> {
    let work = report.game == "affinity";
    let forwarded = if work { ["alone: public $/h", "together"] } else { ["alone: forwarded/h", "together"] };
    let mut head = vec!["member", "owns", forwarded[0], forwarded[1], "alone: $/h"];
    let split = report.splits.first();
    if split.is_some() {
        head.extend(["saves $/h", "cost cut"]);
    }
    let figures = |forwarded: [f64; 2], alone: f64| [forwarded[0], forwarded[1], alone].map(figure);
    let mut rows = vec![head.into_iter().map(str::to_string).collect::<Vec<_>>()];
    for (place, member) in report.members.iter().enumerate() {
        let mut row = vec![member.name.clone(), member.owns.clone()];
        let forwarded = [member.alone_forwarded_per_hour, member.forwarded_per_hour];
        row.extend(figures(forwarded, member.alone_dollars_per_hour));
        if let Some(split) = split {
            let share = &split.members[place];
            row.extend([dollars(share), percent(share.cost_cut)]);
        }
        rows.push(row);
    }
    let total = |of: &dyn Fn(&MemberRow) -> f64| report.members.iter().map(of).sum::<f64>();
    let apart = total(&|member| member.alone_dollars_per_hour);
    let forwarded =
        [total(&|member| member.alone_forwarded_per_hour), total(&|member| member.forwarded_per_hour)];
    let mut row = vec!["all".to_string(), String::new()];
    row.extend(figures(forwarded, apart));
    if split.is_some() {
        row.push(figure(report.saved_dollars_per_hour));
        row.push(percent(if apart > 0.0 { report.saved_dollars_per_hour / apart } else { 0.0 }));
    }
    rows.push(row);
    rows
}

fn dollars(share: &Share) -> String {
    let width =
        share.half_width_dollars_per_hour.map_or(String::new(), |width| format!(" ± {}", figure(width)));
    format!("{}{width}", figure(share.dollars_per_hour))
}

/// Who pays whom, so that each ends with its share.
fn settlement(report: &Report, split: &SplitRow) -> String {
    let payments = split.payments();
    if payments.is_empty() {
        return format!("{}: no payments\n", split.split);
    }
    let mut text = format!("{}:\n", split.split);
    for payment in payments {
        let (from, to) = (&report.members[payment.from].name, &report.members[payment.to].name);
        let _ = writeln!(text, "  {from} pays {to} {} per hour", money(payment.dollars_per_hour));
    }
    text
}

fn splits(report: &Report) -> Vec<Vec<String>> {
    let mut head = vec!["saves $/h (cost cut)".to_string()];
    head.extend(report.members.iter().map(|member| member.name.clone()));
    head.push("no member leaves".into());
    let row = |split: &SplitRow| {
        let mut row = vec![split.split.clone()];
        row.extend(
            split.members.iter().map(|share| format!("{} ({})", dollars(share), percent(share.cost_cut))),
        );
        row.push(match split.stable {
            Some(true) => "yes".into(),
            Some(false) => "no".into(),
            None => "not known".into(),
        });
        row
    };
    std::iter::once(head).chain(report.splits.iter().map(row)).collect()
}

fn coalitions(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["coalition".to_string(), "saves $/h".into()]];
    let shown = report.coalitions.iter().take(COALITIONS);
    rows.extend(shown.map(|row| vec![row.members.join(" "), figure(row.saved_dollars_per_hour)]));
    let more = report.coalitions.len().saturating_sub(COALITIONS);
    if more > 0 {
        rows.push(vec![format!("{more} more: --format json has all")]);
    }
    rows
}

fn market(market: &Market) -> String {
    let mut rows =
        vec![vec!["what runs where".to_string(), "class".into(), "on devices of".into(), "devices".into()]];
    let shown = market.runs.iter().take(RUNS);
    rows.extend(shown.map(|run| {
        vec![
            run.of.clone(),
            run.class.clone(),
            run.on.clone(),
            format!("{} {}", figure(run.devices), run.device),
        ]
    }));
    let more = market.runs.len().saturating_sub(RUNS);
    if more > 0 {
        rows.push(vec![format!("{more} more: --format json has all")]);
    }
    let mut text = aligned(&rows);
    let prices = |prices: &[(String, f64)]| {
        prices.iter().map(|(name, price)| format!("{name} {}", money(*price))).collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(text, "market: one device for an hour: {}", prices(&market.rents));
    let _ = writeln!(text, "market: one example/s for an hour: {}", prices(&market.work));
    text
}

fn csv(report: &Report) -> String {
    let mut csv = Csv::new([
        "split",
        "member",
        "alone_forwarded_per_hour",
        "forwarded_per_hour",
        "alone_dollars_per_hour",
        "dollars_per_hour",
        "half_width_dollars_per_hour",
        "cost_cut",
        "receives_dollars_per_hour",
        "stable",
    ]);
    for split in &report.splits {
        for (member, share) in report.members.iter().zip(&split.members) {
            csv.row(&[
                &split.split,
                &member.name,
                &member.alone_forwarded_per_hour,
                &member.forwarded_per_hour,
                &member.alone_dollars_per_hour,
                &share.dollars_per_hour,
                &cell(share.half_width_dollars_per_hour),
                &share.cost_cut,
                &share.receives_dollars_per_hour,
                &cell(split.stable),
            ]);
        }
    }
    csv.text()
}
