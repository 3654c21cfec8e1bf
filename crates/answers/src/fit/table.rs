//! Tables of measurements: a row for each configuration.

use std::str::FromStr;

use bellwether_core::InputError;
use bellwether_core::fitted::Measurement;
use bellwether_core::prediction::{Configuration, Protocol};

use super::on_nodes;
use crate::table::{Cells, Table};

/// Columns that a table may have; `workers` and one of `step_s` and `examples_per_s` it needs.
const COLUMNS: [&str; 12] = [
    "kind",
    "device",
    "workers",
    "nodes",
    "virtual_nodes",
    "step_s",
    "examples_per_s",
    "exchange_s",
    "batch",
    "bytes",
    "protocol",
    "servers",
];

/// Most workers of a row, and most parameter servers.
const WORKERS_MAX: u32 = 100_000;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The kind of job, where it is said.
    pub kind: Option<String>,
    /// The type of its workers' devices, where it is said.
    pub device: Option<String>,
    workers: u32,
    /// Nodes that hold them, as evenly as may be.
    nodes: u32,
    step_s: f64,
    exchange_s: Option<f64>,
    batch: u64,
    /// Virtual nodes that share a step's samples, where they are said.
    pub virtual_nodes: Option<u32>,
    /// Bytes that workers exchange in a step, where they are said.
    pub bytes: Option<u64>,
    protocol: Protocol,
    servers: u32,
}

impl Row {
    /// The measurement in the words of the fits.
    pub fn measurement(&self) -> Measurement {
        let Row { workers, nodes, protocol, servers, .. } = *self;
        let counts = (0..nodes).map(|node| workers / nodes + u32::from(node < workers % nodes));
        let configuration = Configuration { protocol, servers, ..on_nodes(counts, self.batch) };
        Measurement { configuration, step_s: self.step_s, exchange_s: self.exchange_s }
    }
}

/// The rows of a table with a header; `place` names it in errors. Lines that are empty or begin with `#` are left out.
///
/// # Errors
///
/// A column that is unknown or missing, a cell that is not what its column holds; a table without a row.
///
/// ```
/// let rows = bellwether_answers::fit::read_rows("workers,step_s,batch\n1,0.8,64\n2,0.45,64\n", "table.csv").unwrap();
/// assert_eq!(rows.len(), 2);
/// ```
pub fn read_rows(text: &str, place: &str) -> Result<Vec<Row>, InputError> {
    let needs =
        "the first line names the columns: workers,step_s or workers,examples_per_s, and more if there are";
    let table = Table::read(text, place, &COLUMNS, needs)?;
    let has = |column: &str| table.has(column);
    if !has("workers") || has("step_s") == has("examples_per_s") {
        let what = "it needs a column `workers`, and either `step_s` or `examples_per_s`";
        return Err(InputError::new(place, what).hint(needs));
    }
    table.rows().map(|row| self::row(&row)).collect()
}

fn row(cells: &Cells<'_>) -> Result<Row, InputError> {
    let cell = |column: &str| cells.text(column);
    let whole = |column: &str, most: u64| cells.whole(column, most);
    let seconds = |column: &str| cells.positive(column);
    let missing = |column: &str| cells.missing(column);
    let protocol = cell("protocol").map(Protocol::from_str).transpose();
    let protocol = protocol.map_err(|error| error.at(cells.place()))?;
    let protocol = protocol.unwrap_or(Protocol::Bsp);
    let workers = whole("workers", u64::from(WORKERS_MAX))?.ok_or_else(|| missing("workers"))? as u32;
    let nodes = whole("nodes", u64::from(workers))?.map_or(workers, |nodes| nodes as u32);
    // Where no batch is said, a sample is a step: of all workers, or of each where they do not wait.
    let each = if protocol == Protocol::Bsp { 1 } else { u64::from(workers) };
    let batch = whole("batch", 1 << 40)?.unwrap_or(each);
    let step_s = match (seconds("step_s")?, seconds("examples_per_s")?) {
        (Some(step_s), _) => step_s,
        (None, Some(rate)) => batch as f64 / rate,
        (None, None) => return Err(missing("step_s")),
    };
    let servers = whole("servers", u64::from(WORKERS_MAX))?.map(|servers| servers as u32);
    Ok(Row {
        kind: cell("kind").map(String::from),
        device: cell("device").map(String::from),
        workers,
        nodes,
        step_s,
        exchange_s: seconds("exchange_s")?,
        batch,
        virtual_nodes: whole("virtual_nodes", u64::from(WORKERS_MAX))?.map(|nodes| nodes as u32),
        bytes: whole("bytes", 1 << 50)?,
        protocol,
        servers: servers.unwrap_or(u32::from(protocol.needs_servers())),
    })
}
