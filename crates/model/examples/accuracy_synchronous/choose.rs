//! What is chosen from tables that were measured elsewhere: beliefs about exponents, the weight of a law, intervals.
//!
//! Every table counts the same, however many rows it has. What is tested inside, to choose, is tested on networks that
//! were left out, too.

use bellwether_model::elastic::Row;
use bellwether_model::scaling::{About, Belief, Form, Scaling};

use crate::tables::protocol::{Entry, frozen};
use crate::tables::split::{HeldOut, Split, mean_size, throughput_error};

/// Coverage that intervals claim.
const LEVEL: f64 = 0.95;
/// A belief about an exponent is never surer than this.
const LEAST_SD: f64 = 0.1;
/// Standard deviation that stands for no belief, where a whole table is fitted.
const BROAD_SD: f64 = 3.0;
/// Weights of [`Form::Shared`] that are tried, in twentieths.
const WEIGHTS: u32 = 20;
/// Levels of the quantile that are tried, in thousandths.
const LEVELS: [u32; 19] =
    [900, 910, 920, 930, 940, 945, 950, 955, 960, 965, 970, 975, 980, 985, 990, 993, 995, 997, 999];
/// What the width of an interval may follow; the first is what the model does.
pub(crate) const SCALES: [&str; 4] =
    ["spread and errors left out", "spread of the laws", "errors left out", "nothing"];

/// A table with what does not depend on any belief.
pub(crate) struct Table {
    pub entry: Entry,
    pub split: Split,
    /// Exponents of [`Form::Shared`] fitted to all of its rows; none where the rows do not determine it.
    pub exponents: [Option<f64>; 3],
    /// Logarithms of the step time of each row by every law but [`Form::Shared`].
    others: Vec<[f64; 4]>,
}

/// What one held-out table says, predicted with beliefs that do not come from its network.
pub(crate) struct Tested {
    network: &'static str,
    /// Logarithmic error of each row.
    pub errors: Vec<f64>,
    /// Squared spread of the laws there.
    spreads: Vec<f64>,
    /// Root mean square of the errors that the fit left out.
    residual_sd: f64,
}

impl Tested {
    /// What half of the interval of a row is proportional to.
    pub(crate) fn scale(&self, row: usize, scale: &str) -> f64 {
        let squares = match scale {
            "spread of the laws" => self.spreads[row],
            "errors left out" => self.residual_sd.powi(2),
            "spread and errors left out" => self.spreads[row] + self.residual_sd.powi(2),
            _ => return 1.0,
        };
        (Belief::VAGUE.floor.powi(2) + squares).sqrt()
    }

    fn scaled(&self, scale: &str) -> Vec<f64> {
        self.errors.iter().enumerate().map(|(row, error)| error / self.scale(row, scale)).collect()
    }
}

fn ln_step_s(model: &Scaling, row: &Row) -> f64 {
    model.predict(row.nodes, row.replicas, row.local_batch, 0).step_s.ln()
}

/// All tables of the protocol.
pub(crate) fn prepare() -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for (entry, split) in frozen() {
        let known = tables.iter().find(|table| table.entry.table == entry.table);
        let exponents = known.map_or_else(|| exponents(&split), |table| table.exponents);
        let single = |form: &Form| Scaling::fit_forms(&split.fitted, &[*form]).expect("good rows");
        let models: Vec<Scaling> = Form::ALL[..4].iter().map(single).collect();
        let of = |held: &HeldOut| std::array::from_fn(|law| ln_step_s(&models[law], &held.row));
        let others = split.held_out.iter().map(of).collect();
        tables.push(Table { entry, split, exponents, others });
    }
    tables
}

fn rows(split: &Split) -> Vec<Row> {
    split.fitted.iter().copied().chain(split.held_out.iter().map(|held| held.row)).collect()
}

/// Exponents of a whole table: u needs several numbers of GPUs per node, v and w need three numbers of nodes.
fn exponents(split: &Split) -> [Option<f64>; 3] {
    let rows = rows(split);
    let broad = Belief { exponents: [About { mean: 0.0, sd: BROAD_SD }; 3], ..Belief::VAGUE };
    let model = Scaling::fit_believing(&rows, &[Form::Shared], &broad).expect("good rows");
    let [sharing, growth, beyond_two] = model.exponents().expect("the law is there");
    let mut nodes: Vec<u32> = rows.iter().filter(|row| row.nodes > 1).map(|row| row.nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut over_nodes = rows.iter().filter(|row| row.nodes > 1);
    let first = over_nodes.next().copied();
    let shared_otherwise = first
        .is_some_and(|first| over_nodes.any(|row| row.replicas * first.nodes != first.replicas * row.nodes));
    let three = nodes.len() >= 3;
    [shared_otherwise.then_some(sharing), three.then_some(growth), three.then_some(beyond_two)]
}

fn networks(tables: &[&Table]) -> Vec<&'static str> {
    let mut networks: Vec<&'static str> = tables.iter().map(|table| table.entry.network).collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}

fn without<'t>(tables: &[&'t Table], network: &str) -> Vec<&'t Table> {
    tables.iter().copied().filter(|table| table.entry.network != network).collect()
}

/// Mean over networks, and the deviation of one more table from it.
fn learn(tables: &[&Table]) -> [About; 3] {
    std::array::from_fn(|exponent| {
        let usual = || tables.iter().filter(|table| table.entry.split == "usual");
        let known = usual().filter_map(|table| Some((table.entry.network, table.exponents[exponent]?)));
        let known: Vec<(&str, f64)> = known.collect();
        let means: Vec<f64> = networks(tables)
            .iter()
            .map(|network| known.iter().filter(|(of, _)| of == network).map(|(_, value)| *value).collect())
            .filter(|values: &Vec<f64>| !values.is_empty())
            .map(|values| values.iter().sum::<f64>() / values.len() as f64)
            .collect();
        if means.len() < 2 {
            return Belief::VAGUE.exponents[exponent];
        }
        let count = means.len() as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = known.iter().map(|(_, value)| (value - mean).powi(2)).sum();
        let variance = squares / (known.len() as f64 - 1.0) * (1.0 + 1.0 / count);
        About { mean, sd: variance.sqrt().max(LEAST_SD) }
    })
}

/// What these tables teach, and the quantiles of the interval if its width followed each of [`SCALES`].
pub(crate) fn choose(tables: &[&Table]) -> (Belief, [f64; 4]) {
    let networks = networks(tables);
    let beliefs: Vec<Belief> = networks
        .iter()
        .map(|network| Belief { exponents: learn(&without(tables, network)), ..Belief::VAGUE })
        .collect();
    let belief_of = |table: &Table| {
        beliefs[networks.iter().position(|network| *network == table.entry.network).expect("its network")]
    };
    let shared: Vec<Vec<f64>> = tables.iter().map(|table| shared_ln_s(table, &belief_of(table))).collect();
    let shared_weight = weight(tables, &shared);
    let tested: Vec<Tested> = tables
        .iter()
        .zip(&shared)
        .map(|(table, shared)| test(table, shared, &Belief { shared_weight, ..belief_of(table) }))
        .collect();
    let quantiles = SCALES.map(|scale| {
        let scaled: Vec<_> = tested.iter().map(|tested| (tested.network, tested.scaled(scale))).collect();
        calibrate(&scaled)
    });
    let blind: Vec<(&str, Vec<f64>)> = tables
        .iter()
        .filter(|table| table.entry.split == "usual")
        .map(|table| {
            (table.entry.network, blind_errors(table, &Belief { shared_weight, ..belief_of(table) }))
        })
        .filter(|(_, errors)| !errors.is_empty())
        .collect();
    let exponents = learn(tables);
    let (quantile, unmeasured) = (quantiles[0], calibrate(&blind));
    (Belief { exponents, shared_weight, quantile, unmeasured, ..Belief::VAGUE }, quantiles)
}

fn shared_ln_s(table: &Table, belief: &Belief) -> Vec<f64> {
    let model = Scaling::fit_believing(&table.split.fitted, &[Form::Shared], belief).expect("good rows");
    table.split.held_out.iter().map(|held| ln_step_s(&model, &held.row)).collect()
}

fn mixed(others: &[f64; 4], shared: f64, weight: f64) -> (f64, f64) {
    let part = (1.0 - weight) / 4.0;
    let mean = weight * shared + part * others.iter().sum::<f64>();
    let squares = others.iter().map(|other| part * (other - mean).powi(2)).sum::<f64>();
    (mean, squares + weight * (shared - mean).powi(2))
}

/// The weight with the smallest mean error over tables.
fn weight(tables: &[&Table], shared: &[Vec<f64>]) -> f64 {
    let error = |weight: f64| -> f64 {
        let of = |(table, shared): (&&Table, &Vec<f64>)| {
            let rows = table.split.held_out.iter().zip(&table.others).zip(shared);
            mean_size(rows.map(|((held, others), shared)| {
                throughput_error(mixed(others, *shared, weight).0.exp(), held.row.step_s)
            }))
        };
        tables.iter().zip(shared).map(of).sum()
    };
    let weights = (0..=WEIGHTS).map(|part| f64::from(part) / f64::from(WEIGHTS));
    weights.min_by(|a, b| error(*a).total_cmp(&error(*b))).expect("some weight")
}

/// A table that did not teach the belief.
pub(crate) fn test_on(table: &Table, belief: &Belief) -> Tested {
    test(table, &shared_ln_s(table, belief), belief)
}

fn test(table: &Table, shared: &[f64], belief: &Belief) -> Tested {
    let model = Scaling::fit_believing(&table.split.fitted, &Form::ALL, belief).expect("good rows");
    let mut tested = Tested {
        network: table.entry.network,
        errors: Vec::new(),
        spreads: Vec::new(),
        residual_sd: model.cross_validated_error(),
    };
    for ((held, others), shared) in table.split.held_out.iter().zip(&table.others).zip(shared) {
        let (mean, squares) = mixed(others, *shared, belief.shared_weight);
        tested.errors.push(mean - held.row.step_s.ln());
        tested.spreads.push(squares);
    }
    tested
}

/// Errors over nodes of the model that saw only one node.
pub(crate) fn blind_errors(table: &Table, belief: &Belief) -> Vec<f64> {
    let (alone, over_nodes): (Vec<Row>, Vec<Row>) = rows(&table.split).iter().partition(|row| row.nodes == 1);
    let fitted: Vec<Row> = table.split.fitted.iter().copied().filter(|row| alone.contains(row)).collect();
    let model = Scaling::fit_believing(&fitted, &Form::ALL, belief).expect("good rows");
    over_nodes.iter().map(|row| ln_step_s(&model, row) - row.step_s.ln()).collect()
}

/// The value that a part `level` of all sizes does not exceed, each table counting the same.
fn of_tables<'t>(tables: impl Iterator<Item = &'t [f64]>, level: f64) -> f64 {
    let mut sizes: Vec<(f64, f64)> = Vec::new();
    let mut count = 0.0;
    for table in tables {
        sizes.extend(table.iter().map(|value| (value.abs(), 1.0 / table.len() as f64)));
        count += 1.0;
    }
    sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = 0.0;
    for (size, weight) in &sizes {
        below += weight;
        if below >= level * count {
            return *size;
        }
    }
    sizes.last().map_or(0.0, |size| size.0)
}

/// The quantile of these sizes, by table with its network, that holds [`LEVEL`] of networks left out: its level is the
/// least for which the quantiles of the others do. That is more than [`LEVEL`], as networks differ.
fn calibrate(tables: &[(&str, Vec<f64>)]) -> f64 {
    let quantile = |without: Option<&str>, level: f64| {
        let others = tables.iter().filter(|(network, _)| Some(*network) != without);
        of_tables(others.map(|(_, sizes)| sizes.as_slice()), level)
    };
    let covered = |level: f64| -> f64 {
        let of = |(network, sizes): &(&str, Vec<f64>)| {
            let most = quantile(Some(network), level);
            sizes.iter().filter(|size| size.abs() <= most).count() as f64 / sizes.len() as f64
        };
        tables.iter().map(of).sum::<f64>() / tables.len() as f64
    };
    let levels = LEVELS.map(|level| f64::from(level) / 1000.0);
    let level = levels.into_iter().find(|level| covered(*level) >= LEVEL);
    quantile(None, level.unwrap_or(levels[levels.len() - 1]))
}
