//! What `federate` answers, as data that is printed as a table, JSON or CSV.

use bellwether_sched::federation::advice::{Advice, Structure};
use bellwether_sched::federation::{Coalition, Game};
use serde::Serialize;

/// Coalitions that would leave and are named.
const LEAVERS: usize = 5;
/// Members up to whom every coalition's value is printed.
const LISTED: usize = 10;

/// The whole answer. Money is in dollars per hour.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Report {
    pub(super) game: &'static str,
    /// Saved by all together, compared with each alone.
    pub(super) saved_dollars_per_hour: f64,
    /// Half the width of the 95 % interval of the savings; 0 where they were computed.
    pub(super) half_width_dollars_per_hour: f64,
    pub(super) members: Vec<MemberRow>,
    pub(super) splits: Vec<SplitRow>,
    /// Coalitions of two members or more, and what each saves.
    pub(super) coalitions: Vec<CoalitionRow>,
    pub(super) advice: AdviceRow,
    /// Only of the game `affinity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) market: Option<Market>,
    pub(super) notes: Vec<String>,
}

impl Report {
    /// A report of which splits and advice are still to be filled in.
    pub(super) fn new(game: &'static str, saved_dollars_per_hour: f64, members: Vec<MemberRow>) -> Report {
        let advice = AdviceRow {
            stable: None,
            blocks: Vec::new(),
            payment_dollars_per_hour: Vec::new(),
            sentence: String::new(),
        };
        Report {
            game,
            saved_dollars_per_hour,
            half_width_dollars_per_hour: 0.0,
            members,
            splits: Vec::new(),
            coalitions: Vec::new(),
            advice,
            market: None,
            notes: Vec::new(),
        }
    }

    /// Shows a structure and the split that it comes with in place of the federation of all; the members' rows are to be those
    /// of the structure.
    pub(super) fn show(&mut self, game: &Game, structure: Structure) {
        self.saved_dollars_per_hour = structure.gain;
        let game = game.with_value_of_all(structure.value);
        let named = Named { split: "stable", payment: structure.payment, half_widths: None };
        self.splits = vec![split_row(&named, Some(&game), &self.members)];
    }
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct MemberRow {
    pub(super) name: String,
    /// What it has, in words.
    pub(super) owns: String,
    /// Jobs (game `savings`) or work (game `affinity`, in dollars of the public cloud) that it forwards alone.
    pub(super) alone_forwarded_per_hour: f64,
    /// The same in the federation of all.
    pub(super) forwarded_per_hour: f64,
    /// What it costs alone: its own servers, and the public cloud.
    pub(super) alone_dollars_per_hour: f64,
    /// What it saves on its own bills in the federation of all, before anybody pays anybody.
    pub(super) spared_dollars_per_hour: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct SplitRow {
    pub(super) split: String,
    pub(super) members: Vec<Share>,
    /// Whether nobody would rather leave; absent where that was not looked into.
    pub(super) stable: Option<bool>,
    /// Who would rather leave, whoever gains most first.
    pub(super) leavers: Vec<Leaver>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Share {
    /// Its part of the savings.
    pub(super) dollars_per_hour: f64,
    /// Half the width of its 95 % interval, where it was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) half_width_dollars_per_hour: Option<f64>,
    /// That part over what it costs alone.
    pub(super) cost_cut: f64,
    /// What others pay it to come to that part; less than 0 where it pays others.
    pub(super) receives_dollars_per_hour: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Leaver {
    pub(super) members: Vec<String>,
    /// What they save alone beyond what they are given.
    pub(super) gain_dollars_per_hour: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct CoalitionRow {
    pub(super) members: Vec<String>,
    pub(super) saved_dollars_per_hour: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct AdviceRow {
    /// Whether a stable federation exists; absent where that was not looked into.
    pub(super) stable: Option<bool>,
    /// Who should federate with whom.
    pub(super) blocks: Vec<Vec<String>>,
    /// A split with which nobody leaves, in dollars per hour.
    pub(super) payment_dollars_per_hour: Vec<f64>,
    pub(super) sentence: String,
}

/// Prices and the plan of the affinity game.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Market {
    /// Rent of one device for an hour.
    pub(super) rents: Vec<(String, f64)>,
    /// What one example per second is charged for an hour.
    pub(super) work: Vec<(String, f64)>,
    pub(super) runs: Vec<Run>,
    /// What queues and whole devices make of it, where that was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fluid_saved_dollars_per_hour: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Run {
    pub(super) of: String,
    pub(super) on: String,
    pub(super) class: String,
    pub(super) device: String,
    pub(super) devices: f64,
}

/// A way to split, and what it gives to each; `None` where it gives nothing sensible.
pub(super) struct Named {
    pub(super) split: &'static str,
    pub(super) payment: Vec<f64>,
    pub(super) half_widths: Option<Vec<f64>>,
}

/// A row for a split of a game, or (without a game) of one of which coalitions are not known.
pub(super) fn split_row(named: &Named, game: Option<&Game>, members: &[MemberRow]) -> SplitRow {
    let share = |(place, (payment, member)): (usize, (&f64, &MemberRow))| Share {
        dollars_per_hour: *payment,
        half_width_dollars_per_hour: named.half_widths.as_ref().map(|widths| widths[place]),
        cost_cut: bellwether_sched::federation::splits::relative_cost_cut(
            *payment,
            member.alone_dollars_per_hour,
            0.0,
        ),
        receives_dollars_per_hour: payment - member.spared_dollars_per_hour,
    };
    let leavers = game.map(|game| game.blocking(&named.payment)).unwrap_or_default();
    SplitRow {
        split: named.split.to_string(),
        members: named.payment.iter().zip(members).enumerate().map(share).collect(),
        stable: game.map(|game| game.is_stable(&named.payment)),
        leavers: leavers
            .iter()
            .take(LEAVERS)
            .map(|blocking| Leaver {
                members: names(blocking.coalition, members),
                gain_dollars_per_hour: blocking.gain,
            })
            .collect(),
    }
}

pub(super) fn names(coalition: Coalition, members: &[MemberRow]) -> Vec<String> {
    coalition.members().map(|member| members[member].name.clone()).collect()
}

/// What each coalition of two or more is worth, where there are not too many.
pub(super) fn coalition_rows(game: &Game, members: &[MemberRow]) -> Vec<CoalitionRow> {
    if game.members() > LISTED {
        return Vec::new();
    }
    let several = game.coalitions().filter(|coalition| coalition.size() > 1);
    several
        .map(|coalition| CoalitionRow {
            members: names(coalition, members),
            saved_dollars_per_hour: game.value(coalition),
        })
        .collect()
}

/// What to do, in words.
pub(super) fn advice_row(advice: &Advice, game: &Game, members: &[MemberRow]) -> AdviceRow {
    let row = |structure: Option<&Structure>, sentence: String| AdviceRow {
        stable: Some(advice.is_stable()),
        blocks: match structure {
            Some(structure) => structure.blocks.iter().map(|block| names(*block, members)).collect(),
            None => members.iter().map(|member| vec![member.name.clone()]).collect(),
        },
        payment_dollars_per_hour: structure.map_or_else(Vec::new, |structure| structure.payment.clone()),
        sentence,
    };
    match advice {
        Advice::Together(structure) => row(
            Some(structure),
            format!(
                "Federate all {}: that saves ${:.2}/h, and there is a split with which nobody gains by leaving.",
                game.members(),
                structure.gain
            ),
        ),
        Advice::Apart { structure, beyond_together } => {
            let blocks = structure.blocks.iter().filter(|block| block.size() > 1);
            let blocks: Vec<String> = blocks.map(|block| and(&names(*block, members))).collect();
            let alone = structure.blocks.iter().filter(|block| block.size() == 1);
            let alone: Vec<String> = alone.flat_map(|block| names(*block, members)).collect();
            let others = match alone.len() {
                0 => String::new(),
                1 => format!("; {} stays alone", alone[0]),
                _ => format!("; {} stay alone", and(&alone)),
            };
            row(
                Some(structure),
                format!(
                    "Federate {}{others}: that saves ${:.2}/h, ${beyond_together:.2}/h more than all together, and nobody gains by leaving.",
                    blocks.join(", and apart from them "),
                    structure.gain
                ),
            )
        }
        Advice::Alone => row(None, "Stay apart: no federation of any of them saves anything.".to_string()),
        Advice::Unstable { structure, lacking } => {
            let who = structure.blocking.first().map_or_else(Vec::new, |b| names(b.coalition, members));
            row(
                Some(structure),
                format!(
                    "No federation is stable: sharing saves up to ${:.2}/h, but however that is split some members gain by leaving, at best ${:.2}/h ({}).",
                    structure.gain,
                    lacking.excess,
                    and(&who)
                ),
            )
        }
    }
}

/// `a, b and c`.
pub(super) fn and(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
