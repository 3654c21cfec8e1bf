//! Why a block went where it went: the rooms of all multiprocessors as the choice saw them.

use std::collections::BTreeSet;
use std::fmt::Write;

use bellwether_model::gpu::{Amounts, Decision, Outcome, Resource, RoomRow};
use bellwether_render::duration::microseconds;
use bellwether_render::table::aligned;
use bellwether_render::words::numbers;

/// Multiprocessors that look the same share a line, in the order in which ties are broken.
pub(super) fn table(decision: &Decision, outcome: &Outcome) -> String {
    let launch = &outcome.launches[decision.launch as usize];
    let kernel = &outcome.kernels[launch.kernel].name;
    let mut text = format!(
        "block {} of all is block {} of {kernel}, placed on SM {} at {}\na block of {kernel} takes {}\n{}\n",
        decision.number,
        decision.block,
        decision.multiprocessor,
        microseconds(decision.time_us),
        needs(&decision.need),
        reason(decision),
    );
    let mut rows = vec![["SMs", "room", "limited by"].map(str::to_string).to_vec()];
    rows[0].extend(Resource::ALL.map(|resource| format!("{resource} (free)")));
    for (first, members) in groups(&decision.rooms) {
        let mark = if members.contains(&decision.multiprocessor) { " ←" } else { "" };
        let mut row = vec![format!("{}{mark}", numbers(&members)), first.room.to_string()];
        row.push(first.limit.to_string());
        row.extend(first.rooms.iter().zip(first.free).map(|(room, free)| match room {
            &u32::MAX => format!("- ({free})"),
            room => format!("{room} ({free})"),
        }));
        rows.push(row);
    }
    text.push('\n');
    text.push_str(&aligned(&rows));
    text
}

/// Rows that are equal but for their number.
fn groups(rooms: &[RoomRow]) -> Vec<(RoomRow, BTreeSet<u32>)> {
    let mut groups: Vec<(RoomRow, BTreeSet<u32>)> = Vec::new();
    for row in rooms {
        match groups.iter_mut().find(|(first, _)| first.free == row.free) {
            Some((_, members)) => {
                members.insert(row.multiprocessor);
            }
            None => groups.push((*row, BTreeSet::from([row.multiprocessor]))),
        }
    }
    groups
}

fn needs(need: &Amounts) -> String {
    let mut words = Vec::new();
    for (resource, amount) in Resource::ALL.into_iter().zip(need).filter(|(_, amount)| **amount > 0) {
        words.push(match resource {
            Resource::BlockSlots => "a block slot".to_string(),
            Resource::SharedMemory => format!("{amount} bytes of shared memory"),
            Resource::Warps if *amount == 1 => "1 warp".to_string(),
            _ => format!("{amount} {resource}"),
        });
    }
    words.join(", ")
}

fn reason(decision: &Decision) -> String {
    let room = |row: &RoomRow| row.room;
    let most = decision.rooms.iter().map(room).max().unwrap_or(0);
    let chosen = decision.rooms.iter().find(|row| row.multiprocessor == decision.multiprocessor);
    let equal = decision.rooms.iter().filter(|row| row.room == most).count();
    let mut text = match (chosen, equal) {
        (Some(chosen), _) if chosen.room < most => format!(
            "SM {} has room for {}, the most of those that its process may use",
            chosen.multiprocessor, chosen.room
        ),
        (_, 1) => format!("no other SM has room for as many as {most} of them"),
        (_, equal) => {
            format!(
                "{equal} SMs have room for {most} of them, the most; it is the first in the device's order"
            )
        }
    };
    if decision.blocks > 1 {
        let _ = write!(text, "; many blocks are left, so {} go there at once", decision.blocks);
    }
    text
}
