//! The synthetic execution trace, and its form for trace viewers.

use bellwether_core::profile::Profile;
use serde_json::{Value, json};

use super::graph::with_downloads;

/// One operation that was simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceRow {
    /// The worker whose step it belongs to; in synchronous training, of an update, the last that sent.
    pub worker: u32,
    /// The worker's step, from 0.
    pub step: u32,
    /// Number of the operation in the profile, as completed by [`with_downloads`].
    pub operation: u32,
    /// Where it happened.
    pub place: Place,
    /// Its begin, in seconds.
    pub start_s: f64,
    /// Its end, in seconds.
    pub end_s: f64,
}

/// Where something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On the worker's device.
    Compute,
    /// On the connection from this server to the worker.
    Download(u32),
    /// On the connection from the worker to this server.
    Upload(u32),
    /// In the parser of this server, or of the worker.
    Parse(Option<u32>),
    /// In this server's updater.
    Update(u32),
}

/// A track of the viewer before it is cut into lanes: process and kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Track {
    /// Workers count from 0, servers after them.
    process: u32,
    place: Place,
}

/// A slice in whole nanoseconds, so that rounding cannot make neighbours overlap.
struct Slice<'a> {
    track: Track,
    begin_ns: u64,
    end_ns: u64,
    row: &'a TraceRow,
}

/// The trace as Chrome's JSON (the object form of the Trace Event Format), which Perfetto and Chrome open.
///
/// Each worker and each server is a process. What overlaps on one resource (parts that share a connection,
/// several slots) is laid onto several tracks of it, so that no two slices of a track overlap.
pub fn chrome_json(profile: &Profile, rows: &[TraceRow]) -> String {
    let profile = with_downloads(profile);
    let workers = rows.iter().map(|row| row.worker + 1).max().unwrap_or(0);
    let mut slices: Vec<Slice<'_>> = rows.iter().map(|row| slice(row, workers)).collect();
    slices.sort_by_key(|slice| (slice.track, slice.begin_ns, slice.end_ns));
    let mut events = Vec::with_capacity(rows.len() + 16);
    let mut tracks = Tracks { events: Vec::new(), workers, last: None, ends_ns: Vec::new(), next: 0 };
    for slice in &slices {
        let thread = tracks.lane(slice);
        let operation = profile.operations.get(slice.row.operation as usize);
        let name = operation.map_or("unknown operation", |operation| &operation.name);
        events.push(json!({
            "ph": "X", "name": name, "cat": kind(slice.track.place), "pid": slice.track.process, "tid": thread,
            "ts": microseconds(slice.begin_ns), "dur": microseconds(slice.end_ns - slice.begin_ns),
            "args": { "worker": slice.row.worker, "step": slice.row.step },
        }));
    }
    let time = |event: &Value| (event["ts"].as_f64().unwrap_or(0.0) * 1e3).round() as u64;
    events.sort_by_key(time);
    let mut all = tracks.events;
    all.append(&mut events);
    json!({ "displayTimeUnit": "ms", "traceEvents": all }).to_string()
}

fn slice(row: &TraceRow, workers: u32) -> Slice<'_> {
    let nanoseconds = |seconds: f64| (seconds.max(0.0) * 1e9).round() as u64;
    let process = match row.place {
        Place::Parse(Some(server)) | Place::Update(server) => workers + server,
        _ => row.worker,
    };
    let begin_ns = nanoseconds(row.start_s);
    let track = Track { process, place: row.place };
    Slice { track, begin_ns, end_ns: nanoseconds(row.end_s).max(begin_ns), row }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

fn kind(place: Place) -> &'static str {
    match place {
        Place::Compute => "compute",
        Place::Download(_) => "download",
        Place::Upload(_) => "upload",
        Place::Parse(_) => "parse",
        Place::Update(_) => "update",
    }
}

/// The tracks so far, with the names that the viewer is told.
struct Tracks {
    events: Vec<Value>,
    workers: u32,
    last: Option<Track>,
    /// When each lane of the present track is free, and the thread number of its first lane.
    ends_ns: Vec<(u64, u32)>,
    next: u32,
}

impl Tracks {
    /// The thread number of a free lane of the slice's track.
    fn lane(&mut self, slice: &Slice<'_>) -> u32 {
        if self.last != Some(slice.track) {
            if self.last.is_none_or(|last| last.process != slice.track.process) {
                self.next = 0;
                self.name_process(slice.track.process);
            }
            self.last = Some(slice.track);
            self.ends_ns.clear();
        }
        if let Some(lane) = self.ends_ns.iter_mut().find(|lane| lane.0 <= slice.begin_ns) {
            lane.0 = slice.end_ns;
            return lane.1;
        }
        let thread = self.next;
        self.next += 1;
        self.ends_ns.push((slice.end_ns, thread));
        self.name_thread(slice.track, thread, self.ends_ns.len());
        thread
    }

    fn name_process(&mut self, process: u32) {
        let name = match process.checked_sub(self.workers) {
            Some(server) => format!("server {server}"),
            None => format!("worker {process}"),
        };
        self.events
            .push(json!({ "ph": "M", "name": "process_name", "pid": process, "args": { "name": name } }));
        self.events
            .push(json!({ "ph": "M", "name": "process_sort_index", "pid": process, "args": { "sort_index": process } }));
    }

    fn name_thread(&mut self, track: Track, thread: u32, lane: usize) {
        let mut name = match track.place {
            Place::Download(server) => format!("download from server {server}"),
            Place::Upload(server) => format!("upload to server {server}"),
            place => kind(place).to_owned(),
        };
        if lane > 1 {
            name.push_str(&format!(" ({lane})"));
        }
        self.events.push(json!({
            "ph": "M", "name": "thread_name", "pid": track.process, "tid": thread, "args": { "name": name },
        }));
    }
}
