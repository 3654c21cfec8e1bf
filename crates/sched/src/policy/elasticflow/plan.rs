//! Which devices a job will hold until its end, and what is free besides.

use bellwether_core::cluster::JobView;
use serde::{Deserialize, Serialize};

use crate::curve::Curve;

/// Times closer than this are one, in seconds: sums of rounded times differ by less.
pub(super) const SAME_S: f64 = 1e-6;

/// What a job will hold, step after step; its work is done with the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The type of all its devices.
    pub(super) device_type: u16,
    /// Until when, in seconds, and how many devices; neighbours differ.
    pub(super) steps: Vec<(f64, u32)>,
}

impl Plan {
    /// What is left of it.
    pub(super) fn rest(&self, now_s: f64) -> Plan {
        let to_come = |(until_s, _): &&(f64, u32)| *until_s > now_s + SAME_S;
        Plan { device_type: self.device_type, steps: self.steps.iter().filter(to_come).copied().collect() }
    }

    /// Devices of its first step.
    pub(super) fn devices(&self) -> u32 {
        self.steps.first().map_or(0, |(_, devices)| *devices)
    }

    /// When it changes the number of devices first; its end does not count.
    pub(super) fn changes_at_s(&self) -> Option<f64> {
        (self.steps.len() > 1).then(|| self.steps[0].0)
    }
}

/// Free devices of a type from now on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outlook {
    /// From when on, in seconds, and how many are free; the first from now on.
    steps: Vec<(f64, u32)>,
}

/// A job that wants to be done in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) curve: &'a Curve,
    /// Work that remains.
    pub(super) work: f64,
    pub(super) deadline_s: f64,
    /// Devices of this type that it holds now.
    pub(super) held: u32,
    /// From when on it makes progress with those, in seconds.
    pub(super) ready_s: f64,
    /// Seconds that a change of its devices takes; 0 for one that has never run.
    pub(super) restart_s: f64,
}

impl<'a> Wish<'a> {
    /// What a job wants of a type of device, of which it holds `held`; `None` when it has no deadline, or nothing is
    /// known of its remaining work.
    pub(super) fn of(
        seen: &JobView,
        curve: &'a Curve,
        held: u32,
        now_s: f64,
        restart_s: f64,
    ) -> Option<Wish<'a>> {
        let work = seen.remaining(now_s).filter(|&work| work > 0.0)?;
        let deadline_s = seen.job.deadline_s?;
        let ready_s = if held > 0 { seen.progress_s } else { now_s };
        let restart_s = if seen.started_s.is_some() { restart_s } else { 0.0 };
        Some(Wish { curve, work, deadline_s, held, ready_s, restart_s })
    }
}

impl Outlook {
    /// All of them from now on.
    pub(super) fn new(now_s: f64, devices: u32) -> Outlook {
        Outlook { steps: vec![(now_s, devices)] }
    }

    /// The plan with the lowest limit to its devices that meets the deadline.
    pub(super) fn plan(&self, wish: &Wish, device_type: u16) -> Option<Plan> {
        let mut level = first_level(wish.curve);
        while level > 0 {
            // Where even all the time would not do, there is nothing to look for.
            let soonest_s = self.steps[0].0 + wish.work / wish.curve.rate(level);
            let steps = (soonest_s <= wish.deadline_s + SAME_S).then(|| self.follow(wish, level));
            if let Some(steps) = steps.flatten() {
                return Some(Plan { device_type, steps });
            }
            level = next_level(wish.curve, level).unwrap_or(0);
        }
        None
    }

    /// The steps of a job that takes what is free up to a limit; `None` when it is late so.
    fn follow(&self, wish: &Wish, limit: u32) -> Option<Vec<(f64, u32)>> {
        let (mut work, mut held, mut ready_s) = (wish.work, wish.held, wish.ready_s);
        let mut steps: Vec<(f64, u32)> = Vec::new();
        let mut hold = |until_s: f64, devices: u32| match steps.last_mut() {
            Some(last) if last.1 == devices => last.0 = until_s,
            _ => steps.push((until_s, devices)),
        };
        for (place, &(from_s, free)) in self.steps.iter().enumerate() {
            if from_s > wish.deadline_s {
                return None;
            }
            let devices = if free >= limit { limit } else { level_within(wish.curve, free) };
            if devices != held {
                ready_s = from_s + wish.restart_s;
            }
            held = devices;
            let until_s = self.steps.get(place + 1).map_or(f64::INFINITY, |(from_s, _)| *from_s);
            if devices > 0 {
                let rate = wish.curve.rate(devices);
                let begin_s = from_s.max(ready_s);
                // Work that is lost in rounding takes a moment all the same.
                let end_s = (begin_s + work / rate).max(from_s.next_up());
                if end_s <= until_s {
                    hold(end_s, devices);
                    return (end_s <= wish.deadline_s + SAME_S).then_some(steps);
                }
                work -= (until_s - begin_s).max(0.0) * rate;
            }
            hold(until_s, devices);
        }
        None
    }

    /// Takes what a plan needs.
    pub(super) fn take(&mut self, plan: &Plan) {
        for &(until_s, _) in &plan.steps {
            let at = self.steps.partition_point(|(from_s, _)| *from_s < until_s);
            if self.steps.get(at).is_none_or(|(from_s, _)| *from_s > until_s) && at > 0 {
                self.steps.insert(at, (until_s, self.steps[at - 1].1));
            }
        }
        let mut needs = plan.steps.iter().peekable();
        for (from_s, free) in &mut self.steps {
            while needs.next_if(|(until_s, _)| *until_s <= *from_s).is_some() {}
            let Some((_, devices)) = needs.peek() else { break };
            *free = free.checked_sub(*devices).expect("a plan takes what is free");
        }
    }
}

/// The fewest devices that a job runs on; 0 for none.
pub(super) fn first_level(curve: &Curve) -> u32 {
    curve.next(0).unwrap_or(0)
}

/// The next number of devices beyond `devices` that is a power of two, or the most of all, and is faster.
pub(super) fn next_level(curve: &Curve, devices: u32) -> Option<u32> {
    let most = curve.usable(u32::MAX);
    let mut more = devices;
    while more < most {
        more = (more.saturating_add(1)).checked_next_power_of_two().map_or(most, |power| power.min(most));
        if curve.rate(more) > curve.rate(devices) {
            return Some(more);
        }
    }
    None
}

/// The highest level that is not above `devices`; 0 for none.
fn level_within(curve: &Curve, devices: u32) -> u32 {
    let mut level = first_level(curve);
    if level > devices {
        return 0;
    }
    while let Some(more) = next_level(curve, level).filter(|&more| more <= devices) {
        level = more;
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper: two others hold three of four devices in the first second, and three units of work are
    /// due within two seconds. With two devices there would be 1 + 1.5 units; with four there are 1 + 2.
    #[test]
    fn a_job_takes_what_is_free_up_to_the_lowest_limit_in_time() {
        let curve = Curve::new(vec![0.0, 1.0, 1.5, 1.75, 2.0]);
        let mut outlook = Outlook::new(0.0, 4);
        outlook.take(&Plan { device_type: 0, steps: vec![(1.0, 1)] });
        outlook.take(&Plan { device_type: 0, steps: vec![(1.0, 2)] });
        let wish = Wish { curve: &curve, work: 3.0, deadline_s: 2.0, held: 0, ready_s: 0.0, restart_s: 0.0 };
        let plan = outlook.plan(&wish, 0).expect("it can be done");
        assert_eq!(plan.steps, [(1.0, 1), (2.0, 4)]);
        assert_eq!(plan.changes_at_s(), Some(1.0));
        outlook.take(&plan);
        assert_eq!(outlook.steps, [(0.0, 0), (1.0, 0), (2.0, 4)]);
        assert_eq!(outlook.plan(&Wish { work: 3.01, ..wish }, 0), None);
        assert_eq!(Outlook::new(0.0, 4).plan(&Wish { restart_s: 0.1, work: 4.0, ..wish }, 0), None);
    }
}
