//! Why a job waits, in a sentence: what it lacks now, by the last decision.

use std::cell::RefCell;

use bellwether_core::cluster::JobView;
use bellwether_core::words::count;
use bellwether_sched::queues::{most_known, most_within};
use bellwether_sched::speed::Speeds;

use super::State;

/// What is free, counted once for many jobs.
pub struct Waiting<'a> {
    state: &'a State,
    /// Slots of each type that no job was given, and those of nodes that are up.
    free: Vec<u32>,
    up: Vec<u32>,
    /// By queue and type, how many slots its limit and those above it leave, and the queue whose limit that is.
    rooms: Vec<Vec<(u32, usize)>>,
    /// By queue and type, the most slots that it may ever hold.
    limits: Vec<Vec<u32>>,
    /// What is believed of jobs that may have more than that.
    speeds: RefCell<Speeds>,
}

impl State {
    /// Ready to say of any job why it waits.
    pub fn waiting(&self) -> Waiting<'_> {
        let view = &self.view;
        let kinds = || 0..view.device_types.len() as u16;
        let (rooms, limits) = self.queues.as_ref().map_or_else(Default::default, |queues| {
            let limits: Vec<Vec<u32>> = kinds()
                .map(|kind| {
                    let name = &view.device_types[usize::from(kind)];
                    queues.tree.limits(name, view.devices_with_down(kind))
                })
                .collect();
            let room = |queue: usize, kind: usize| {
                let room = |at: usize| (limits[kind][at].saturating_sub(queues.held_of(at, kind)), at);
                queues.tree.path(queue).map(room).min_by_key(|(room, _)| *room).unwrap_or((u32::MAX, queue))
            };
            let rooms = |queue: usize| (0..limits.len()).map(|kind| room(queue, kind)).collect();
            let limit = |queue: usize, of: &Vec<u32>| {
                queues.tree.path(queue).map(|at| of[at]).min().unwrap_or(u32::MAX)
            };
            let most = |queue: usize| limits.iter().map(|of| limit(queue, of)).collect();
            let all = 0..queues.tree.queues().len();
            (all.clone().map(rooms).collect(), all.map(most).collect())
        });
        let free = kinds().map(|kind| view.free(Some(kind))).collect();
        let up = kinds().map(|kind| view.devices(Some(kind))).collect();
        Waiting { state: self, free, up, rooms, limits, speeds: RefCell::default() }
    }
}

impl Waiting<'_> {
    /// What keeps a job without slots from having some.
    pub fn why(&self, seen: &JobView) -> String {
        let job = &seen.job;
        let needed = job.min_devices;
        let kinds = || (0..self.up.len()).filter(|kind| job.accepts(*kind as u16));
        let most = |of: &[u32]| kinds().map(|kind| of[kind]).max().unwrap_or(0);
        let of_one_type = if self.up.len() > 1 { " of one type" } else { "" };
        let needs = format!("it needs {}{of_one_type}", count(needed as usize, "slot"));
        let up = most(&self.up);
        if up < needed {
            return format!("{needs}, and the nodes that are up have {up}");
        }
        if let Some(why) = self.limit(seen, &needs).or_else(|| self.unknown(seen)) {
            return why;
        }
        match most(&self.free) {
            0 => format!("{needs}, and none is free"),
            free if free < needed => format!("{needs}, and {free} {} free", is(free)),
            free => {
                let slots = count(free as usize, "slot");
                format!("{slots} {} free, and `{}` lets it wait", is(free), self.state.policy)
            }
        }
    }

    /// Whether its queue may not hold as many more.
    fn limit(&self, seen: &JobView, needs: &str) -> Option<String> {
        let queues = self.state.queues.as_ref()?;
        let queue = queues.queue_of(seen)?;
        let kinds = (0..self.up.len()).filter(|kind| seen.job.accepts(*kind as u16));
        let (room, at) = kinds.map(|kind| self.rooms[queue][kind]).max_by_key(|(room, _)| *room)?;
        let name = &queues.tree.queues()[at].name;
        (room < seen.job.min_devices).then(|| match room {
            0 => format!("{needs}, and its queue `{name}` holds as many as it may"),
            room => format!("{needs}, and its queue `{name}` may hold {room} more"),
        })
    }

    /// Whether it may have more slots than its queue, and nothing is believed of it on as few as that.
    fn unknown(&self, seen: &JobView) -> Option<String> {
        let State { view, belief, queues, .. } = self.state;
        let (job, queues) = (&seen.job, queues.as_ref()?);
        let queue = queues.queue_of(seen)?;
        let limits = &self.limits[queue];
        let most = most_within(job, limits);
        if job.max_devices <= most
            || most_known(&mut self.speeds.borrow_mut(), (belief, view), job, limits).is_some()
        {
            return None;
        }
        let name = &queues.tree.queues()[queue].name;
        let slots = count(most as usize, "slot");
        Some(format!(
            "its queue `{name}` may hold {slots}, and nothing is known of its speed on that number or fewer"
        ))
    }
}

fn is(number: u32) -> &'static str {
    if number == 1 { "is" } else { "are" }
}
