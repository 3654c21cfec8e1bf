//! The frozen list of tables, families and rows that the model of synchronous scaling is judged on.

use super::data;
use super::split::{Split, elasticflow, pollux};

/// One table in one split, as the list has it.
pub struct Entry {
    pub split: &'static str,
    pub table: &'static str,
    pub cluster: &'static str,
    pub network: &'static str,
    /// Nodes and replicas whose rows are fitted.
    pub fitted: Vec<(u32, u32)>,
    pub fitted_rows: usize,
    pub predicted_rows: usize,
}

/// A way to cut the tables into families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Network,
    Cluster,
}

impl Entry {
    pub fn family(&self, by: Family) -> &'static str {
        match by {
            Family::Network => self.network,
            Family::Cluster => self.cluster,
        }
    }
}

fn whole<T: std::str::FromStr>(field: &str) -> T {
    field.parse().unwrap_or_else(|_| panic!("`{field}` in the protocol is not a whole number"))
}

/// The list, in the order of the file.
pub fn entries() -> Vec<Entry> {
    let entry = |line: &'static str| {
        let fields: Vec<&'static str> = line.split(',').collect();
        let fitted = fields[4].split(' ').map(|place| {
            let (nodes, replicas) = place.split_once('x').expect("nodes x replicas");
            (whole(nodes), whole(replicas))
        });
        Entry {
            split: fields[0],
            table: fields[1],
            cluster: fields[2],
            network: fields[3],
            fitted: fitted.collect(),
            fitted_rows: whole(fields[5]),
            predicted_rows: whole(fields[6]),
        }
    };
    data!("synchronous-scaling/protocol.csv").lines().skip(1).map(entry).collect()
}

/// Every entry with its rows.
///
/// # Panics
///
/// If the rows are not those that the list says.
pub fn frozen() -> Vec<(Entry, Split)> {
    let mut splits: Vec<Split> = elasticflow().into_iter().chain(pollux(&[1, 1])).collect();
    splits.extend(pollux(&[4, 4]));
    let entries = entries();
    assert_eq!(entries.len(), splits.len(), "tables of the protocol");
    for (entry, split) in entries.iter().zip(&splits) {
        assert_eq!(entry.table, split.name);
        let counts = (split.fitted.len(), split.held_out.len());
        assert_eq!(counts, (entry.fitted_rows, entry.predicted_rows), "{}, {}", entry.table, entry.split);
        let mut places: Vec<(u32, u32)> = split.fitted.iter().map(|row| (row.nodes, row.replicas)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, entry.fitted, "{}, {}", entry.table, entry.split);
    }
    entries.into_iter().zip(splits).collect()
}

/// The families of this kind, in order of the list.
pub fn families(entries: &[(Entry, Split)], by: Family) -> Vec<&'static str> {
    let mut families = Vec::new();
    for (entry, _) in entries {
        if !families.contains(&entry.family(by)) {
            families.push(entry.family(by));
        }
    }
    families
}
