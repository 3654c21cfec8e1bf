//! What Slurm's programs answer, and the tickets of its jobs.

use bellwether_runtime::run_dir::Ticket;
use bellwether_session::slurm::{nodes, queue, record, submitted, version};

use super::{Decoder, decoder, text};

const QUEUE: &str = "17|RUNNING|1-00:00:00|2026-11-26T16:45:09|n1|2|None|bellwether 0a worker 1|\n\
                     18_2|PENDING|1:00|N/A||1-4|Resources|(null)|\n";
const NODES: &str = "n1|low*|draining|8|1000|gpu:a100:4(S:0-1),craynetwork:2|3/5/0/8|ib,fast|test drain\n";
const RECORD: &str = "JobId=1 JobName=a JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0 Comment=b\n";
const TICKET: &str = "{\"join\":\"10.0.0.1:7000\",\"number\":3}";

pub(super) fn all() -> Vec<Decoder> {
    vec![
        decoder("queues of Slurm", 1.0, vec![QUEUE.into()], |bytes| {
            text(bytes, |text| queue(text, "bellwether ").is_ok_and(|jobs| !jobs.is_empty()))
        }),
        decoder("nodes of Slurm", 1.0, vec![NODES.into()], |bytes| {
            text(bytes, |text| nodes(text).is_ok_and(|nodes| !nodes.is_empty()))
        }),
        decoder("records of Slurm", 1.0, vec![RECORD.into()], |bytes| {
            text(bytes, |text| record(text).is_ok())
        }),
        decoder("numbers and versions of Slurm", 1.0, vec!["17;cluster\n".into()], |bytes| {
            text(bytes, |text| version(text).is_ok() || submitted(text).is_ok())
        }),
        decoder("tickets", 1.0, vec![TICKET.into()], |bytes| Ticket::parse(bytes).is_some()),
    ]
}
