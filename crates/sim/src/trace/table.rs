//! Reads all formats of rows and columns, by what their [schemas](super::schema) say.

use bellwether_core::parse::{did_you_mean, nearest};
use bellwether_core::{InputError, ParseError};
use csv::ByteRecord;

use super::job_builder::{Gathered, JobBuilder};
use super::schema::{CSV, Field, SCHEMAS, Schema};
use super::{Format, RowError, alibaba, value};

/// Rows of a table, each with its line in the file.
struct Rows<'a> {
    bytes: &'a [u8],
    reader: csv::Reader<&'a [u8]>,
    record: ByteRecord,
}

/// Reads a table into `found`, and says its format.
pub(super) fn read(bytes: &[u8], format: Option<Format>, found: &mut Gathered) -> Result<Format, InputError> {
    let place = found.options.place.clone();
    let first_line = bytes.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    let Some(first_line) = first_line else { return Err(InputError::new(place, "is empty")) };
    let tabs = first_line.contains(&b'\t');
    let mut rows = Rows::new(bytes, tabs);
    let Some(row) = rows.next() else { return Err(InputError::new(place, "is empty")) };
    let first: Vec<String> =
        rows.cells().map(|cell| String::from_utf8_lossy(cell).trim().to_string()).collect();
    let at_first = |error: InputError| InputError { place: format!("{place}, row {row}"), ..error };
    let (schema, header) = recognise(&first, format).map_err(at_first)?;
    let layout = if header {
        layout(schema, &first).map_err(at_first)?
    } else {
        // The first row is a job.
        rows = Rows::new(bytes, tabs);
        schema.columns.iter().map(|(name, field)| ((*name).to_string(), *field)).collect()
    };
    Table { schema, layout, dated: None, tasks: Vec::new() }.read(rows, found);
    Ok(schema.format)
}

/// The schema that the first row tells, and whether that row is a header.
fn recognise(first: &[String], format: Option<Format>) -> Result<(&'static Schema, bool), InputError> {
    let allowed = |schema: &&Schema| format.is_none_or(|format| schema.format == format);
    let holds = |column: &&str| first.iter().any(|cell| cell == column);
    let matching = |schema: &Schema| schema.needed.iter().filter(|column| holds(column)).count();
    let mut schemas = SCHEMAS.iter().filter(allowed);
    if let Some(schema) = schemas.find(|s| !s.needed.is_empty() && matching(s) == s.needed.len()) {
        return Ok((schema, true));
    }
    if let Some(schema) = SCHEMAS.iter().filter(allowed).find(|schema| schema.bare && is_job(schema, first)) {
        return Ok((schema, false));
    }
    let closest = SCHEMAS.iter().filter(allowed).filter(|s| !s.needed.is_empty()).rev();
    // Where none is near, our own format helps most.
    let closest = closest.max_by_key(|schema| matching(schema)).filter(|schema| matching(schema) > 0);
    let closest = closest.or(format.and_then(|format| SCHEMAS.iter().find(|schema| schema.format == format)));
    let closest = closest.unwrap_or(&CSV);
    let missing = closest.needed.iter().find(|column| !holds(column)).unwrap_or(&"job_id");
    let known = format!("a trace of format `{}` begins with {}", closest.format, closest.needed.join(","));
    if matching(closest) == 0 {
        let formats = Format::ALL.map(Format::name).join(", ");
        return Err(InputError::new("", "is the header of no known trace")
            .hint(format!("{known}; known formats: {formats}")));
    }
    let hint = match nearest(missing, first) {
        Some(near) => format!("is `{near}` meant? {known}"),
        None => known,
    };
    Err(InputError::new("", format!("has no column `{missing}`")).hint(hint))
}

/// Whether a row without a header fits a schema: as many columns, and numbers where numbers must be.
fn is_job(schema: &Schema, row: &[String]) -> bool {
    let fits = |((_, field), cell): (&(&str, Field), &String)| match field {
        Field::Name | Field::Model | Field::Queue | Field::Ignored => true,
        _ => is_blank(cell) || cell.parse::<f64>().is_ok(),
    };
    row.len() == schema.columns.len() && schema.columns.iter().zip(row).all(fits)
}

/// What each column of a header means.
fn layout(schema: &Schema, header: &[String]) -> Result<Vec<(String, Field)>, InputError> {
    let mut layout = Vec::with_capacity(header.len());
    for (at, column) in header.iter().enumerate() {
        if header[..at].contains(column) {
            return Err(InputError::new("", format!("names the column `{column}` twice")));
        }
        let field = match schema.field(column) {
            Some(field) => field,
            // Published traces come with more columns than their papers say.
            None if schema.format != Format::Csv => Field::Ignored,
            None => {
                let known: Vec<&str> = schema.columns.iter().map(|(name, _)| *name).collect();
                return Err(InputError::new("", format!("has an unknown column `{column}`"))
                    .hint(did_you_mean(column, &known)));
            }
        };
        layout.push((column.clone(), field));
    }
    let says_work = |(_, field): &(String, Field)| matches!(field, Field::Duration | Field::Work);
    if schema.format == Format::Csv && !layout.iter().any(says_work) {
        return Err(InputError::new("", "has neither a column `duration` nor a column `work`"));
    }
    Ok(layout)
}

/// Spreadsheets and pandas write an absent value in several ways.
fn is_blank(cell: &str) -> bool {
    matches!(cell, "" | "nan" | "NaN" | "None" | "NULL")
}

struct Table {
    schema: &'static Schema,
    layout: Vec<(String, Field)>,
    /// Whether times are dates, as the first row tells.
    dated: Option<bool>,
    tasks: Vec<alibaba::Task>,
}

impl Table {
    fn read(mut self, mut rows: Rows, found: &mut Gathered) {
        let mut number = 0_usize;
        while let Some(row) = rows.next() {
            let mut draft = JobBuilder { row, ..JobBuilder::default() };
            let mut task = alibaba::Task::default();
            if self.layout.iter().all(|(_, field)| *field != Field::Name) {
                draft.name = number.to_string();
            }
            number += 1;
            let fault = self.fill(&mut draft, &mut task, &rows, found).err();
            match fault {
                fault if self.schema.format == Format::Alibaba2020 && !draft.name.is_empty() => {
                    self.tasks.push(alibaba::Task { draft, fault, ..task });
                }
                Some(why) => found.refuse(row, &draft.name, why),
                None => {
                    self.complete(&mut draft);
                    found.take(draft);
                }
            }
        }
        alibaba::join(self.tasks, found);
        if self.dated == Some(true) {
            found.begin_at_first_day();
        }
    }

    fn fill(
        &mut self,
        draft: &mut JobBuilder,
        task: &mut alibaba::Task,
        rows: &Rows,
        found: &mut Gathered,
    ) -> Result<(), RowError> {
        let mut fault = None;
        let (columns, cells) = (self.layout.len(), rows.record.len());
        for (at, cell) in rows.cells().enumerate().take(columns) {
            let (column, field) = &self.layout[at];
            if *field == Field::Ignored {
                continue;
            }
            let filled = match std::str::from_utf8(cell) {
                Err(_) => Err(RowError::NotText { column: column.clone() }),
                Ok(text) => {
                    Table::put(self.schema.format, &mut self.dated, *field, text.trim(), (draft, task), found)
                        .map_err(|error| RowError::Cell { column: column.clone(), error })
                }
            };
            // The name may stand in a later column.
            if let (Err(why), None) = (filled, &fault) {
                fault = Some(why);
            }
        }
        if cells != columns {
            fault = Some(RowError::Columns { found: cells, expected: columns });
        }
        fault.map_or(Ok(()), Err)
    }

    fn put(
        format: Format,
        dated: &mut Option<bool>,
        field: Field,
        text: &str,
        (draft, task): (&mut JobBuilder, &mut alibaba::Task),
        found: &mut Gathered,
    ) -> Result<(), ParseError> {
        if text.is_empty() || (format != Format::Csv && is_blank(text)) {
            return Ok(());
        }
        match field {
            Field::Name => draft.name = text.to_string(),
            Field::Arrival => {
                let (seconds, date) = value::time(text)?;
                if *dated.get_or_insert(date) != date {
                    let expected = "a date in every row, or seconds in every row";
                    return Err(ParseError::new("time", text, expected));
                }
                draft.arrival_s = Some(seconds);
            }
            Field::Deadline => draft.deadline_s = Some(value::time(text)?.0),
            Field::Duration => draft.duration_s = Some(value::time(text)?.0),
            Field::Started => draft.started_s = Some(value::time(text)?.0),
            Field::Ended => draft.ended_s = Some(value::time(text)?.0),
            Field::Work => draft.work = Some(value::amount(text)?),
            Field::Weight => draft.weight = Some(value::amount(text)?),
            Field::Devices => draft.devices = Some(value::count(text)?),
            Field::Least => draft.min_devices = Some(value::count(text)?),
            Field::Most => draft.max_devices = Some(value::count(text)?),
            Field::Thousandths => draft.share = Some(value::amount(text)? / 1000.0),
            Field::Instances => task.instances = value::amount(text)?,
            Field::Percent => task.percent = value::amount(text)?,
            Field::Model => draft.model = text.to_string(),
            Field::Batch => draft.batch = Some(value::batch(text)?),
            Field::DeviceTypes => draft.device_types = found.device_types_of(text)?,
            Field::AdaptiveBatch => draft.adaptive_batch = value::yes_or_no(text)?,
            Field::Protocols => draft.ways.protocols = value::protocols(text)?,
            Field::Servers => draft.ways.servers = Some(value::servers(text)?),
            Field::NodesPerUpdate => draft.ways.nodes_per_update = value::count(text)?.max(1),
            Field::SwitchAt => draft.ways.switch_at = Some(value::share(text)?),
            Field::Queue => draft.queue = Some(text.to_string()),
            Field::Ignored => {}
        }
        Ok(())
    }

    /// What a format means without saying it.
    fn complete(&self, draft: &mut JobBuilder) {
        match self.schema.format {
            Format::Pollux => {
                draft.adaptive_batch = true;
                draft.work = draft.work.or(Some(f64::INFINITY));
                // No more devices than a step has samples.
                let most = draft.batch.map_or(1, |batch| u32::try_from(batch).unwrap_or(u32::MAX));
                draft.range = Some((1, most.max(draft.devices.unwrap_or(1))));
            }
            Format::Gavel => {
                // `ResNet-18 (batch size 32)`: the model keeps its whole name, as tables spell it.
                let size =
                    draft.model.rsplit_once("(batch size ").and_then(|(_, size)| size.strip_suffix(')'));
                draft.batch = size.and_then(|size| value::batch(size).ok());
            }
            // Parts are told of one device only; several are whole.
            Format::Alibaba2023 if draft.devices != Some(1) => draft.share = None,
            _ => {}
        }
    }
}

impl<'a> Rows<'a> {
    fn new(bytes: &'a [u8], tabs: bool) -> Rows<'a> {
        let mut builder = csv::ReaderBuilder::new();
        builder.has_headers(false).flexible(true);
        if tabs {
            // Commands in cells hold quotes that quote nothing.
            builder.delimiter(b'\t').quoting(false);
        }
        Rows { bytes, reader: builder.from_reader(bytes), record: ByteRecord::new() }
    }

    /// Reads the next row that is not empty, and says its line.
    fn next(&mut self) -> Option<usize> {
        loop {
            // Reading from memory does not fail, and rows of any length and any bytes are taken.
            if !self.reader.read_byte_record(&mut self.record).unwrap_or(false) {
                return None;
            }
            if self.cells().any(|cell| !cell.trim_ascii().is_empty()) {
                break;
            }
        }
        let position = self.record.position()?;
        // The reader stands before the rest of a line's end and before empty lines.
        let start = usize::try_from(position.byte()).unwrap_or(usize::MAX).min(self.bytes.len());
        let skipped = self.bytes[start..].iter().take_while(|byte| b"\r\n".contains(byte));
        let lines = skipped.filter(|byte| **byte == b'\n').count();
        Some(usize::try_from(position.line()).unwrap_or(usize::MAX).saturating_add(lines))
    }

    fn cells(&self) -> impl Iterator<Item = &[u8]> {
        self.record.iter()
    }
}
