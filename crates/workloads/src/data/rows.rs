//! Rows that a model is applied to: how they stand in files, and how they become inputs and predictions.
//!
//! Whatever was done to the training samples before the model saw them is done to these: the same factor, the same
//! normalisation by what the *training* samples held, the same names of classes.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::{Data, Job, Model, Separator};

use super::access::{Access, Reading};
use super::scaling::Scaling;
use super::source::{Files, Source};
use super::table::Table;
use super::text::Text;
use super::unit::Rows;
use super::{Dataset, Part, cifar, csv, idx, records};

/// How samples of a job stand in files.
#[derive(Debug, Clone)]
pub struct Form {
    pub(super) kind: Kind,
    image: [usize; 3],
    classes: usize,
    names: Vec<String>,
}

/// The kinds of files.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A row per line.
    Lines(Lines),
    /// IDX3: a header of 16 bytes, then the bytes of each image.
    Idx,
    /// CIFAR-10's records.
    Cifar,
    /// Bytes; a row is a window.
    Text,
}

/// Rows of numbers between separators.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    pub(super) separator: Option<Separator>,
    pub(super) header: bool,
    pub(super) label: Option<String>,
    scale: f32,
    /// What brings features to one size.
    scaling: Option<Scaling>,
    /// Values of a row but for a label; what the first row has where the model alone knows.
    pub(super) width: Option<usize>,
}

/// What became of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicted {
    /// A line of CSV for each row.
    pub text: Vec<u8>,
    /// Rows.
    pub rows: usize,
    /// Scores of each row.
    pub outputs: usize,
}

/// Columns of what is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// Whether each row has the probabilities of all classes.
    pub scores: bool,
}

impl Form {
    /// The form of a job's samples. Training data are read: what they held decides how features are normalised. `open`
    /// reads a whole file.
    ///
    /// # Errors
    ///
    /// Returns an error if the training data cannot be read, or the job's model predicts nothing from rows.
    pub fn of(job: &Job, open: &dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Result<Form, InputError> {
        Form::by(job, Access::Whole(open))
    }

    /// As [`of`](Form::of), from files that may be too large for memory.
    ///
    /// # Errors
    ///
    /// Those of [`of`](Form::of).
    pub fn from_files(job: &Job, files: &Arc<dyn Files>) -> Result<Form, InputError> {
        Form::by(job, Access::Files(files))
    }

    fn by(job: &Job, access: Access<'_>) -> Result<Form, InputError> {
        let plain = |scale: f32, width| Lines {
            separator: None,
            header: false,
            label: None,
            scale,
            scaling: None,
            width,
        };
        let (model, data) = (&job.model, &job.data);
        match (model, data) {
            (Model::Python { .. }, _) => {
                let kind = Kind::Lines(plain(1.0, None));
                return Ok(Form { kind, image: [1, 1, 1], classes: 1, names: Vec::new() });
            }
            (Model::Synthetic { .. } | Model::Custom { .. }, _) => {
                return Err(InputError::new("model.kind", "only networks and scripts predict something"));
            }
            (_, Data::Tokens { .. }) => {
                return Err(InputError::new("data.kind", "models of tokens are not applied to files yet")
                    .hint("export the checkpoint, and apply it where its tokens are made"));
            }
            _ => {}
        }
        let context = if let Model::Transformer { context, .. } = model { *context } else { 1 };
        let loaded = Dataset::load(data, context, access)?;
        let width = Some(loaded.image().iter().product());
        let mut names = Vec::new();
        let kind = match data {
            Data::Csv { header, separator, label, classes, scale, .. } => {
                names.clone_from(classes);
                let (header, label, separator) = (*header, label.clone(), *separator);
                let scaling = loaded.scaling().cloned();
                Kind::Lines(Lines { separator, header, label, scale: *scale, scaling, width })
            }
            Data::Digits { .. } => Kind::Lines(plain(1.0 / 16.0, width)),
            Data::Idx { .. } => Kind::Idx,
            Data::Cifar10 { .. } => Kind::Cifar,
            Data::Text { .. } => Kind::Text,
            _ => Kind::Lines(plain(1.0, width)),
        };
        Ok(Form { kind, image: loaded.image(), classes: loaded.classes(), names })
    }

    /// The same whose first line names the columns, or does not.
    #[must_use]
    pub fn with_header(mut self, header: Option<bool>) -> Form {
        if let (Kind::Lines(lines), Some(header)) = (&mut self.kind, header) {
            lines.header = header;
        }
        self
    }

    /// Channels, height and width of a sample.
    pub fn image(&self) -> [usize; 3] {
        self.image
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The name of a class; its number where it has none.
    pub fn class(&self, class: usize) -> String {
        self.names.get(class).cloned().unwrap_or_else(|| class.to_string())
    }

    /// Whether rows stand on lines, which may still be written.
    pub fn has_lines(&self) -> bool {
        matches!(self.kind, Kind::Lines(_))
    }

    /// Decodes rows of the file `name` into the numbers that the model takes; returns how many each row has.
    ///
    /// # Errors
    ///
    /// Returns an error that names the row that cannot be understood.
    pub fn decode(&self, name: &str, rows: &Rows, values: &mut Vec<f32>) -> Result<usize, InputError> {
        let width: usize = self.image.iter().product();
        match &self.kind {
            Kind::Lines(lines) => return lines.decode(name, rows, values),
            Kind::Idx => values.extend(rows.bytes.iter().map(|byte| f32::from(*byte) / 255.0)),
            Kind::Cifar => {
                let records = rows.bytes.chunks_exact(width + 1);
                values.extend(records.flat_map(|record| &record[1..]).map(|byte| f32::from(*byte) / 255.0));
            }
            Kind::Text => values.extend(rows.bytes.iter().map(|byte| f32::from(*byte))),
        }
        Ok(width)
    }

    /// The first line of what is predicted: the names of its columns.
    pub fn header(&self, columns: Columns, outputs: usize) -> String {
        let mut header = String::from("index,prediction");
        if columns.scores {
            for class in 0..outputs {
                header.push(',');
                header.push_str(&quoted(&format!("p_{}", self.class(class))));
            }
        }
        header + "\n"
    }

    /// Writes what the model says of rows: the class with the largest score, the first of equal ones; a model with one
    /// output predicts that number.
    ///
    /// # Errors
    ///
    /// Returns an error if the scores do not fit the rows.
    pub fn predicted(&self, rows: &Rows, scores: &[f32], columns: Columns) -> Result<Predicted, InputError> {
        if rows.count == 0 || scores.is_empty() || !scores.len().is_multiple_of(rows.count) {
            let what = format!("gave {} scores for {} rows", scores.len(), rows.count);
            return Err(InputError::new("the model", what));
        }
        let outputs = scores.len() / rows.count;
        let mut text = Vec::with_capacity(rows.count * (12 + if columns.scores { 12 * outputs } else { 0 }));
        for (index, row) in (rows.first..).zip(scores.chunks_exact(outputs)) {
            // Memory takes everything.
            let _ = write!(text, "{index},");
            let best = (1..outputs).fold(0, |best, class| if row[class] > row[best] { class } else { best });
            let _ = match (outputs, self.names.get(best)) {
                (1, _) => write!(text, "{}", row[0]),
                (_, Some(name)) => write!(text, "{}", quoted(name)),
                (_, None) => write!(text, "{best}"),
            };
            if columns.scores {
                probabilities(row, row[best], &mut text);
            }
            text.push(b'\n');
        }
        Ok(Predicted { text, rows: rows.count, outputs })
    }

    /// The samples of the file `data` as held-out ones.
    pub(crate) fn examined(
        &self,
        job: &Job,
        access: Access<'_>,
        data: &Path,
        labels: Option<&Path>,
    ) -> Result<Dataset, InputError> {
        let name = data.display().to_string();
        let reading = Reading::into_memory(access);
        let file = || vec![vec![data.to_path_buf()]];
        let table = match (&self.kind, labels) {
            (Kind::Idx, Some(labels)) => {
                reading.table(&vec![vec![data.to_path_buf(), labels.to_path_buf()]], &mut idx::Idx)?
            }
            (Kind::Idx, None) => {
                return Err(
                    InputError::new(&name, "images alone cannot be evaluated").hint("add --labels FILE")
                );
            }
            (_, Some(_)) => {
                let error = InputError::new("--labels", "only images in IDX files have a file of labels");
                return Err(error.hint("leave it out: the labels stand beside the samples"));
            }
            (Kind::Cifar, None) => reading.table(&file(), &mut cifar::Cifar)?,
            (Kind::Text, None) => {
                let sources = reading.sources(&file())?.into_iter().flatten().collect();
                let text = Text::held_out(sources, self.image.iter().product());
                if text.count(Part::HeldOut) == 0 {
                    return Err(InputError::new(name, "is shorter than one window of the model and a byte"));
                }
                return Ok(Dataset::applied(super::Samples::Text(text)));
            }
            (Kind::Lines(_), None) if matches!(job.data, Data::Records { .. }) => {
                let Data::Records { shape, .. } = &job.data else { unreachable!("it was looked at") };
                reading.table(&file(), &mut records::Records::new(*shape))?
            }
            (Kind::Lines(lines), None) => {
                let classes =
                    if let Data::Csv { classes, .. } = &job.data { classes.clone() } else { Vec::new() };
                let Lines { separator, header, label, scale, .. } = lines.clone();
                let form = csv::Form { header, scale, separator, label, classes };
                let mut table = reading.table(&file(), &mut csv::Csv::new(form))?;
                table.image = self.fitting(&name, table.image)?;
                if let Some(scaling) = &lines.scaling {
                    table.scale(scaling);
                }
                table
            }
        };
        let unknown = table.labels.iter().position(|label| *label as usize >= self.classes);
        if let Some(row) = unknown {
            let what = format!(
                "row {} has the class {}, and the model knows {} (0 to {})",
                row + 1,
                table.labels[row],
                self.classes,
                self.classes - 1
            );
            return Err(
                InputError::new(name, what).hint("leave such rows out, or train on data that have them")
            );
        }
        self.fitting(&name, table.image)?;
        Dataset::held_out(Table { classes: self.classes, ..table })
    }

    /// The model's shape of samples, for those that have as many values.
    fn fitting(&self, name: &str, image: [usize; 3]) -> Result<[usize; 3], InputError> {
        let [found, needed] = [image, self.image].map(|image| image.iter().product::<usize>());
        if found != needed {
            let what =
                format!("its samples have {found} values beside a label, and the model takes {needed}");
            return Err(InputError::new(name, what)
                .hint("evaluate on data of the kind that the model was trained on"));
        }
        Ok(self.image)
    }
}

impl Lines {
    fn decode(&self, name: &str, rows: &Rows, values: &mut Vec<f32>) -> Result<usize, InputError> {
        let (columns, label) = (rows.columns, rows.label);
        let width = columns - usize::from(label.is_some());
        values.reserve(rows.count * width);
        let mut count = 0;
        let source = Source::memory(name, rows.bytes.clone());
        let mut lines = csv::Lines::new(&source, rows.separator, csv::BUFFER_BYTES);
        while lines.advance()? {
            let record = lines.record();
            let line = || rows.line + lines.line() - 1;
            if record.len() != columns {
                let what = format!("has {} columns, and the rows before it have {columns}", record.len());
                let place = format!("{name}:{}:{}", line(), record.len().min(columns));
                return Err(InputError::new(place, what).hint("mend the row, or leave it out"));
            }
            let begin = values.len();
            for (place, field) in record.iter().enumerate().filter(|(place, _)| Some(*place) != label) {
                let at = || format!("{name}:{}:{}", line(), place + 1);
                let text =
                    std::str::from_utf8(field).map_err(|_| InputError::new(at(), "is not UTF-8 text"))?;
                let value = csv::feature(text, self.scale).map_err(|what| {
                    let hint = if rows.first == 0 && count == 0 {
                        "add --header true if the first line names the columns"
                    } else {
                        "write a number with a decimal point"
                    };
                    InputError::new(at(), what).hint(hint)
                })?;
                values.push(value);
            }
            if let Some(scaling) = &self.scaling {
                scaling.apply(&mut values[begin..]);
            }
            count += 1;
        }
        if count != rows.count {
            let what = format!("{} lines from line {} on are {count} rows", rows.count, rows.line);
            let error = InputError::new(name, what);
            return Err(
                error.hint("a quotation mark is not closed, or a line ends by a carriage return alone")
            );
        }
        Ok(width)
    }
}

/// Appends the softmax of scores, of which `most` is the largest.
fn probabilities(scores: &[f32], most: f32, text: &mut Vec<u8>) {
    let powers: Vec<f32> = scores.iter().map(|score| libm::expf(score - most)).collect();
    let total: f64 = powers.iter().map(|power| f64::from(*power)).sum();
    for power in powers {
        let _ = write!(text, ",{}", (f64::from(power) / total) as f32);
    }
}

/// A field of CSV, in quotation marks where it needs them.
fn quoted(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
