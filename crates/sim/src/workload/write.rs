//! Writes a trace in our own format.

use std::borrow::Cow;
use std::fmt::Write;

use bellwether_core::cluster::Job;
use bellwether_core::prediction::Protocol;

use crate::trace::Entry;

/// The trace as CSV, which reads back to the same entries; a column stands there where a job needs it.
/// `device_types` are the names of [`device_types`](bellwether_core::cluster::Job::device_types). A work that is not
/// known (infinite) is left empty, and such a row is refused when it is read.
pub fn write_csv(entries: &[Entry], device_types: &[String]) -> String {
    let any = |needs: fn(&Entry) -> bool| entries.iter().any(needs);
    let columns = Columns {
        model: any(|entry| !entry.job.description.model.is_empty()),
        batch: any(|entry| entry.job.description.batch != 1),
        range: any(|entry| !(entry.job.is_rigid() && entry.job.min_devices == entry.job.asked())),
        weight: any(|entry| entry.job.weight != 1.0),
        deadline: any(|entry| entry.job.deadline_s.is_some()),
        device: any(|entry| !entry.job.device_types.is_empty()),
        adaptive: any(|entry| entry.job.adaptive_batch),
        work: any(|entry| !entry.is_duration),
        ways: any(|entry| !entry.job.ways.is_empty() || entry.job.switch.is_some()),
        queue: any(|entry| entry.job.queue.is_some()),
    };
    let mut text = String::with_capacity(32 * (entries.len() + 1));
    text.push_str("job_id,submit_time,num_gpu,duration");
    for (there, name) in columns.names() {
        if there {
            text.push_str(name);
        }
    }
    text.push('\n');
    for entry in entries {
        columns.row(&mut text, entry, device_types).expect("writing to a string does not fail");
    }
    text
}

struct Columns {
    model: bool,
    batch: bool,
    range: bool,
    weight: bool,
    deadline: bool,
    device: bool,
    adaptive: bool,
    work: bool,
    ways: bool,
    queue: bool,
}

impl Columns {
    fn names(&self) -> [(bool, &'static str); 10] {
        [
            (self.model, ",model"),
            (self.batch, ",batch"),
            (self.range, ",min_gpu,max_gpu"),
            (self.weight, ",weight"),
            (self.deadline, ",deadline"),
            (self.device, ",device"),
            (self.adaptive, ",adaptive_batch"),
            (self.work, ",work"),
            (self.ways, ",protocol,servers,nodes_per_update,switch_at"),
            (self.queue, ",queue"),
        ]
    }

    fn row(&self, text: &mut String, entry: &Entry, device_types: &[String]) -> std::fmt::Result {
        let job = &*entry.job;
        text.push_str(&cell(&job.description.name));
        write!(text, ",{},{},", job.arrival_s, job.asked())?;
        if entry.is_duration {
            write!(text, "{}", entry.work)?;
        }
        if self.model {
            text.push(',');
            text.push_str(&cell(&job.description.model));
        }
        if self.batch {
            write!(text, ",{}", job.description.batch)?;
        }
        if self.range {
            write!(text, ",{},{}", job.min_devices, job.max_devices)?;
        }
        if self.weight {
            write!(text, ",{}", job.weight)?;
        }
        if self.deadline {
            text.push(',');
            if let Some(deadline_s) = job.deadline_s {
                write!(text, "{deadline_s}")?;
            }
        }
        if self.device {
            text.push(',');
            let name = |at: &u16| device_types.get(usize::from(*at)).map_or("", String::as_str);
            text.push_str(&cell(&job.device_types.iter().map(name).collect::<Vec<_>>().join("|")));
        }
        if self.adaptive {
            write!(text, ",{}", job.adaptive_batch)?;
        }
        if self.work {
            text.push(',');
            if !entry.is_duration && entry.work.is_finite() {
                write!(text, "{}", entry.work)?;
            }
        }
        if self.ways {
            write!(text, ",{}", ways(job).join(","))?;
        }
        if self.queue {
            text.push(',');
            text.push_str(&cell(job.queue.as_deref().unwrap_or_default()));
        }
        text.push('\n');
        Ok(())
    }
}

/// The protocols, servers, virtual nodes per update and the switch of a job; what is not there is empty.
pub(super) fn ways(job: &Job) -> [String; 4] {
    let ways = job.switch.as_ref().map_or(&job.ways, |switch| &switch.ways);
    let mut protocols: Vec<Protocol> = ways.iter().map(|way| way.protocol).collect();
    protocols.dedup();
    let words: Vec<String> = protocols.iter().map(Protocol::to_string).collect();
    let servers = || ways.iter().map(|way| way.servers).filter(|servers| *servers > 0);
    let range = servers().min().zip(servers().max());
    [
        words.join("|"),
        range.map_or_else(String::new, |(least, most)| format!("{least}..{most}")),
        ways.first().map_or_else(String::new, |way| way.nodes_per_update.to_string()),
        job.switch.as_ref().map_or_else(String::new, |switch| switch.at.to_string()),
    ]
}

/// In quotes where it needs them.
fn cell(text: &str) -> Cow<'_, str> {
    if !text.contains([',', '"', '\n', '\r']) {
        return text.into();
    }
    format!("\"{}\"", text.replace('"', "\"\"")).into()
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(["fifo", "a,b", "\""].map(cell), ["fifo", "\"a,b\"", "\"\"\"\""]);
    }
}
