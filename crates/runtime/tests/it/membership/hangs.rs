//! Faults that are not reported: threads that hang, and packets that vanish while connections stay.

use bellwether_runtime::membership::{Activity as Doing, Membership, Position, WorkerId};

use super::process::Activity;
use super::rounds::{linked, pair};
use super::world::{Down, Happening, World};

/// Seconds after which a worker notices that its session is silent.
const PING_S: f64 = 3.0;

impl World {
    /// The computing thread hangs, for a while or for longer than others have patience: without others, the run waits.
    /// One that waits to be told something cannot hang.
    pub(crate) fn hang(&mut self, id: WorkerId) {
        let longer = self.random.chance(0.5);
        let seconds = self.random.between(0.1, if longer { 40.0 } else { 4.0 });
        let process = self.process(id);
        let waits = matches!(
            process.activity,
            Activity::Waiting | Activity::BeginningShadow { .. } | Activity::Leaving
        );
        if process.hung || waits {
            return;
        }
        (process.hung, process.hung_once) = (true, true);
        self.watch.hangs += 1;
        self.note(|| format!("{id} hangs"));
        self.after(seconds, Happening::Unhang(id));
    }

    /// The computing thread goes on; what came meanwhile is there at once.
    pub(crate) fn unhang(&mut self, id: WorkerId) {
        self.watch.disturbed_s = self.now;
        let process = self.process(id);
        if !process.hung || !process.alive {
            return;
        }
        process.hung = false;
        let (held_up, mailbox) = (std::mem::take(&mut process.held_up), std::mem::take(&mut process.mailbox));
        self.note(|| format!("{id} hangs no more"));
        for happening in held_up {
            self.after(0.0, happening);
        }
        for input in mailbox {
            self.hear(id, input);
        }
    }

    /// What two workers send each other vanishes, for a while or for good.
    pub(crate) fn silence_link(&mut self, a: WorkerId, b: WorkerId) {
        if self.data.silent.insert(pair(a, b)) {
            self.watch.silent_links += 1;
            self.note(|| format!("nothing arrives any more between {a} and {b}"));
            if self.random.chance(0.5) {
                let seconds = self.random.between(0.1, 6.0);
                self.after(seconds, Happening::LinkSpeaks(a, b));
            }
        }
    }

    /// What was sent meanwhile arrives.
    pub(crate) fn let_link_speak(&mut self, a: WorkerId, b: WorkerId) {
        self.watch.disturbed_s = self.now;
        self.data.silent.remove(&pair(a, b));
        for id in [a, b] {
            let now = self.now;
            self.process(id).since_s = now;
            if let Activity::InRound { epoch, index, .. } = self.processes[&id].activity
                && self.data.epochs[&epoch].rounds[index].complete
                && !self.is_doomed(id, epoch, index)
                && self.processes[&id].alive
            {
                self.deliver(id);
            }
            if matches!(self.processes[&id].activity, Activity::CatchingUp { .. })
                && self.processes[&id].handed.is_some()
            {
                self.deliver(id);
            }
        }
    }

    /// Nothing arrives any more in the session of a worker, and no process is told.
    pub(crate) fn half_open(&mut self, id: WorkerId) {
        let Some(number) = self.processes[&id].session else { return };
        self.sessions.get_mut(&number).expect("it is open").cut = true;
        self.process(id).hung_once = true;
        self.note(|| format!("the session of {id} is half open"));
        let (worker_sees, coordinator_sees) =
            (self.random.between(0.5, PING_S), self.random.between(0.5, PING_S));
        self.after(worker_sees, Happening::Down(id, number, Down::Broken));
        self.after(coordinator_sees, Happening::Noticed(number, "no answer".into()));
    }

    /// An active member of this membership from whom nothing arrives.
    pub(crate) fn silent_peer(&self, id: WorkerId, membership: &Membership) -> Option<WorkerId> {
        let peers = membership.peers(id).into_iter().map(|(peer, _)| peer);
        peers.into_iter().find(|peer| self.data.silent.contains(&pair(id, *peer)))
    }

    /// Whether a worker lacks what a member has sent.
    pub(crate) fn lacks_word(&self, id: WorkerId) -> bool {
        let membership = self.processes[&id].member.membership();
        let mut peers = membership.peers(id).into_iter().map(|(peer, _)| peer);
        peers.any(|peer| membership.rank(peer).is_some() && self.data.silent.contains(&pair(id, peer)))
    }

    /// Where a worker says that it stands.
    pub(crate) fn position(&self, id: WorkerId) -> Position {
        let process = &self.processes[&id];
        let mut waits_for = Vec::new();
        let (activity, usual_s) = match &process.activity {
            Activity::Waiting | Activity::BeginningShadow { .. } | Activity::Leaving => (Doing::Idle, 0.0),
            Activity::Computing { .. } => {
                (Doing::Computing, if self.scenario.straggler > 0.0 { 0.45 } else { 0.03 })
            }
            Activity::InRound { epoch, index, .. } => {
                waits_for = self.awaited(id, *epoch, *index);
                (Doing::Exchanging, 0.2)
            }
            Activity::CatchingUp { epoch } => {
                let members = self.data.epochs[epoch].membership.active.iter().map(|m| m.worker);
                waits_for = members.filter(|member| *member != id).collect();
                (Doing::Exchanging, 0.2)
            }
            Activity::Applying { .. } => (Doing::Updating, 0.02),
            Activity::Forming { .. } | Activity::Switching(_) => (Doing::Forming, 0.1),
            Activity::Uploading | Activity::Finishing => (Doing::Checkpointing, 0.01),
        };
        if process.hung {
            // A member that stands in the middle of an exchange waits for no other.
            waits_for.clear();
        }
        let since_s = self.now - process.since_s;
        let (epoch, step) = (process.member.membership().epoch, process.member.step());
        let usual_s = Some(usual_s);
        Position { activity, epoch, step, since_s, waits_for, usual_s, ..Position::default() }
    }

    /// What a member sends in a round brings those on who wait in it: the time for which they say that they got no
    /// further begins with the last byte that moved ([`Position::since_s`]). Counted from when they came, a member that
    /// had waited for long for the last one would be called late while it takes in what came.
    pub(crate) fn bring_on(&mut self, from: WorkerId, number: u64, index: usize) {
        let now = self.now;
        let others = self.data.epochs[&number].rounds[index].waiting.iter().copied();
        let hears = |id: &WorkerId| {
            let between = pair(*id, from);
            !self.data.silent.contains(&between) && !self.data.broken.contains(&between)
        };
        for id in others.filter(hears).collect::<Vec<WorkerId>>() {
            let process = self.process(id);
            if !process.hung && !process.still {
                process.since_s = now;
            }
        }
    }

    /// From whom a worker still lacks something in a round.
    fn awaited(&self, id: WorkerId, number: u64, index: usize) -> Vec<WorkerId> {
        let epoch = &self.data.epochs[&number];
        let round = &epoch.rounds[index];
        let members = epoch.membership.active.iter().map(|m| m.worker);
        let others = members.filter(|member| linked(&epoch.membership, id, *member));
        let lacks = |member: &WorkerId| {
            !round.arrived.contains_key(member) || self.data.silent.contains(&pair(id, *member))
        };
        others.filter(lacks).collect()
    }

    /// Only who hangs, or cannot be heard, is lost for being late.
    pub(crate) fn check_lateness(&mut self, worker: WorkerId, evidence: &str) {
        let late = evidence.contains("keeps the run waiting");
        let unheard = evidence.contains("nothing has arrived");
        if !late && !unheard {
            return;
        }
        self.watch.lost_late += 1;
        let process = &self.processes[&worker];
        let excused = process.hung_once || process.stood_still || process.still;
        if late && !excused {
            self.violate(format!("worker {worker} is lost for being late, and works: {evidence}"));
        }
        let links = !self.data.silent.is_empty() || self.watch.silent_links > 0;
        if unheard && !links {
            self.violate(format!("worker {worker} is lost for a link that works: {evidence}"));
        }
    }
}
