//! `bellwether machines`: what runs hold of a provider's machines and what it costs; and how to give it back.

use std::path::Path;
use std::process::ExitCode;

use bellwether_core::InputError;
use bellwether_core::lease::Row;
use bellwether_core::machines::Phase;
use bellwether_core::plan::Market;
use bellwether_render::duration::rough;
use bellwether_render::figure::money;
use bellwether_render::json_line;
use bellwether_render::table::{NOTHING, fitted, width};
use bellwether_render::words::count;
use bellwether_runtime::journal::now_s;
use bellwether_session::machines::{Found, Leased, Released, leases, release};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::options::{Format, StateArguments};
use crate::printer::Printer;
use crate::runs::StateDir;

const TITLES: [&str; 9] = ["MACHINE", "RUN", "PROVIDER", "KIND", "STATE", "WHERE", "AGE", "PER HOUR", "COST"];

/// Columns that a narrow terminal does without, the first one first.
const SPARE: [&str; 3] = ["WHERE", "PER HOUR", "AGE"];

#[derive(Debug, Args)]
pub(crate) struct MachinesArguments {
    #[command(subcommand)]
    what: Option<What>,
    /// Also leases that hold nothing any more, with what they have cost
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    state: StateArguments,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Give machines back whose run is gone, and wait until none is left
    Release(ReleaseArguments),
}

#[derive(Debug, Args)]
struct ReleaseArguments {
    /// Runs or leases whose machines are given back
    #[arg(value_name = "RUN|LEASE", required_unless_present = "orphaned")]
    names: Vec<String>,
    /// All machines that no process holds
    #[arg(long, conflicts_with = "names")]
    orphaned: bool,
    #[command(flatten)]
    state: StateArguments,
}

pub(crate) fn machines(arguments: MachinesArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    match arguments.what {
        Some(What::Release(arguments)) => give_back(arguments, printer),
        None => list(arguments, printer),
    }
}

fn list(arguments: MachinesArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let state_dir = StateDir::find(arguments.state.state_dir)?;
    let all = leases(&state_dir, &mut |error| printer.error(&error))?;
    let now_s = now_s();
    let shown: Vec<&Leased> =
        all.iter().filter(|leased| arguments.all || !leased.machines().is_empty()).collect();
    for leased in &all {
        if let Err(error) = &leased.listed {
            printer.note(format_args!(
                "lease {}: {error}; what it has asked for may be there",
                leased.lease.lease
            ));
        }
    }
    match arguments.state.format {
        Format::Json => shown.iter().for_each(|leased| printer.out(json_line(&as_json(leased, now_s)))),
        Format::Table => table(&shown, now_s, printer),
    }
    let orphaned = shown.iter().filter(|leased| !leased.is_held && !leased.machines().is_empty()).count();
    if orphaned > 0 {
        printer
            .note("no process holds some of them: `bellwether machines release --orphaned` gives these back");
    }
    Ok(ExitCode::SUCCESS)
}

fn table(shown: &[&Leased], now_s: f64, printer: &Printer) {
    let mut rows = vec![TITLES.map(String::from).to_vec()];
    let (mut per_hour, mut cost, mut there) = (0.0, 0.0, 0);
    for leased in shown {
        let machines = leased.machines();
        for found in &machines {
            rows.push(cells(leased, found, now_s));
            if let Some(row) = &found.row {
                per_hour += row.dollars_per_hour;
            }
        }
        there += machines.len();
        cost += leased.lease.dollars(now_s);
        if machines.is_empty() {
            rows.push(empty(leased, now_s));
        }
    }
    if rows.len() == 1 {
        printer.out("no machines are held");
        return;
    }
    printer.out(fitted(rows, &SPARE, width()));
    let held = count(there, "machine");
    printer.out(format_args!(
        "{held}, {} per hour; {} so far, with those that are over",
        money(per_hour),
        money(cost)
    ));
}

/// A lease that holds nothing any more.
fn empty(leased: &Leased, now_s: f64) -> Vec<String> {
    let lease = &leased.lease;
    let ran = lease.machines.iter().filter(|row| row.running_s.is_some()).count();
    let mut cells = vec![NOTHING.to_owned(); TITLES.len()];
    cells[0].clone_from(&lease.lease);
    cells[1] = name_of(&lease.run);
    cells[2].clone_from(&lease.provider);
    cells[4] = format!("{} over", count(ran, "machine"));
    cells[8] = money(lease.dollars(now_s));
    cells
}

fn cells(leased: &Leased, found: &Found, now_s: f64) -> Vec<String> {
    let lease = &leased.lease;
    let row = found.row.as_ref();
    let place = match &found.phase {
        Some(Phase::Runs { place, .. }) => place.clone(),
        _ => NOTHING.into(),
    };
    let age = row.map_or(NOTHING.into(), |row| rough(now_s - row.running_s.unwrap_or(row.requested_s)));
    vec![
        format!("{}-{}", lease.lease, found.number),
        name_of(&lease.run),
        lease.provider.clone(),
        row.map_or(NOTHING.into(), |row| row.pool.to_string()),
        state(leased, found),
        place,
        age,
        row.map_or(NOTHING.into(), |row| money(row.dollars_per_hour)),
        row.map_or(NOTHING.into(), |row| money(row.dollars(now_s))),
    ]
}

fn state(leased: &Leased, found: &Found) -> String {
    let state = match &found.phase {
        Some(Phase::Waits { .. }) => "waits",
        Some(Phase::Runs { notice: Some(_), .. }) => "leaves",
        Some(Phase::Runs { notice: None, .. }) => "runs",
        Some(Phase::Ended { .. }) => "over",
        None if leased.listed.is_err() => "unknown",
        None => "requested",
    };
    if leased.is_held { state.to_owned() } else { format!("{state}, orphaned") }
}

fn as_json(leased: &Leased, now_s: f64) -> Value {
    let lease = &leased.lease;
    let machine = |found: &Found| {
        let row = found.row.as_ref();
        json!({
            "tag": format!("{}-{}", lease.lease, found.number),
            "machine": row.map(|row| &row.pool.machine),
            "is_transient": row.map(|row| row.pool.market == Market::Transient),
            "state": state(leased, found),
            "running_s": row.and_then(|row| Some(now_s - row.running_s?)),
            "dollars_per_hour": row.map(|row| row.dollars_per_hour),
            "cost_dollars": row.map(|row| row.dollars(now_s)),
        })
    };
    let ran = |row: &&Row| row.running_s.is_some();
    json!({
        "lease": lease.lease,
        "run": lease.run,
        "provider": lease.provider,
        "is_held": leased.is_held,
        "machines": leased.machines().iter().map(machine).collect::<Vec<_>>(),
        "obtained": lease.machines.iter().filter(ran).count(),
        "cost_dollars": lease.dollars(now_s),
        "error": leased.listed.as_ref().err(),
    })
}

fn give_back(arguments: ReleaseArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let ReleaseArguments { names, orphaned, state } = arguments;
    let state_dir = StateDir::find(state.state_dir)?;
    let all = leases(&state_dir, &mut |error| printer.error(&error))?;
    for name in &names {
        if !all.iter().any(|leased| is_meant(leased, name)) {
            let hint = "`bellwether machines --all` lists all leases with their runs";
            return Err(InputError::new(name, "no run or lease of this name has had machines")
                .hint(hint)
                .into());
        }
    }
    let mut results: Vec<Released> = Vec::new();
    let mut refused = false;
    for leased in &all {
        let is_named = names.iter().any(|name| is_meant(leased, name));
        // Where the provider does not answer, what was asked for may be there.
        let has_any = !leased.machines().is_empty() || leased.listed.is_err();
        if !(is_named || orphaned && has_any) {
            continue;
        }
        match release(&state_dir, &leased.lease)? {
            Some(released) => results.push(released),
            None if is_named => {
                let what = format!("its run goes on, and holds the lease {}", leased.lease.lease);
                let hint = format!(
                    "`bellwether stop {}` stops it, and gives its machines back",
                    name_of(&leased.lease.run)
                );
                printer.error(&InputError::new(name_of(&leased.lease.run), what).hint(hint));
                refused = true;
            }
            // A run that goes on keeps its machines.
            None => {}
        }
    }
    report(&results, state.format, printer);
    let failed = results.iter().any(|released| released.trouble.is_some());
    Ok(if failed || refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn report(results: &[Released], format: Format, printer: &Printer) {
    for Released { lease, run, released, trouble } in results {
        match (format, trouble) {
            (Format::Json, _) => printer.out(json_line(
                &json!({ "lease": lease, "run": run, "released": released, "error": trouble }),
            )),
            (Format::Table, None) => printer.out(format_args!(
                "{} of {} released (lease {lease})",
                count(*released as usize, "machine"),
                name_of(run)
            )),
            (Format::Table, Some(why)) => {
                let hint = "say it again when the provider answers, or end them there by their tags";
                let what = format!("machines of the lease {lease} may still be there: {why}");
                printer.error(&InputError::new(name_of(run), what).hint(hint));
            }
        }
    }
    if results.is_empty() && format == Format::Table {
        printer.out("no machines are left to be given back");
    }
}

fn is_meant(leased: &Leased, name: &str) -> bool {
    leased.lease.lease == name || name_of(&leased.lease.run) == name || leased.lease.run == name
}

/// The name of a run in this folder.
fn name_of(run: &str) -> String {
    let name = Path::new(run).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| run.to_owned())
}
