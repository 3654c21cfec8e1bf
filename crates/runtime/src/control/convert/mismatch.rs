//! A mismatch, for the wire and from it.

use crate::control::generated as wire;
use crate::membership::{Mismatch, Verdict};

pub(super) fn write_mismatch(m: &Mismatch) -> wire::Mismatched {
    let (wrong, judge) = match m.verdict {
        Verdict::Wrong { worker, judge } => (worker, judge),
        Verdict::Awaited | Verdict::Open => (0, 0),
    };
    let awaited = m.verdict == Verdict::Awaited;
    let Mismatch { epoch, step, node, worker, checker, .. } = *m;
    wire::Mismatched { epoch, step, node, worker, checker, wrong, judge, awaited }
}

pub(super) fn read_mismatch(m: &wire::Mismatched) -> Mismatch {
    let verdict = match (m.wrong, m.judge) {
        (0, _) if m.awaited => Verdict::Awaited,
        (0, _) => Verdict::Open,
        (worker, judge) => Verdict::Wrong { worker, judge },
    };
    let wire::Mismatched { epoch, step, node, worker, checker, .. } = *m;
    Mismatch { epoch, step, node, worker, checker, verdict }
}
