//! The game of savings: what is asked of it, how far it is, and a picture of what sharing saves.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_federation::answer::format::and;
use bellwether_federation::answer::{self, Outcome, Report, Valuer};
use bellwether_federation::description::Description;
use bellwether_render::plot::HeatMap;

use super::FederateArguments;
use crate::failure::Failure;
use crate::files::write_whole;
use crate::printer::Printer;

/// # Errors
///
/// What the models refuse; members of the picture that are not there; a picture that cannot be written.
pub(super) fn savings(
    federation: &Description,
    arguments: &FederateArguments,
    printer: &Printer,
) -> Result<Report, Failure> {
    let failure = |why| arguments.failure(why);
    let valuer = Valuer::new(federation, &arguments.valuation()).map_err(failure)?;
    let mut notes = Vec::new();
    let mut shared = valuer.shared();
    let alone = valuer.alone().map_err(failure)?;
    if arguments.optimise.is_some() {
        let best = answer::best_levels(&valuer).map_err(failure)?;
        shared = best.shared;
        notes.push(best.note);
    }
    if let Some(path) = &arguments.plot {
        let map = map(federation, &valuer, &shared, &alone, arguments)?;
        write_whole(path, map.svg()?.as_bytes())?;
    }
    let progress = Progress { printer, noted: Mutex::new(Instant::now()) };
    let watch = |done: usize, all: Option<usize>| progress.note(done, all);
    let mut report =
        answer::savings(&valuer, &shared, &alone, arguments.wanted(), &watch).map_err(failure)?;
    let levels_matter = report.advice.stable == Some(false) && arguments.optimise.is_none();
    if levels_matter && shared.iter().any(|level| *level > 0) {
        notes.push("at these sharing levels; --optimise sharing looks for better ones".to_string());
    }
    report.notes.extend(notes);
    Ok(report)
}

/// The picture of two members, the first two where none are named.
fn map(
    federation: &Description,
    valuer: &Valuer,
    shared: &[u32],
    alone: &[Outcome],
    arguments: &FederateArguments,
) -> Result<HeatMap, Failure> {
    let members = &federation.members;
    let place = |name: &String| {
        members.iter().position(|member| member.name == *name).ok_or_else(|| {
            let known: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
            InputError::new("--plot-members", format!("there is no member `{name}`"))
                .hint(format!("the members are {}", and(&known)))
        })
    };
    let pair = match &arguments.plot_members[..] {
        [] if members.len() > 1 => [0, 1],
        [a, b] if a != b => [place(a)?, place(b)?],
        [] => return Err(InputError::new("--plot", "one member has no other to share with").into()),
        _ => {
            return Err(InputError::new("--plot-members", "name two members, for example north,south").into());
        }
    };
    let map = answer::map(valuer, shared, alone, pair).map_err(|why| arguments.failure(why))?;
    Ok(HeatMap {
        title: "Savings in dollars per hour, by the servers that two members share".to_string(),
        axes: pair.map(|member| format!("servers that {} shares", members[member].name)),
        levels: map.levels,
        values: map.savings,
        unit: "saved per hour".to_string(),
    })
}

/// How far the valuation is, told once a second.
struct Progress<'a> {
    printer: &'a Printer,
    noted: Mutex<Instant>,
}

impl Progress<'_> {
    fn note(&self, done: usize, all: Option<usize>) {
        if self.printer.quiet {
            return;
        }
        if let Ok(mut noted) = self.noted.try_lock()
            && noted.elapsed() >= Duration::from_secs(1)
        {
            *noted = Instant::now();
            match all {
                None => self.printer.note(format_args!("{done} coalitions valued")),
                Some(all) => self.printer.note(format_args!("{done} of {all} coalitions valued")),
            }
        }
    }
}
