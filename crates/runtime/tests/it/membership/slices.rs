//! Checkpoints of which each member writes a slice: all at the same boundary, and the one before where one is damaged.

use bellwether_core::record::{Event as Journal, RunOutcome};
use bellwether_runtime::membership::coordinator::{Action, Config};
use bellwether_runtime::membership::member::{Member, Rules, Task};
use bellwether_runtime::membership::{FromWorker, Load, Offer, ToWorker};

use super::cases::{Bench, RULES, config, membership, recovery};

/// Two members at this step.
fn two(step: u64, checkpoint_every: u64) -> [Member; 2] {
    [1, 2].map(|id| {
        let mut member = Member::new(id, Rules { checkpoint_every, slices: true, ..RULES });
        let load = Some(Load::Fresh);
        member.message(ToWorker::Recover { membership: membership(1, &[1, 2], &[]), load, keep: false });
        member.formed(1, Some(step), Ok(()));
        member.message(ToWorker::Start { epoch: 1, step, behind: vec![], source: 1, accumulation: 1 });
        member
    })
}

/// All do a step; what they do next.
fn step(members: &mut [Member; 2]) -> [Task; 2] {
    let offers: Vec<Offer> = members.iter_mut().map(|member| member.offer(&Task::Train)).collect();
    members.iter_mut().for_each(|member| member.round_done(&Task::Train, &offers));
    let tasks = [members[0].next_task(), members[1].next_task()];
    members.iter_mut().for_each(Member::checkpointed);
    tasks
}

const NONE: [Task; 2] = [Task::Train, Task::Train];
const BOTH: [Task; 2] = [Task::Checkpoint, Task::Checkpoint];

#[test]
fn all_members_write_at_the_same_boundary() {
    let mut members = two(8, 10);
    assert_eq!(members[0].next_task(), Task::Train);
    assert_eq!([step(&mut members), step(&mut members), step(&mut members)], [NONE, BOTH, NONE]);
    // Asked for meanwhile: it is the first who says where.
    members[1].message(ToWorker::SendCheckpoint { epoch: 1, step: 11 });
    assert_eq!(step(&mut members), NONE);
    members[0].message(ToWorker::SendCheckpoint { epoch: 1, step: 12 });
    assert_eq!([step(&mut members), step(&mut members)], [BOTH, NONE]);
}

#[test]
fn while_one_still_writes_no_other_checkpoint_is_begun() {
    for busy in [0, 1] {
        let mut members = two(9, 10);
        members[busy].uploads(true);
        assert_eq!(step(&mut members), NONE, "{busy}");
        members[0].message(ToWorker::SendCheckpoint { epoch: 1, step: 10 });
        assert_eq!(step(&mut members), NONE, "{busy}");
        members[busy].uploads(false);
        members[0].message(ToWorker::SendCheckpoint { epoch: 1, step: 11 });
        assert_eq!(step(&mut members), BOTH, "{busy}");
    }
}

#[test]
fn who_joins_at_the_boundary_of_a_checkpoint_writes_none_of_it() {
    let mut members = two(9, 10);
    let offers: Vec<Offer> = members.iter_mut().map(|member| member.offer(&Task::Train)).collect();
    let mut newcomer = Member::new(3, Rules { checkpoint_every: 10, slices: true, ..RULES });
    newcomer.prepared(membership(2, &[1, 2], &[3]), Ok(()));
    newcomer.switched(membership(2, &[1, 2], &[3]));
    newcomer.shadow_began(9);
    newcomer.shadow_complete();
    newcomer.offer(&Task::Train);
    newcomer.round_done(&Task::Train, &offers);
    assert_ne!(newcomer.next_task(), Task::Checkpoint, "it has no slice");
    newcomer.switched(membership(3, &[1, 2, 3], &[]));
    assert_ne!(newcomer.next_task(), Task::Checkpoint, "the others have cut it already");
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before() {
    let begin = |older: Vec<u64>| {
        let mut bench = Bench::new(Config { checkpoint: Some(10), slices: true, ..config(2) });
        bench.coordinator.set_older_checkpoints(older);
        bench.attach(1, None, true);
        let actions = bench.attach(2, None, true);
        assert_eq!(recovery(&actions, 2).expect("a start").1, Some(Load::Checkpoint(10)));
        bench
    };
    let damaged = || FromWorker::CheckpointDamaged { step: 10, why: "its digest".into() };
    let mut bench = begin(vec![8, 4]);
    let mut actions = bench.says(1, damaged());
    actions.extend(bench.says(2, damaged()));
    let told =
        |action: &&Action| matches!(action, Action::Journal(Journal::CheckpointFailed { step: 10, .. }));
    assert_eq!(actions.iter().filter(told).count(), 1, "{actions:?}");
    assert!(actions.contains(&Action::Journal(Journal::RolledBack { to: 8 })), "{actions:?}");
    assert_eq!(recovery(&actions, 2).expect("another").1, Some(Load::Checkpoint(8)));
    // There is not another one.
    let actions = begin(vec![]).says(1, damaged());
    let end = actions.iter().find_map(|action| if let Action::End(end) = action { Some(end) } else { None });
    let how = &end.expect("nothing is left").how;
    assert!(
        matches!(how, RunOutcome::Failed(_)) && how.reason().contains("no checkpoint can be used"),
        "{how:?}"
    );
}
