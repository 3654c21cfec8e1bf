//! Tables of measurements: a row for each configuration.

use std::str::FromStr;

use bellwether_core::fitted::Measurement;
use bellwether_core::prediction::{Configuration, Protocol};
use bellwether_core::{InputError, ParseError};

use super::on;

/// Columns that a table may have; `workers` and one of `step_s` and `examples_per_s` it needs.
const COLUMNS: [&str; 9] =
    ["kind", "workers", "step_s", "examples_per_s", "exchange_s", "batch", "bytes", "protocol", "servers"];

/// Most workers of a row, and most parameter servers.
const WORKERS_MAX: u32 = 100_000;

/// One measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The kind of job, where it is said.
    pub kind: Option<String>,
    workers: u32,
    step_s: f64,
    exchange_s: Option<f64>,
    batch: u64,
    /// Bytes that workers exchange in a step, where they are said.
    pub bytes: Option<u64>,
    protocol: Protocol,
    servers: u32,
}

impl Row {
    /// The measurement in the words of the fits.
    pub fn measurement(&self) -> Measurement {
        let configuration =
            Configuration { protocol: self.protocol, servers: self.servers, ..on(self.workers, self.batch) };
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
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let needs =
        "the first line names the columns: workers,step_s or workers,examples_per_s, and more if there are";
    let (_, head) = lines.next().ok_or_else(|| InputError::new(place, "the table is empty").hint(needs))?;
    let columns: Vec<&str> = head.split(',').map(str::trim).collect();
    for (at, column) in columns.iter().enumerate() {
        if !COLUMNS.contains(column) {
            return Err(ParseError::one_of("column", column, COLUMNS).at(place));
        }
        if columns[..at].contains(column) {
            return Err(InputError::new(place, format!("two columns are called `{column}`")));
        }
    }
    let has = |column: &str| columns.contains(&column);
    if !has("workers") || has("step_s") == has("examples_per_s") {
        let what = "it needs a column `workers`, and either `step_s` or `examples_per_s`";
        return Err(InputError::new(place, what).hint(needs));
    }
    let rows = lines.map(|(number, line)| row(&columns, line, &format!("{place}, line {number}")));
    let rows = rows.collect::<Result<Vec<Row>, InputError>>()?;
    if rows.is_empty() {
        return Err(
            InputError::new(place, "the table has no row").hint("a row is one measured configuration")
        );
    }
    Ok(rows)
}

fn row(columns: &[&str], line: &str, place: &str) -> Result<Row, InputError> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() != columns.len() {
        let what = format!("it has {} cells, and there are {} columns", cells.len(), columns.len());
        return Err(InputError::new(place, what));
    }
    let cell = |column: &str| {
        let at = columns.iter().position(|known| *known == column)?;
        Some(cells[at]).filter(|cell| !cell.is_empty())
    };
    let whole = |column: &str, most: u64| whole(column, cell(column), most).map_err(|error| error.at(place));
    let seconds = |column: &str| positive(column, cell(column)).map_err(|error| error.at(place));
    let protocol = cell("protocol").map(Protocol::from_str).transpose().map_err(|error| error.at(place))?;
    let protocol = protocol.unwrap_or(Protocol::Bsp);
    let missing = |column: &str| InputError::new(place, format!("it does not say `{column}`"));
    let workers = whole("workers", u64::from(WORKERS_MAX))?.ok_or_else(|| missing("workers"))? as u32;
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
        workers,
        step_s,
        exchange_s: seconds("exchange_s")?,
        batch,
        bytes: whole("bytes", 1 << 50)?,
        protocol,
        servers: servers.unwrap_or(u32::from(protocol.needs_servers())),
    })
}

/// A whole number from 1 on.
fn whole(column: &str, cell: Option<&str>, most: u64) -> Result<Option<u64>, ParseError> {
    let Some(text) = cell else { return Ok(None) };
    match text.parse::<u64>() {
        Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
        Ok(_) => Err(ParseError::out_of_range(column, text, format!("a whole number from 1 to {most}"))),
        Err(_) => Err(ParseError::new(column, text, "a whole number")),
    }
}

fn positive(column: &str, cell: Option<&str>) -> Result<Option<f64>, ParseError> {
    let Some(text) = cell else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
        Ok(_) => Err(ParseError::out_of_range(column, text, "a number above 0")),
        Err(_) => Err(ParseError::new(column, text, "a number")),
    }
}
