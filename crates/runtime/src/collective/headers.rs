//! Control bytes of several members in one frame: of each, in rank order, a length of 4 bytes, then its bytes.

use std::ops::Range;

use super::plan::CollectivePlan;
use super::route::Headers;
use crate::frame::{CONTROL_BYTES_MAX, ProtocolError};

const LENGTH_BYTES: usize = 4;

/// The ranks whose control bytes a frame from `rank` holds in this form; `None` for the sender's alone, as they are.
pub(super) fn ranks(plan: &CollectivePlan, rank: usize, of: Headers) -> Option<Range<usize>> {
    match of {
        Headers::Own => None,
        Headers::Group => Some(plan.groups.ranks(plan.groups.place(rank).0)),
        Headers::All => Some(0..plan.members.len()),
    }
}

/// Most bytes of a control frame from `rank`, by the protocol.
pub(super) fn bytes_max(plan: &CollectivePlan, rank: usize, of: Headers) -> u64 {
    let one = CONTROL_BYTES_MAX as u64;
    ranks(plan, rank, of).map_or(one, |ranks| ranks.len() as u64 * (LENGTH_BYTES as u64 + one))
}

/// Appends one member's control bytes.
pub(super) fn push(bundle: &mut Vec<u8>, control: &[u8]) {
    let length = u32::try_from(control.len()).expect("control bytes have a limit");
    bundle.extend(length.to_le_bytes());
    bundle.extend(control);
}

/// Takes the first member's control bytes off the front.
fn take<'a>(bundle: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bundle.split_first_chunk::<LENGTH_BYTES>()?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > CONTROL_BYTES_MAX {
        return None;
    }
    let (control, rest) = rest.split_at_checked(length)?;
    *bundle = rest;
    Some(control)
}

/// Whether a frame holds the control bytes of these ranks and nothing else.
pub(super) fn check(ranks: Option<Range<usize>>, mut bundle: &[u8]) -> Result<(), ProtocolError> {
    let Some(ranks) = ranks else { return Ok(()) };
    let members = ranks.len();
    let whole = ranks.map(|_| take(&mut bundle)).all(|control| control.is_some());
    if whole && bundle.is_empty() { Ok(()) } else { Err(ProtocolError::ControlBytes { members }) }
}

/// Writes the control bytes of a frame that passed the [`check`] to where those of its ranks belong.
pub(super) fn spread(ranks: Range<usize>, mut bundle: &[u8], headers: &mut [Vec<u8>]) {
    for header in &mut headers[ranks] {
        *header = take(&mut bundle).unwrap_or_default().to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_holds_the_bytes_of_its_ranks_and_nothing_else() {
        let mut bundle = Vec::new();
        push(&mut bundle, b"one");
        push(&mut bundle, b"");
        push(&mut bundle, &[7; CONTROL_BYTES_MAX]);
        assert_eq!(check(Some(4..7), &bundle), Ok(()));
        let mut headers = vec![Vec::new(); 8];
        spread(4..7, &bundle, &mut headers);
        assert!(headers[4] == b"one" && headers[5].is_empty() && headers[6].len() == CONTROL_BYTES_MAX);
        assert!(headers[3].is_empty() && headers[7].is_empty());
        let refused = |ranks, bundle: &[u8]| check(Some(ranks), bundle).is_err();
        assert!(refused(4..8, &bundle) && refused(4..6, &bundle));
        assert!(refused(4..7, &bundle[..bundle.len() - 1]) && refused(0..1, &[3, 0, 0]));
        assert!(refused(0..1, &u32::MAX.to_le_bytes()) && refused(0..0, b"x"));
        let long = [&(CONTROL_BYTES_MAX as u32 + 1).to_le_bytes()[..], &[0; CONTROL_BYTES_MAX + 1]].concat();
        assert!(refused(0..1, &long));
    }
}
