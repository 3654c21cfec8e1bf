//! In which order to send a model's parts, so that computing waits least: the rules TIC and TAC.
//!
//! Both look at what each computing operation needs (Hashemi, Jyothi and Campbell, "TicTac: accelerating
//! distributed deep learning with communication scheduling", MLSys 2019). For a part `r` that has not been sent,
//! `M(r)` is the time to send it, `P(r)` the time of all operations that wait for `r` and for nothing else, and
//! `M⁺(r)` the least time to send everything that some operation waits for which waits for `r` and for others too.

use bellwether_core::error::InputError;
use bellwether_core::profile::{OperationKind, Profile};

use super::check::check_size;
use super::graph::with_downloads;
use crate::common::check;

/// Operations times parts at most: so much is kept of what needs what.
const MOST_NEEDS: usize = 1 << 26;
/// Operations times squared parts at most, for the timing-aware rule, which takes this many turns.
const MOST_TURNS: usize = 1 << 36;

/// What each operation needs, directly or through others.
struct Needs {
    /// Parts that are downloaded.
    downloaded: Vec<bool>,
    /// Parts that each computing operation needs, ascending; one row per computing operation.
    rows: Vec<Vec<u32>>,
    /// Mean seconds of each of those operations.
    compute_s: Vec<f64>,
}

impl Needs {
    fn new(profile: &Profile) -> Result<Needs, InputError> {
        profile.check()?;
        check_size(profile)?;
        refuse_beyond(MOST_NEEDS, profile, profile.parts.len())?;
        let profile = with_downloads(profile);
        let operations = &profile.operations;
        let mut downloaded = vec![false; profile.parts.len()];
        let mut needed: Vec<Option<Vec<bool>>> = vec![None; operations.len()];
        // Depth first without recursion: a graph may be a long chain.
        let mut stack: Vec<usize> = (0..operations.len()).collect();
        while let Some(number) = stack.pop() {
            if needed[number].is_some() {
                continue;
            }
            let before = || operations[number].after.iter().map(|before| *before as usize);
            let missing: Vec<usize> = before().filter(|before| needed[*before].is_none()).collect();
            if !missing.is_empty() {
                stack.push(number);
                stack.extend(missing);
                continue;
            }
            let mut parts = vec![false; profile.parts.len()];
            for before in before() {
                let theirs = needed[before].as_ref().expect("known by now");
                parts.iter_mut().zip(theirs).for_each(|(part, their)| *part |= their);
            }
            if let OperationKind::Download(part) = operations[number].kind {
                parts[part as usize] = true;
                downloaded[part as usize] = true;
            }
            needed[number] = Some(parts);
        }
        let computes: Vec<usize> = (0..operations.len())
            .filter(|number| operations[*number].kind == OperationKind::Compute)
            .collect();
        let row = |number: &usize| {
            let parts = needed[*number].as_ref().expect("every operation was visited");
            (0..parts.len() as u32).filter(|part| parts[*part as usize]).collect()
        };
        let mean_s = |number: &usize| {
            profile.steps.iter().map(|step| step.operations_s[*number]).sum::<f64>()
                / profile.steps.len() as f64
        };
        Ok(Needs {
            downloaded,
            rows: computes.iter().map(row).collect(),
            compute_s: computes.iter().map(mean_s).collect(),
        })
    }

    /// `P` and `M⁺` of every part, when `outstanding` parts have not been sent and take `send_s` seconds.
    fn measures(&self, outstanding: &[bool], send_s: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (mut alone_s, mut together_s) = (vec![0.0; send_s.len()], vec![f64::INFINITY; send_s.len()]);
        for (row, compute_s) in self.rows.iter().zip(&self.compute_s) {
            let waits = || row.iter().map(|part| *part as usize).filter(|part| outstanding[*part]);
            match waits().count() {
                0 => {}
                1 => waits().for_each(|part| alone_s[part] += compute_s),
                _ => {
                    let sum_s: f64 = waits().map(|part| send_s[part]).sum();
                    waits().for_each(|part| together_s[part] = together_s[part].min(sum_s));
                }
            }
        }
        (alone_s, together_s)
    }
}

/// Refuses a profile whose operations times `factor` are more than `most`.
fn refuse_beyond(most: usize, profile: &Profile, factor: usize) -> Result<(), InputError> {
    let (operations, parts) = (profile.operations.len(), profile.parts.len());
    if operations.saturating_mul(factor) <= most {
        return Ok(());
    }
    let what =
        format!("{operations} operations and {parts} parts are too many to be ordered by what they need");
    Err(InputError::new("order", what).hint("send them first come first served, or in turns"))
}

/// Levels by the timing-independent rule: parts by `M⁺` where every transfer takes the same time, equal ones
/// on the same level. For [`super::TransmissionOrder::Priority`]; parts that are not downloaded come last.
///
/// # Errors
///
/// Returns an error on any of these: what [`Profile::check`] complains of; more operations and parts than fit.
pub fn tic(profile: &Profile) -> Result<Vec<u32>, InputError> {
    let needs = Needs::new(profile)?;
    let (_, together) = needs.measures(&needs.downloaded, &vec![1.0; needs.downloaded.len()]);
    let key = |part: usize| if needs.downloaded[part] { (0, together[part]) } else { (1, 0.0) };
    let before = |a: &usize, b: &usize| {
        let ((a_last, a_sum), (b_last, b_sum)) = (key(*a), key(*b));
        a_last.cmp(&b_last).then(a_sum.total_cmp(&b_sum))
    };
    let mut parts: Vec<usize> = (0..needs.downloaded.len()).collect();
    parts.sort_by(before);
    let mut levels = vec![0; parts.len()];
    let mut level = 0;
    for pair in parts.windows(2) {
        level += u32::from(before(&pair[0], &pair[1]).is_lt());
        levels[pair[1]] = level;
    }
    Ok(levels)
}

/// Levels by the timing-aware rule: of the parts that have not been sent, part `a` goes before part `b` when `min(P(b),
/// M(a)) < min(P(a), M(b))`, or, these being equal, when its `M⁺` is smaller; after each choice everything is computed
/// again. For [`super::TransmissionOrder::Priority`]; parts that are not downloaded come last.
///
/// # Errors
///
/// Returns an error on any of these: what [`Profile::check`] complains of; a bandwidth that carries nothing; more
/// operations and parts than fit.
pub fn tac(profile: &Profile, bandwidth_bytes_per_s: f64) -> Result<Vec<u32>, InputError> {
    check::not_positive("order", "the bandwidth in bytes/s", bandwidth_bytes_per_s)?;
    refuse_beyond(MOST_TURNS, profile, profile.parts.len().saturating_pow(2))?;
    let needs = Needs::new(profile)?;
    let send_s: Vec<f64> =
        profile.parts.iter().map(|part| part.bytes as f64 / bandwidth_bytes_per_s).collect();
    let mut outstanding = needs.downloaded.clone();
    let mut levels = vec![profile.parts.len() as u32; profile.parts.len()];
    for level in 0..profile.parts.len() as u32 {
        let (alone_s, together_s) = needs.measures(&outstanding, &send_s);
        let goes_before = |a: usize, b: usize| {
            let (this, that) = (alone_s[b].min(send_s[a]), alone_s[a].min(send_s[b]));
            this < that || (this == that && together_s[a] < together_s[b])
        };
        let left = (0..outstanding.len()).filter(|part| outstanding[*part]);
        let Some(next) = left.reduce(|best, part| if goes_before(part, best) { part } else { best }) else {
            break;
        };
        levels[next] = level;
        outstanding[next] = false;
    }
    Ok(levels)
}
