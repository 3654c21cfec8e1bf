//! `metrics.jsonl`: a line per committed update. The account of each peer and each unit, which grows with the number
//! of workers, is in some of the lines only.

use bellwether_core::record::StepRecord;

use super::{Run, RunEvent};

/// Memberships whose sizes are remembered.
const SIZES_KEPT: usize = 8;

/// A coordinator writes down peers and units of its first updates, this many, ...
const DETAILED: u64 = 1000;

/// ... and then of one in this many.
const SAMPLE: u64 = 100;

/// Whether an update, the first being 0, is written down with its peers and units.
fn is_detailed(update: u64) -> bool {
    update < DETAILED || update.is_multiple_of(SAMPLE)
}

/// A line of the file.
fn line(record: &mut StepRecord, is_detailed: bool) -> String {
    let (traffic, units) = match is_detailed {
        true => Default::default(),
        false => (std::mem::take(&mut record.traffic), std::mem::take(&mut record.units)),
    };
    let line = serde_json::to_string(record).expect("a step is plain data") + "\n";
    if !is_detailed {
        // Those who look on see all of it.
        (record.traffic, record.units) = (traffic, units);
    }
    line
}

impl Run {
    pub(super) fn committed(&mut self, mut records: Vec<StepRecord>) {
        self.note_batches(&records);
        let moves = self.options.job.mode.goodput().is_some();
        let mut text = String::new();
        for record in &mut records {
            // Steps are reported some time after they were done, perhaps in a later membership.
            let in_force = self.sizes.iter().rev().find(|(from, ..)| *from <= record.step);
            let (_, workers, shadows) = in_force.copied().unwrap_or_default();
            (record.workers, record.shadows) = (workers as u32, shadows as u32);
            if moves {
                record.accumulation = record.accumulation.max(1);
            } else {
                // Values that are the same in every step of a run are left out; rounds of local steps have several.
                (record.noise_scale, record.learning_rate_factor) = (None, None);
                record.accumulation = if record.accumulation > 1 { record.accumulation } else { 0 };
            }
            text.push_str(&line(record, is_detailed(self.updates)));
            self.updates += 1;
        }
        // One membership is in force, and records of the one or two before it may be on their way.
        let done = self.sizes.len().saturating_sub(SIZES_KEPT);
        self.sizes.drain(..done);
        self.write_metrics(&text);
        self.direct(RunEvent::Committed(&records));
    }
}

#[cfg(test)]
mod tests {
    use bellwether_core::record::{Traffic, UnitRecord};

    use super::*;

    #[test]
    fn a_long_run_takes_little_room_for_each_step_however_many_workers_there_are() {
        let units: Vec<UnitRecord> =
            vec![UnitRecord { segments_s: vec![0.125; 8], ..UnitRecord::default() }; 64];
        let record = StepRecord {
            traffic: vec![Traffic::default(); 64],
            unit_count: units.len() as u32,
            units,
            ..StepRecord::default()
        };
        let updates = 200_000;
        let (mut bytes, mut detailed) = (0, 0);
        for update in 0..updates {
            let mut written = record.clone();
            let text = line(&mut written, is_detailed(update));
            assert_eq!(written, record, "who looks on sees all");
            bytes += text.len() as u64;
            let read: StepRecord = serde_json::from_str(&text).unwrap();
            assert!(read.is_asynchronous());
            detailed += u64::from(read == record);
            assert!(read == record || read.traffic.is_empty() && read.units.is_empty());
        }
        assert_eq!(detailed, DETAILED + (updates - DETAILED) / SAMPLE);
        assert!(bytes / updates < 600, "{} bytes per update", bytes / updates);
    }
}
