//! Refuses systems that cannot be simulated, and says which site or class, why, and what to do.

use bellwether_core::InputError;

use super::{Arrivals, Class, Law, Site, System};
use bellwether_core::check;

/// A modulated law may change its state this often for each job; beyond it, it is a Poisson law.
const CHANGES_MAX: f64 = 1000.0;

/// Numbers beyond this are a slip, and their products might not be finite.
const NUMBER_MAX: f64 = 1e15;

/// Servers of one group at most: where each job is an event, a wrong number must not fill the memory.
const SERVERS_MAX: u32 = 10_000_000;

/// Sites times classes times groups at most: who can run where is a table.
const TABLE_MAX: usize = 10_000_000;

/// Checks a whole system.
pub(super) fn system(system: &System) -> Result<(), InputError> {
    let groups = system.sites.iter().map(|site| site.groups.len()).sum::<usize>();
    if system.sites.len().saturating_mul(system.classes.len()).saturating_mul(groups) > TABLE_MAX {
        let counts =
            format!("{} sites, {} classes, {groups} groups", system.sites.len(), system.classes.len());
        let what = format!("it is too large to simulate: {counts} of servers");
        return Err(InputError::new("federation", what).hint("join sites or classes that are alike"));
    }
    let kinds = system.classes.first().map_or(0, |class| class.speeds.len());
    for (number, class) in system.classes.iter().enumerate() {
        check_class(&class_place(number), class, kinds)?;
    }
    for (number, site) in system.sites.iter().enumerate() {
        check_site(&site_place(number), site, &system.classes, kinds)?;
    }
    system.sites.iter().try_for_each(|site| demands_can_run(system, site))
}

/// Checks which sites take part: each once, and in order, so that a coalition has one name.
pub(super) fn members(system: &System, members: &[usize]) -> Result<(), InputError> {
    let error = |what: String| {
        let hint = format!("members are the numbers of sites, counted from 0, below {}", system.sites.len());
        Err(InputError::new("members", what).hint(hint))
    };
    if members.is_empty() {
        return error("a coalition without members has nothing to simulate".into());
    }
    if let Some(unknown) = members.iter().find(|member| **member >= system.sites.len()) {
        return error(format!("there is no site {unknown}"));
    }
    if !members.is_sorted_by(|before, after| before < after) {
        return error("the members are not in order, or one is there twice".into());
    }
    Ok(())
}

fn site_place(number: usize) -> String {
    format!("site {number} (counted from 0)")
}

fn class_place(number: usize) -> String {
    format!("job class {number} (counted from 0)")
}

fn not_above(place: &str, what: &str, value: f64) -> Result<(), InputError> {
    if value <= NUMBER_MAX {
        return Ok(());
    }
    let what = format!("{what} is {value}");
    Err(InputError::new(place, what).hint(format!("it must be at most {NUMBER_MAX:e}; are the units right?")))
}

fn positive(place: &str, what: &str, value: f64) -> Result<(), InputError> {
    check::not_positive(place, what, value)?;
    not_above(place, what, value)
}

fn not_negative(place: &str, what: &str, value: f64) -> Result<(), InputError> {
    check::negative(place, what, value)?;
    not_above(place, what, value)
}

fn check_class(place: &str, class: &Class, kinds: usize) -> Result<(), InputError> {
    positive(place, "the mean work", class.work.mean)?;
    law(place, &class.work.law)?;
    not_negative(place, "the transfer in seconds", class.transfer_s)?;
    if class.devices == 0 {
        return Err(InputError::new(place, "a job holds no server").hint("it holds at least 1"));
    }
    if class.speeds.len() != kinds {
        let what = format!("it has speeds on {} types of server, and others on {kinds}", class.speeds.len());
        return Err(InputError::new(place, what).hint("give one speed for each type, 0 where it cannot run"));
    }
    for (kind, speed) in class.speeds.iter().enumerate() {
        not_negative(place, &format!("the speed on servers of type {kind}"), *speed)?;
    }
    if class.speeds.iter().all(|speed| *speed == 0.0) {
        let what = "its speed is 0 on every type of server";
        return Err(InputError::new(place, what).hint("give the speed on the types that can run it"));
    }
    let fastest = class.speeds.iter().copied().fold(0.0, f64::max);
    positive(place, "the mean seconds of a job where it is fastest", class.work.mean / fastest)
}

fn law(place: &str, law: &Law) -> Result<(), InputError> {
    match *law {
        Law::Deterministic | Law::Exponential => Ok(()),
        Law::Lognormal { variation } => not_negative(place, "the variation of the work", variation),
        Law::Hyperexponential { squared_variation } => {
            let what = "the squared variation of hyperexponential work";
            not_negative(place, what, squared_variation)?;
            if squared_variation >= 1.0 {
                return Ok(());
            }
            let what = format!("{what} is {squared_variation}");
            let hint = "it is 1 or more; for less, take lognormal or deterministic work";
            Err(InputError::new(place, what).hint(hint))
        }
        Law::Pareto { shape } => {
            not_above(place, "the shape of Pareto work", shape)?;
            if shape > 1.0 {
                return Ok(());
            }
            let what = format!("the shape of Pareto work is {shape}");
            Err(InputError::new(place, what).hint("it must be above 1, or the mean is infinite"))
        }
    }
}

fn check_site(place: &str, site: &Site, classes: &[Class], kinds: usize) -> Result<(), InputError> {
    not_negative(place, "the longest wait in seconds", site.longest_wait_s)?;
    for group in &site.groups {
        if group.kind >= kinds && !classes.is_empty() {
            let what = format!("it has servers of type {}, and there are {kinds} types", group.kind);
            return Err(InputError::new(place, what).hint("types count from 0, as the speeds of a class do"));
        }
        if group.shared > group.servers {
            let what = format!("it shares {} of its {} servers", group.shared, group.servers);
            return Err(InputError::new(place, what).hint("it can share at most those that it owns"));
        }
        if group.servers > SERVERS_MAX {
            let what = format!("it owns {} servers of one type", group.servers);
            return Err(InputError::new(place, what).hint(format!("at most {SERVERS_MAX} can be simulated")));
        }
    }
    for demand in &site.demands {
        if demand.class >= classes.len() {
            let what =
                format!("jobs of class {} arrive, and there are {} classes", demand.class, classes.len());
            return Err(InputError::new(place, what).hint("classes count from 0"));
        }
        check_arrivals(place, &demand.arrivals)?;
    }
    Ok(())
}

fn check_arrivals(place: &str, arrivals: &Arrivals) -> Result<(), InputError> {
    match arrivals {
        Arrivals::Poisson { rate_per_s } => not_negative(place, "the arrivals per second", *rate_per_s),
        Arrivals::Modulated { states } => {
            if states.len() < 2 {
                let what = format!("a modulated law of arrivals has {} states", states.len());
                return Err(
                    InputError::new(place, what).hint("it has two or more; of one, it is a Poisson law")
                );
            }
            for state in states {
                not_negative(place, "the arrivals per second of a state", state.rate_per_s)?;
                positive(place, "the mean stay in a state in seconds", state.mean_stay_s)?;
            }
            let stays_s: f64 = states.iter().map(|state| state.mean_stay_s).sum();
            let (per_s, changes_per_s) = (arrivals.mean_per_s(), states.len() as f64 / stays_s);
            if per_s > 0.0 && changes_per_s > CHANGES_MAX * per_s {
                let what = format!(
                    "the state of its arrivals changes {:.0} times for each job",
                    changes_per_s / per_s
                );
                return Err(InputError::new(place, what).hint("that is a Poisson law with the mean rate"));
            }
            Ok(())
        }
        Arrivals::Trace { jobs, period_s } => check_trace(place, jobs, *period_s),
    }
}

fn check_trace(place: &str, jobs: &[(f64, f64)], period_s: Option<f64>) -> Result<(), InputError> {
    let mut before_s = 0.0;
    for (number, (time_s, work)) in jobs.iter().enumerate() {
        not_negative(place, &format!("the time in seconds of job {number} of its trace"), *time_s)?;
        not_negative(place, &format!("the work of job {number} of its trace"), *work)?;
        if *time_s < before_s {
            let what = format!("job {number} of its trace arrives at {time_s} s, after one at {before_s} s");
            return Err(InputError::new(place, what).hint("sort the trace by the time of arrival"));
        }
        before_s = *time_s;
    }
    let Some(period_s) = period_s else { return Ok(()) };
    positive(place, "the period of its trace in seconds", period_s)?;
    if period_s < before_s {
        let what = format!("its trace repeats after {period_s} s, and its last job arrives at {before_s} s");
        return Err(InputError::new(place, what).hint("give a longer period, or cut the trace"));
    }
    Ok(())
}

/// Refuses demand that not even all sites together could serve, alone on the machines.
fn demands_can_run(system: &System, site: &Site) -> Result<(), InputError> {
    for demand in site.demands.iter().filter(|demand| demand.arrivals.mean_per_s() > 0.0) {
        let class = &system.classes[demand.class];
        let groups = || system.sites.iter().flat_map(|site| &site.groups);
        let place = class_place(demand.class);
        let most = groups().filter(|group| class.speeds[group.kind] > 0.0).map(|group| group.servers).max();
        match most {
            None | Some(0) => {
                let what = "no member owns a server on which it can run";
                let hint = "give its speed on a type that somebody owns, or leave its arrivals out";
                return Err(InputError::new(place, what).hint(hint));
            }
            Some(most) if most < class.devices => {
                let what = format!(
                    "a job holds {} servers of one type at one site, and the largest such group has {most}",
                    class.devices
                );
                return Err(InputError::new(place, what).hint("a job does not run across sites or types"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
