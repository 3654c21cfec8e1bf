//! Reads the published measurements of CM-DARE: step times of networks on a device, and checkpoint times.

use bellwether_core::error::InputError;

/// One measured training speed.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRow {
    /// The network.
    pub network: String,
    /// Speed of the device, in 10¹² floating-point operations per second.
    pub device_tflops: f64,
    /// Floating-point operations of the network.
    pub operations: f64,
    /// Its number of tensors; absent where the table does not say.
    pub tensors: Option<f64>,
    /// Seconds of a training step.
    pub step_s: f64,
}

/// One measured checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRow {
    /// The network.
    pub network: String,
    /// Size of all files, in 10⁶ bytes.
    pub megabytes: f64,
    /// Size of the weights, in 10⁶ bytes.
    pub weight_megabytes: f64,
    /// Size of the graph's description, in 10⁶ bytes.
    pub graph_megabytes: f64,
    /// Seconds until it stands in the remote storage.
    pub checkpoint_s: f64,
}

/// The rows of a table of step times; `place` names it in errors.
///
/// # Errors
///
/// A column that is missing, or a value that is no positive number, with its line.
pub fn step_rows(text: &str, place: &str) -> Result<Vec<StepRow>, InputError> {
    let lines = Lines::of(text, place, "Model (temp)")?;
    let device_tflops = lines.column("GPU TFLOPS")?;
    let operations = lines.column("Model FLOPs")?;
    let tensors = lines.column("Number of Tensors")?;
    let step_s = lines.column("Step Time (s)")?;
    let row = |line: &Line<'_>| {
        Ok(StepRow {
            network: line.name.to_string(),
            device_tflops: lines.positive(line, device_tflops)?,
            operations: lines.positive(line, operations)?,
            tensors: match line.field(tensors) {
                "" => None,
                _ => Some(lines.positive(line, tensors)?),
            },
            step_s: lines.positive(line, step_s)?,
        })
    };
    lines.rows.iter().map(row).collect()
}

/// The rows of a table of checkpoints; `place` names it in errors.
///
/// # Errors
///
/// As [`step_rows`].
pub fn checkpoint_rows(text: &str, place: &str) -> Result<Vec<CheckpointRow>, InputError> {
    let lines = Lines::of(text, place, "Model")?;
    let megabytes = lines.column("Checkpoint Size (MB)")?;
    let weights = lines.column("Weight File Size")?;
    let graph = lines.column("Meta File Size")?;
    let checkpoint_s = lines.column("Duration")?;
    let row = |line: &Line<'_>| {
        Ok(CheckpointRow {
            network: line.name.to_string(),
            megabytes: lines.positive(line, megabytes)?,
            weight_megabytes: lines.positive(line, weights)?,
            graph_megabytes: lines.positive(line, graph)?,
            checkpoint_s: lines.positive(line, checkpoint_s)?,
        })
    };
    lines.rows.iter().map(row).collect()
}

/// A table of commas; no field of these files is quoted.
struct Lines<'a> {
    place: &'a str,
    head: Vec<&'a str>,
    rows: Vec<Line<'a>>,
}

struct Line<'a> {
    /// Counted from 1, as an editor does.
    number: usize,
    name: &'a str,
    fields: Vec<&'a str>,
}

impl Line<'_> {
    fn field(&self, column: usize) -> &str {
        self.fields.get(column).copied().unwrap_or("")
    }
}

impl<'a> Lines<'a> {
    fn of(text: &'a str, place: &'a str, name: &str) -> Result<Lines<'a>, InputError> {
        // A spreadsheet that saves the table again begins it with a byte order mark.
        let mut lines = text.trim_start_matches('\u{feff}').lines();
        let split = |line: &'a str| line.split(',').map(str::trim).collect::<Vec<&str>>();
        let mut table = Lines { place, head: split(lines.next().unwrap_or("")), rows: Vec::new() };
        let name = table.column(name)?;
        for (number, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fields = split(line);
            let name = fields.get(name).copied().unwrap_or("");
            table.rows.push(Line { number: number + 2, name, fields });
        }
        Ok(table)
    }

    fn column(&self, wanted: &str) -> Result<usize, InputError> {
        self.head.iter().position(|column| *column == wanted).ok_or_else(|| {
            InputError::new(self.place, format!("there is no column `{wanted}`"))
                .hint(format!("the columns are: {}", self.head.join(", ")))
        })
    }

    fn positive(&self, line: &Line<'_>, column: usize) -> Result<f64, InputError> {
        let field = line.field(column);
        field.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0).ok_or_else(|| {
            let what = format!("`{field}` in column `{}` is no positive number", self.head[column]);
            InputError::new(format!("{}, line {}", self.place, line.number), what)
        })
    }
}
