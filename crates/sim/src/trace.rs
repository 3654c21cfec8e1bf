//! Traces: the jobs of a cluster, read from the formats in which they are published.
//!
//! A fault of the file (no known header, an unknown column) is an error. A fault of one row refuses that job, with the
//! row named in [`Trace::refused`], and the rest is read. What was mended is named in [`Trace::repairs`], once for each
//! kind. A job of no duration is kept: it ends at the instant at which it gets devices.
//!
//! Of formats that say dates, times count from the midnight before the first arrival.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bellwether_core::cluster::Job;
use bellwether_core::{InputError, ParseError};

mod alibaba;
mod job_builder;
mod philly;
mod refused;
mod schema;
mod table;
mod value;

pub(crate) use job_builder::ways_of;
pub use refused::{Refused, RowError};

/// One job of a trace: what its author declared, and the work that it truly holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What its author declared.
    pub job: Arc<Job>,
    /// Work: seconds on the asked devices where it is a duration, else steps or samples, in the units of the model that
    /// says its speed. Infinite where the file leaves it to the model's tables (Pollux).
    pub work: f64,
    /// Whether the work is a duration.
    pub is_duration: bool,
    /// Row of the file, from 1; the header is row 1 where there is one.
    pub row: usize,
}

/// A row that was repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Row of the file, from 1 (of a JSON list: its element).
    pub row: usize,
    /// The job's name; empty where it has none.
    pub job: String,
    /// What was done.
    pub what: String,
}

/// A trace that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// In order of (arrival, name); `JobId(i)` is `entries[i]`. Names count as numbers if all are whole numbers.
    pub entries: Vec<Entry>,
    /// What was mended: of each kind the first row, and how many there were.
    pub repairs: Vec<Remark>,
    /// Jobs that cannot be had, by row.
    pub refused: Vec<Refused>,
    /// The format it was in.
    pub format: Format,
    /// What the indices of [`Job::device_types`] mean: the types of [`ReadOptions`], or where it names none, those that
    /// the file names, in the order in which they come.
    pub device_types: Vec<String>,
}

/// A format of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Our own: `job_id,submit_time,num_gpu,duration` and optional columns.
    Csv,
    /// Microsoft's ITP clusters, published with ElasticFlow: `job_id,submission_time,duration,num_gpu`.
    Itp,
    /// The simulator of Tiresias: `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`.
    Tiresias,
    /// Gavel: its lines of ten columns, or tab-separated columns with a header.
    Gavel,
    /// Workloads of Pollux: `name,time,application,num_replicas,batch_size`.
    Pollux,
    /// Microsoft's Philly: the JSON `cluster_job_log`.
    Philly,
    /// SenseTime's Helios: `cluster_log.csv`.
    Helios,
    /// Alibaba's PAI of 2020: `pai_task_table.csv`, with or without its header.
    Alibaba2020,
    /// Alibaba's pods of 2023: `openb_pod_list_*.csv`.
    Alibaba2023,
}

/// How to read a trace.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions<'a> {
    /// The cluster's types of device; a job that names another is refused. Empty where there is no cluster: then the
    /// types are those that the file names.
    pub device_types: &'a [String],
    /// Makes every job elastic in this range of devices (and in what it asks for) where the file does not say.
    pub elastic: Option<(u32, u32)>,
    /// The file's name, for errors.
    pub place: String,
}

/// Reads a trace; the format is recognised from its first row where it is not given.
///
/// # Errors
///
/// Returns an error if the format is not recognised, a column is missing or unknown, or no job can be had.
///
/// ```
/// use bellwether_sim::trace::{Format, ReadOptions, read};
/// let rows = b"job_id,submit_time,num_gpu,duration\n7,10,4,1h\n8,0,0,60\n";
/// let trace = read(rows, None, &ReadOptions::default()).unwrap();
/// assert_eq!((trace.format, trace.entries[0].work), (Format::Csv, 3600.0));
/// assert_eq!(trace.refused[0].row, 3);
/// ```
pub fn read(bytes: &[u8], format: Option<Format>, options: &ReadOptions) -> Result<Trace, InputError> {
    if let Some((least, most)) = options.elastic
        && !(1..=most).contains(&least)
    {
        return Err(InputError::new(&options.place, format!("no job can use {least} to {most} devices")));
    }
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| b"[{".contains(byte));
    let mut found = job_builder::Gathered::new(options);
    let format = match format {
        Some(Format::Philly) => philly::read(bytes, &mut found)?,
        None if json => philly::read(bytes, &mut found)?,
        _ => table::read(bytes, format, &mut found)?,
    };
    finish(found, format)
}

/// Sorts what was found, and refuses names that come twice.
fn finish(found: job_builder::Gathered, format: Format) -> Result<Trace, InputError> {
    let place = found.options.place.clone();
    let device_types = found.device_types();
    let job_builder::Gathered { mut entries, mut refused, repairs, .. } = found;
    refuse_duplicates(&mut entries, &mut refused);
    refused.sort_by_key(|refused| refused.row);
    if entries.is_empty() {
        let error = match refused.first() {
            None => InputError::new(place, "holds no job"),
            Some(first) => InputError::new(format!("{place}, row {}", first.row), &first.why)
                .hint(format!("no job of this file can be had; it was read as `{format}`")),
        };
        return Err(error);
    }
    if entries.len() > u32::MAX as usize {
        return Err(InputError::new(place, "holds more jobs than can be numbered"));
    }
    let mut repairs: Vec<Remark> = repairs.into_iter().map(|(kind, repair)| repair.remark(kind)).collect();
    repairs.extend(sort(&mut entries));
    repairs.sort_by_key(|remark| remark.row);
    Ok(Trace { entries, repairs, refused, format, device_types })
}

/// FNV-1a.
fn hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Keeps the first row of each name.
fn refuse_duplicates(entries: &mut Vec<Entry>, refused: &mut Vec<Refused>) {
    // Hashes compare in one instruction; names are looked at only where hashes are the same.
    let mut order: Vec<(u64, usize)> =
        entries.iter().enumerate().map(|(at, entry)| (hash(name(entry)), at)).collect();
    order.sort_unstable_by(|(a, i), (b, j)| {
        a.cmp(b).then_with(|| name(&entries[*i]).cmp(name(&entries[*j]))).then(i.cmp(j))
    });
    let mut first = 0;
    let mut twice = BTreeMap::new();
    for next in 1..order.len() {
        let (kept, later) = (&entries[order[first].1], &entries[order[next].1]);
        if order[first].0 == order[next].0 && name(kept) == name(later) {
            twice.insert(order[next].1, kept.row);
        } else {
            first = next;
        }
    }
    if twice.is_empty() {
        return;
    }
    let mut at = 0;
    entries.retain(|entry| {
        let kept_row = twice.get(&at);
        at += 1;
        if let Some(kept_row) = kept_row {
            let why = RowError::Duplicate { row: *kept_row };
            refused.push(Refused { row: entry.row, job: name(entry).to_string(), why });
        }
        kept_row.is_none()
    });
}

/// Brings entries in the order of arrival, then of names, and says so where rows were out of order.
fn sort(entries: &mut [Entry]) -> Option<Remark> {
    let late = |pair: &&[Entry]| pair[1].job.arrival_s < pair[0].job.arrival_s;
    let first = entries.windows(2).find(late).map(|pair| (pair[1].row, name(&pair[1]).to_string()));
    let count = entries.windows(2).filter(late).count();
    let rows = entries.len();
    let numeric = entries.iter().all(|entry| name(entry).bytes().all(|byte| byte.is_ascii_digit()));
    // Stable, so that `7` and `07` stay as they are.
    entries.sort_by(|a, b| {
        let arrival = a.job.arrival_s.total_cmp(&b.job.arrival_s);
        arrival.then_with(|| match numeric {
            true => number(name(a)).cmp(&number(name(b))),
            false => name(a).cmp(name(b)),
        })
    });
    first.map(|(row, job)| {
        let what = format!("arrives before the row above it, as {count} of {rows} rows do; sorted");
        Remark { row, job, what }
    })
}

fn name(entry: &Entry) -> &str {
    &entry.job.description.name
}

/// Orders whole numbers of any length that are written in digits.
fn number(digits: &str) -> (usize, &str) {
    let digits = digits.trim_start_matches('0');
    (digits.len(), digits)
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 9] = [
        Format::Csv,
        Format::Itp,
        Format::Tiresias,
        Format::Gavel,
        Format::Pollux,
        Format::Philly,
        Format::Helios,
        Format::Alibaba2020,
        Format::Alibaba2023,
    ];

    /// Its name, as `--trace-format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Itp => "itp",
            Format::Tiresias => "tiresias",
            Format::Gavel => "gavel",
            Format::Pollux => "pollux",
            Format::Philly => "philly",
            Format::Helios => "helios",
            Format::Alibaba2020 => "alibaba2020",
            Format::Alibaba2023 => "alibaba2023",
        }
    }

    /// Whether [`Entry::work`] is in seconds at the asked devices, and not in steps or samples.
    pub fn says_durations(self) -> bool {
        !matches!(self, Format::Gavel | Format::Pollux)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = ParseError;

    /// ```
    /// use bellwether_sim::trace::Format;
    /// assert_eq!("gavel".parse(), Ok(Format::Gavel));
    /// assert_eq!("gravel".parse::<Format>().unwrap_err().nearest(), Some("gavel"));
    /// ```
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let found = Format::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| ParseError::one_of("trace format", text, Format::ALL.map(Format::name)))
    }
}
