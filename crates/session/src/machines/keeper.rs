//! The keeper of a plan's word in the clerk's hands: shown what the run and its machines are, and its wishes carried
//! out.

use bellwether_core::lease::Lease;
use bellwether_core::record::Provisioned;
use bellwether_runtime::journal::now_s;
use bellwether_sched::promise::keeper::{Change, Keeper, View};

use super::shared::{Order, Shared};

/// Looks at the odds, when it is time to, and passes on what should change.
pub(super) fn look(keeper: &mut Keeper, shared: &Shared) {
    let now_s = now_s();
    if !keeper.is_due(now_s) {
        return;
    }
    let (seen, view) = {
        let board = shared.lock();
        let Some(seen) = board.seen.filter(|_| !board.is_closing) else { return };
        (seen, View::of(&board.fleet, now_s))
    };
    // Working the odds out takes a while: the coordinator does not wait for it.
    let changes = keeper.look(&view, &seen);
    let mut board = shared.lock();
    for change in changes {
        match change {
            Change::Urgent(is_urgent) => board.fleet.set_urgent(is_urgent),
            Change::Want(groups, workers, note) => {
                board.fleet.want(groups);
                board.notes.push(note);
                board.orders.push(Order::Scale(workers));
            }
            Change::Stop(why) => board.orders.push(Order::Stop(why)),
            Change::Note(note) => board.notes.push(note),
        }
    }
}

/// What the machines of the run have cost, and whether the word was kept.
pub(super) fn account(keeper: &Keeper, lease: &Lease, provider: &str, now_s: f64) -> Provisioned {
    let ran = lease.machines.iter().filter(|row| row.running_s.is_some());
    let fixed = lease.plan.basis.as_ref().map_or(0.0, |basis| basis.fixed_dollars_per_hour);
    let elapsed_s = now_s - lease.began_s;
    let (constraints, chosen) = (&lease.plan.constraints, lease.plan.chosen());
    Provisioned {
        provider: provider.to_owned(),
        obtained: ran.count() as u32,
        changes: keeper.changes(),
        time_s: elapsed_s,
        cost_dollars: lease.dollars(now_s) + fixed * elapsed_s / 3600.0,
        deadline_s: constraints.deadline_s,
        budget_dollars: constraints.budget_dollars,
        expected_time_s: chosen.map_or(0.0, |chosen| chosen.time_s),
        expected_cost_dollars: chosen.map_or(0.0, |chosen| chosen.cost_dollars),
        left: lease.open().count() as u32,
    }
}
