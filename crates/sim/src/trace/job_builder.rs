//! A job while it is read, and what a reader has gathered so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_core::cluster::{Job, Switch, Way};
use bellwether_core::prediction::{JobDescription, Protocol};
use bellwether_core::{InputError, ParseError};

use super::value::DAY_S;
use super::{Entry, ReadOptions, Refused, Remark, RowError};

/// A job while it is read: `None` where the row does not say.
#[derive(Debug, Default)]
pub(super) struct JobBuilder {
    pub(super) row: usize,
    pub(super) name: String,
    pub(super) arrival_s: Option<f64>,
    pub(super) devices: Option<u32>,
    /// Parts of devices that it asks for, where the file tells parts.
    pub(super) share: Option<f64>,
    pub(super) duration_s: Option<f64>,
    pub(super) work: Option<f64>,
    pub(super) started_s: Option<f64>,
    pub(super) ended_s: Option<f64>,
    pub(super) model: String,
    pub(super) batch: Option<u64>,
    pub(super) min_devices: Option<u32>,
    pub(super) max_devices: Option<u32>,
    /// The range where neither the row nor the options say one.
    pub(super) range: Option<(u32, u32)>,
    pub(super) weight: Option<f64>,
    pub(super) deadline_s: Option<f64>,
    pub(super) device_types: Vec<u16>,
    pub(super) adaptive_batch: bool,
    pub(super) ways: Ways,
    pub(super) queue: Option<String>,
}

/// How its workers may be kept together.
#[derive(Debug)]
pub(super) struct Ways {
    /// Empty: all wait for all.
    pub(super) protocols: Vec<Protocol>,
    /// Fewest and most parameter servers.
    pub(super) servers: Option<(u32, u32)>,
    pub(super) nodes_per_update: u32,
    pub(super) switch_at: Option<f64>,
}

impl Default for Ways {
    fn default() -> Ways {
        Ways { protocols: Vec::new(), servers: None, nodes_per_update: 1, switch_at: None }
    }
}

impl Ways {
    /// The ways that the row names, and when it goes on in others.
    fn of_job(&self) -> Result<(Vec<Way>, Option<Switch>), RowError> {
        if self.servers.is_some() && !self.protocols.iter().any(|protocol| protocol.needs_servers()) {
            let what = "has parameter servers, and no protocol that needs them; say asp or ssp:N";
            return Err(RowError::Impossible(what.into()));
        }
        let (least, most) = self.servers.unwrap_or((1, 1));
        let ways = |protocol: &Protocol| {
            let (least, most) = if protocol.needs_servers() { (least, most) } else { (0, 0) };
            let (protocol, nodes_per_update) = (*protocol, self.nodes_per_update);
            (least..=most).map(move |servers| Way { protocol, servers, nodes_per_update })
        };
        let Some(at) = self.switch_at else {
            let plain = self.protocols.iter().all(|protocol| *protocol == Protocol::Bsp);
            let all = if plain { Vec::new() } else { self.protocols.iter().flat_map(ways).collect() };
            return Ok((all, None));
        };
        match self.protocols.as_slice() {
            [then] if *then != Protocol::Bsp => {
                Ok((Vec::new(), Some(Switch { at, ways: ways(then).collect() })))
            }
            _ => {
                let what = "switches, and does not name the one protocol that it goes on by, as asp";
                Err(RowError::Impossible(what.into()))
            }
        }
    }
}

/// The ways that these cells of a row name, and when the job goes on in others; how many devices the job then needs.
///
/// # Errors
///
/// Cells that are not what they should be, or contradict each other.
pub(crate) fn ways_of(
    protocols: Option<&str>,
    servers: Option<&str>,
    nodes_per_update: Option<u32>,
    switch_at: Option<f64>,
) -> Result<(Vec<Way>, Option<Switch>, u32), InputError> {
    let protocols =
        protocols.map(super::value::protocols).transpose().map_err(|error| error.at("protocol"))?;
    let servers = servers.map(super::value::servers).transpose().map_err(|error| error.at("servers"))?;
    let switch_at = switch_at.map(|at| super::value::share(&at.to_string())).transpose();
    let ways = Ways {
        protocols: protocols.unwrap_or_default(),
        servers,
        nodes_per_update: nodes_per_update.unwrap_or(1).max(1),
        switch_at: switch_at.map_err(|error| error.at("switch_at"))?,
    };
    let (ways, switch) = ways.of_job().map_err(|why| InputError::new("protocol", format!("a job {why}")))?;
    let needed = needed(&ways, switch.as_ref());
    Ok((ways, switch, needed))
}

/// Devices of one worker with the fewest servers that all its ways have.
fn needed(ways: &[Way], switch: Option<&Switch>) -> u32 {
    let later = switch.map_or(&[][..], |switch| &switch.ways);
    let fewest = |ways: &[Way]| 1 + ways.iter().map(|way| way.servers).min().unwrap_or(0);
    fewest(ways).max(fewest(later))
}

/// Of a kind of repair: the first row, and how many there were.
#[derive(Debug)]
pub(super) struct Repair {
    row: usize,
    job: String,
    count: usize,
}

/// What a reader has gathered so far.
#[derive(Debug)]
pub(super) struct Gathered<'a> {
    pub(super) options: &'a ReadOptions<'a>,
    pub(super) entries: Vec<Entry>,
    pub(super) refused: Vec<Refused>,
    pub(super) repairs: BTreeMap<&'static str, Repair>,
    /// Types of device that the file names, in the order in which they came, where the options name none.
    named: Vec<String>,
}

impl Repair {
    pub(super) fn remark(self, kind: &str) -> Remark {
        let Repair { row, job, count } = self;
        let more = if count > 1 { format!(" (and in {} more rows)", count - 1) } else { String::new() };
        Remark { row, job, what: format!("{kind}{more}") }
    }
}

impl<'a> Gathered<'a> {
    pub(super) fn new(options: &'a ReadOptions<'a>) -> Gathered<'a> {
        let (entries, refused, named) = (Vec::new(), Vec::new(), Vec::new());
        Gathered { options, entries, refused, repairs: BTreeMap::new(), named }
    }

    pub(super) fn refuse(&mut self, row: usize, job: &str, why: RowError) {
        self.refused.push(Refused { row, job: job.to_string(), why });
    }

    pub(super) fn repaired(&mut self, kind: &'static str, row: usize, job: &str) {
        let first = || Repair { row, job: job.to_string(), count: 0 };
        self.repairs.entry(kind).or_insert_with(first).count += 1;
    }

    /// The indices of types that are written `a|b`. Of several the cluster needs to have one.
    pub(super) fn device_types_of(&mut self, text: &str) -> Result<Vec<u16>, ParseError> {
        let mut found = Vec::new();
        for word in text.split('|').map(str::trim) {
            let known = if self.options.device_types.is_empty() {
                &self.named[..]
            } else {
                self.options.device_types
            };
            let at = known.iter().position(|known| known == word).or_else(|| {
                let collects = self.options.device_types.is_empty() && !word.is_empty();
                // A cluster has few types: beyond this the column holds something else.
                (collects && self.named.len() < 1000).then(|| {
                    self.named.push(word.to_string());
                    self.named.len() - 1
                })
            });
            found.extend(at.and_then(|at| u16::try_from(at).ok()));
        }
        found.sort_unstable();
        found.dedup();
        if found.is_empty() {
            return Err(ParseError::one_of("device of the cluster", text, self.options.device_types));
        }
        Ok(found)
    }

    /// What the indices mean.
    pub(super) fn device_types(&self) -> Vec<String> {
        if self.options.device_types.is_empty() {
            self.named.clone()
        } else {
            self.options.device_types.to_vec()
        }
    }

    /// Takes a job, or refuses it.
    pub(super) fn take(&mut self, draft: JobBuilder) {
        let (row, name) = (draft.row, draft.name.clone());
        if let Some(share) = draft.share
            && share.fract() > 0.0
        {
            self.repaired("asks for a part of a device, and is given a whole one", row, &name);
        }
        match draft.entry(self.options) {
            Ok(entry) => self.entries.push(entry),
            Err(why) => self.refuse(row, &name, why),
        }
    }

    /// Moves all times so that the first arrival falls on the first day, at its time of day.
    pub(super) fn begin_at_first_day(&mut self) {
        let first_s = self.entries.iter().map(|entry| entry.job.arrival_s).fold(f64::INFINITY, f64::min);
        let shift_s = (first_s / DAY_S).floor() * DAY_S;
        for entry in &mut self.entries {
            let job = Arc::make_mut(&mut entry.job);
            job.arrival_s -= shift_s;
            job.deadline_s = job.deadline_s.map(|deadline_s| deadline_s - shift_s);
        }
    }
}

impl JobBuilder {
    fn entry(self, options: &ReadOptions) -> Result<Entry, RowError> {
        if self.name.is_empty() {
            return Err(RowError::Missing("has no name"));
        }
        let arrival_s = self.arrival_s.ok_or(RowError::Missing("does not say when it arrives"))?;
        let devices = self.asked()?;
        let (work, is_duration) = (self.held_work()?, self.work.is_none());
        let (min_devices, max_devices) = self.range(devices, options)?;
        let (ways, switch) = self.ways.of_job()?;
        let needed = needed(&ways, switch.as_ref());
        if max_devices < needed {
            let what = format!("has {max_devices} devices at most, and needs {needed} with its servers");
            return Err(RowError::Impossible(what));
        }
        let min_devices = min_devices.max(needed);
        let weight = self.weight.unwrap_or(1.0);
        if weight <= 0.0 {
            let what = format!("has a weight of {weight}, which would never get it anything");
            return Err(RowError::Impossible(what));
        }
        let description =
            JobDescription { name: self.name, model: self.model, batch: self.batch.unwrap_or(1), devices };
        let job = Job {
            description,
            arrival_s,
            min_devices,
            max_devices,
            device_types: self.device_types,
            weight,
            deadline_s: self.deadline_s,
            adaptive_batch: self.adaptive_batch,
            ways,
            switch,
            workers: None,
            queue: self.queue,
        };
        Ok(Entry { job: Arc::new(job), work, is_duration, row: self.row })
    }

    fn asked(&self) -> Result<u32, RowError> {
        let devices = match self.share {
            Some(share) if share > f64::from(u32::MAX) => {
                return Err(RowError::Impossible("asks for more devices than there are".into()));
            }
            Some(share) => Some(share.ceil() as u32),
            None => self.devices,
        };
        match devices {
            None => Err(RowError::Missing("does not say how many devices it asks for")),
            Some(0) => Err(RowError::Impossible("asks for no device".into())),
            Some(devices) => Ok(devices),
        }
    }

    fn held_work(&self) -> Result<f64, RowError> {
        match (self.duration_s.or(self.work), self.started_s, self.ended_s) {
            _ if self.duration_s.is_some() && self.work.is_some() => {
                let what = "says both its duration and its work; leave one of them empty";
                Err(RowError::Impossible(what.into()))
            }
            (Some(work), _, _) => Ok(work),
            (None, None, _) => Err(RowError::Unfinished("never ran, or does not say for how long")),
            (None, Some(_), None) => {
                Err(RowError::Unfinished("does not say when it ended; it may still have run"))
            }
            (None, Some(started_s), Some(ended_s)) if ended_s < started_s => {
                Err(RowError::Impossible(format!("ended {} s before it started", started_s - ended_s)))
            }
            (None, Some(started_s), Some(ended_s)) => Ok(ended_s - started_s),
        }
    }

    /// The devices that it can use: what the row says, then the options, then the format, else what it asks for.
    fn range(&self, asked: u32, options: &ReadOptions) -> Result<(u32, u32), RowError> {
        let (least, most) = match (self.min_devices, self.max_devices) {
            (None, None) => {
                let (least, most) = options.elastic.or(self.range).unwrap_or((asked, asked));
                return Ok((least.min(asked), most.max(asked)));
            }
            (least, most) => (least.unwrap_or(asked), most.unwrap_or(asked)),
        };
        if least == 0 || !(least..=most).contains(&asked) {
            let what = format!("asks for {asked} devices, and can use {least} to {most}");
            return Err(RowError::Impossible(what));
        }
        Ok((least, most))
    }
}
