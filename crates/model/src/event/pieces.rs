//! A profile whose parts are cut and placed as parameter servers hold them.

use std::borrow::Cow;

use bellwether_core::error::InputError;
use bellwether_core::profile::{Operation, OperationKind, Part, Profile};
use bellwether_core::shards::{Piece, spread};

use super::graph::spread_parts;
use crate::common::check;

/// Bytes of a value.
const VALUE_BYTES: u64 = 4;

/// The profile with its parts cut and placed by the rule of the parameter servers ([`spread`]), and of each new part
/// the number of the one it was: a part larger than an even share becomes several, each sent and applied by itself, for
/// its share of the time that applying took. A profile with a part that has a server already is left as it is: it says
/// how the measured job was spread.
///
/// # Errors
///
/// Returns an error if there is no server at all, or more than a million.
pub fn with_pieces(profile: &Profile, servers: u32) -> Result<(Cow<'_, Profile>, Vec<u32>), InputError> {
    check::servers("servers", servers)?;
    let all = || (0..profile.parts.len() as u32).collect();
    if profile.parts.iter().any(|part| part.server.is_some()) {
        return Ok((Cow::Borrowed(profile), all()));
    }
    let values = values(profile);
    let pieces = spread(&values, servers);
    let by_part = pieces_of(&pieces, &values);
    let mut cut = Profile { parts: Vec::new(), operations: Vec::new(), ..profile.clone() };
    let mut origins = Vec::new();
    // New numbers of the parts and of the operations.
    let mut new_parts: Vec<Vec<u32>> = Vec::with_capacity(by_part.len());
    for ((part, pieces), origin) in profile.parts.iter().zip(&by_part).zip(0..) {
        let first = cut.parts.len() as u32;
        let mut left = part.bytes;
        for (number, (server, length)) in pieces.iter().enumerate() {
            let bytes = left.min(*length as u64 * VALUE_BYTES);
            left -= bytes;
            let name = if pieces.len() > 1 { format!("{}/{number}", part.name) } else { part.name.clone() };
            cut.parts.push(Part { name, bytes, server: Some(*server) });
            origins.push(origin);
        }
        new_parts.push((first..cut.parts.len() as u32).collect());
    }
    cut_operations(profile, &new_parts, &mut cut);
    Ok((Cow::Owned(cut), origins))
}

/// Bytes that each of `servers` holds of the parts: as the profile says, or by that rule.
pub(crate) fn server_bytes(profile: &Profile, servers: u32) -> Vec<f64> {
    let mut held = vec![0.0; servers as usize];
    if servers == 0 {
        return held;
    }
    if profile.parts.iter().any(|part| part.server.is_some()) {
        for (part, server) in profile.parts.iter().zip(spread_parts(profile, servers)) {
            held[server as usize] += part.bytes as f64;
        }
        return held;
    }
    for piece in spread(&values(profile), servers) {
        held[piece.server as usize] += (piece.range.len() as u64 * VALUE_BYTES) as f64;
    }
    held
}

/// Values of each part.
fn values(profile: &Profile) -> Vec<usize> {
    profile.parts.iter().map(|part| part.bytes.div_ceil(VALUE_BYTES) as usize).collect()
}

/// Server and values of the pieces of each part; one without values is one piece on the first server.
fn pieces_of(pieces: &[Piece], values: &[usize]) -> Vec<Vec<(u32, usize)>> {
    let mut by_part = vec![Vec::new(); values.len()];
    for piece in pieces {
        by_part[piece.tensor].push((piece.server, piece.range.len()));
    }
    by_part.iter_mut().filter(|pieces| pieces.is_empty()).for_each(|pieces| pieces.push((0, 0)));
    by_part
}

/// Gives every piece the operations of its part: one that waited for a part waits for all of its pieces, and what
/// happens to a piece waits for what happened to that piece.
fn cut_operations(profile: &Profile, new_parts: &[Vec<u32>], cut: &mut Profile) {
    let pieces = |operation: &Operation| match operation.kind {
        OperationKind::Compute => None,
        OperationKind::Download(part) | OperationKind::Upload(part) | OperationKind::Update(part) => {
            Some((part, &new_parts[part as usize]))
        }
    };
    let mut new_operations: Vec<std::ops::Range<u32>> = Vec::with_capacity(profile.operations.len());
    let mut next = 0;
    for operation in &profile.operations {
        let count = pieces(operation).map_or(1, |(_, pieces)| pieces.len() as u32);
        new_operations.push(next..next + count);
        next += count;
    }
    for operation in &profile.operations {
        let own = pieces(operation);
        let count = own.map_or(1, |(_, pieces)| pieces.len());
        for number in 0..count {
            let mut after = Vec::new();
            for before in &operation.after {
                let range = new_operations[*before as usize].clone();
                let theirs = pieces(&profile.operations[*before as usize]);
                match (own, theirs) {
                    (Some((part, _)), Some((their, _))) if part == their => {
                        after.push(range.start + number as u32);
                    }
                    _ => after.extend(range),
                }
            }
            let piece = own.map(|(_, pieces)| pieces[number]);
            let kind = match (operation.kind, piece) {
                (OperationKind::Download(_), Some(piece)) => OperationKind::Download(piece),
                (OperationKind::Upload(_), Some(piece)) => OperationKind::Upload(piece),
                (OperationKind::Update(_), Some(piece)) => OperationKind::Update(piece),
                _ => OperationKind::Compute,
            };
            let name =
                if count > 1 { format!("{}/{number}", operation.name) } else { operation.name.clone() };
            cut.operations.push(Operation { name, kind, after });
        }
    }
    for step in &mut cut.steps {
        let old = std::mem::take(&mut step.operations_s);
        for (operation, seconds) in profile.operations.iter().zip(old) {
            let Some((part, pieces)) = pieces(operation) else {
                step.operations_s.push(seconds);
                continue;
            };
            let whole = profile.parts[part as usize].bytes.max(1) as f64;
            let share = |piece: &u32| match pieces.len() {
                1 => seconds,
                _ => seconds * cut.parts[*piece as usize].bytes as f64 / whole,
            };
            step.operations_s.extend(pieces.iter().map(share));
        }
    }
}
