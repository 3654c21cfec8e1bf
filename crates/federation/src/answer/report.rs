//! What a game of savings answers, as data that a caller prints as a table, JSON or CSV.

use serde::Serialize;

use super::format::and;
use crate::game::advice::{Advice, Structure};
use crate::game::splits::relative_cost_cut;
use crate::game::{Coalition, Game};

/// Coalitions that would leave and are named.
const LEAVERS: usize = 5;
/// Dollars per hour that are not worth a transfer.
const CENT: f64 = 0.005;
/// Members up to whom every coalition's value is printed.
const LISTED: usize = 10;

/// The whole answer. Money is in dollars per hour.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// `savings` or `affinity`.
    pub game: &'static str,
    /// Saved by all together, compared with each alone.
    pub saved_dollars_per_hour: f64,
    /// Half the width of the 95 % interval of the savings; 0 where they were computed.
    pub half_width_dollars_per_hour: f64,
    /// The members, in the order of the description.
    pub members: Vec<MemberRow>,
    /// The splits that were wanted and exist.
    pub splits: Vec<SplitRow>,
    /// Coalitions of two members or more, and what each saves.
    pub coalitions: Vec<CoalitionRow>,
    /// What to do.
    pub advice: AdviceRow,
    /// Only of the game `affinity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub market: Option<Market>,
    /// What else a reader should know, in words.
    pub notes: Vec<String>,
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

    /// Shows a structure and the split that it comes with in place of the federation of all; the members' rows are
    /// to be those of the structure.
    pub(super) fn show(&mut self, game: &Game, structure: Structure) {
        self.saved_dollars_per_hour = structure.gain;
        let game = game.with_value_of_all(structure.value);
        let named = SplitSpec { split: "stable", payment: structure.payment, half_widths: None };
        self.splits = vec![split_row(&named, Some(&game), &self.members)];
    }
}

/// A member, and its bills.
#[derive(Debug, Clone, Serialize)]
pub struct MemberRow {
    /// Its name.
    pub name: String,
    /// What it has, in words.
    pub owns: String,
    /// Jobs (game `savings`) or work (game `affinity`, in dollars of the public cloud) that it forwards alone.
    pub alone_forwarded_per_hour: f64,
    /// The same in the federation of all.
    pub forwarded_per_hour: f64,
    /// What it costs alone: its own servers, and the public cloud.
    pub alone_dollars_per_hour: f64,
    /// What it saves on its own bills in the federation of all, before any payments.
    pub spared_dollars_per_hour: f64,
}

/// One way to split the savings.
#[derive(Debug, Clone, Serialize)]
pub struct SplitRow {
    /// Its name.
    pub split: String,
    /// What each member gets, in the order of [`Report::members`].
    pub members: Vec<Share>,
    /// Whether no member would rather leave; absent where that was not looked into.
    pub stable: Option<bool>,
    /// Who would rather leave, the largest gain first.
    pub leavers: Vec<Leaver>,
}

/// What one member pays another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Payment {
    /// The place of the member who pays.
    pub from: usize,
    /// The place of the member who is paid.
    pub to: usize,
    /// How much.
    pub dollars_per_hour: f64,
}

impl SplitRow {
    /// Who pays whom, so that each ends with its share: few payments, the largest first.
    pub fn payments(&self) -> Vec<Payment> {
        let mut open: Vec<f64> = self.members.iter().map(|share| share.receives_dollars_per_hour).collect();
        let mut payments = Vec::new();
        for _ in 0..open.len() {
            let to = (0..open.len()).max_by(|a, b| open[*a].total_cmp(&open[*b])).unwrap_or(0);
            let from = (0..open.len()).min_by(|a, b| open[*a].total_cmp(&open[*b])).unwrap_or(0);
            let dollars_per_hour = open[to].min(-open[from]);
            if dollars_per_hour < CENT {
                break;
            }
            (open[to], open[from]) = (open[to] - dollars_per_hour, open[from] + dollars_per_hour);
            payments.push(Payment { from, to, dollars_per_hour });
        }
        payments
    }
}

/// What one member gets by a split.
#[derive(Debug, Clone, Serialize)]
pub struct Share {
    /// Its part of the savings.
    pub dollars_per_hour: f64,
    /// Half the width of its 95 % interval, where it was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width_dollars_per_hour: Option<f64>,
    /// That part over what it costs alone.
    pub cost_cut: f64,
    /// What others pay it to come to that part; less than 0 where it pays others.
    pub receives_dollars_per_hour: f64,
}

/// A coalition that would rather leave.
#[derive(Debug, Clone, Serialize)]
pub struct Leaver {
    /// The names of its members.
    pub members: Vec<String>,
    /// What they save alone beyond what they are given.
    pub gain_dollars_per_hour: f64,
}

/// A coalition, and what it saves.
#[derive(Debug, Clone, Serialize)]
pub struct CoalitionRow {
    /// The names of its members.
    pub members: Vec<String>,
    /// What they save together, compared with each alone.
    pub saved_dollars_per_hour: f64,
}

/// What to do.
#[derive(Debug, Clone, Serialize)]
pub struct AdviceRow {
    /// Whether a stable federation exists; absent where that was not looked into.
    pub stable: Option<bool>,
    /// Who should federate with whom.
    pub blocks: Vec<Vec<String>>,
    /// A split with which no member leaves, in dollars per hour.
    pub payment_dollars_per_hour: Vec<f64>,
    /// The advice in one sentence.
    pub sentence: String,
}

/// Prices and the plan of the affinity game.
#[derive(Debug, Clone, Serialize)]
pub struct Market {
    /// Rent of one device for an hour.
    pub rents: Vec<(String, f64)>,
    /// What one example per second is charged for an hour.
    pub work: Vec<(String, f64)>,
    /// What runs where by the best plan.
    pub runs: Vec<Run>,
    /// What queues and whole devices make of it, where that was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fluid_saved_dollars_per_hour: Option<f64>,
}

/// A part of the plan of the affinity game.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Whose work it is.
    pub of: String,
    /// On whose devices it runs.
    pub on: String,
    /// The class of the work.
    pub class: String,
    /// The type of the devices.
    pub device: String,
    /// How many of them it takes, parts of one included.
    pub devices: f64,
}

/// A way to split, and what it gives to each; `None` where it gives nothing sensible.
pub(super) struct SplitSpec {
    pub(super) split: &'static str,
    pub(super) payment: Vec<f64>,
    pub(super) half_widths: Option<Vec<f64>>,
}

/// A row for a split of a game, or (without a game) of one of which coalitions are not known.
pub(super) fn split_row(named: &SplitSpec, game: Option<&Game>, members: &[MemberRow]) -> SplitRow {
    let share = |(place, (payment, member)): (usize, (&f64, &MemberRow))| Share {
        dollars_per_hour: *payment,
        half_width_dollars_per_hour: named.half_widths.as_ref().map(|widths| widths[place]),
        cost_cut: relative_cost_cut(*payment, member.alone_dollars_per_hour, 0.0),
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
                "Federate all {}: that saves ${:.2}/h, and there is a split with which no member gains by leaving.",
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
                    "Federate {}{others}: that saves ${:.2}/h, ${beyond_together:.2}/h more than all together, and no member gains by leaving.",
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
