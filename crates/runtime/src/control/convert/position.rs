//! Positions on the wire.

use crate::control::generated as wire;
use crate::membership::Position;

/// Bytes that are taken of what a worker says for people.
const TEXT_MAX: usize = 200;

pub(super) fn write_position(p: &Position) -> wire::Position {
    wire::Position {
        activity: p.activity.to_string(),
        epoch: p.epoch,
        step: p.step,
        since_s: p.since_s,
        starved_s: p.starved_s,
        waits_for: p.waits_for.clone(),
        usual_s: p.usual_s,
        allowance_s: p.allowance_s,
        thread: p.thread.clone(),
    }
}

pub(super) fn read_position(p: wire::Position) -> Option<Position> {
    Some(Position {
        activity: p.activity.parse().ok()?,
        epoch: p.epoch,
        step: p.step,
        since_s: p.since_s,
        starved_s: p.starved_s,
        waits_for: p.waits_for,
        usual_s: p.usual_s,
        allowance_s: p.allowance_s,
        thread: p.thread.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect(),
    })
}
