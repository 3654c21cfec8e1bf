//! Measured tables of `data/` as rows, for tests and examples.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::print_stdout)]

pub mod batches;
pub mod cm_dare;
pub mod colocation;
pub mod curves;
pub mod protocol;
pub mod split;
pub mod sync_switch;

use bellwether_model::elastic::Row;

macro_rules! data {
    ($path:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/", $path))
    };
}
pub(crate) use data;

/// Results computed by the published goodput model.
pub const GOODPUT_CASES: &str = data!("reference-cases/pollux-goodput.json");

/// A job of the Pollux tables.
pub struct PolluxJob {
    pub name: &'static str,
    pub placements: &'static str,
    pub scalability: &'static str,
    /// Initial global batch.
    pub initial_batch: u64,
    /// Validation curves by global batch.
    pub curves: &'static [(u64, &'static str)],
    /// Whether the metric grows while the job learns.
    pub metric_grows: bool,
}

/// All jobs of the Pollux tables.
pub const POLLUX: [PolluxJob; 4] = [
    PolluxJob {
        name: "bert",
        placements: data!("pollux-tables/bert/placements.csv"),
        scalability: data!("pollux-tables/bert/scalability.csv"),
        initial_batch: 12,
        curves: &[
            (12, data!("pollux-tables/bert/validation-12.csv")),
            (24, data!("pollux-tables/bert/validation-24.csv")),
            (48, data!("pollux-tables/bert/validation-48.csv")),
            (96, data!("pollux-tables/bert/validation-96.csv")),
            (192, data!("pollux-tables/bert/validation-192.csv")),
            (384, data!("pollux-tables/bert/validation-384.csv")),
        ],
        metric_grows: true,
    },
    PolluxJob {
        name: "cifar10",
        placements: data!("pollux-tables/cifar10/placements.csv"),
        scalability: data!("pollux-tables/cifar10/scalability.csv"),
        initial_batch: 128,
        curves: &[
            (128, data!("pollux-tables/cifar10/validation-128.csv")),
            (256, data!("pollux-tables/cifar10/validation-256.csv")),
            (512, data!("pollux-tables/cifar10/validation-512.csv")),
            (1024, data!("pollux-tables/cifar10/validation-1024.csv")),
            (2048, data!("pollux-tables/cifar10/validation-2048.csv")),
            (4096, data!("pollux-tables/cifar10/validation-4096.csv")),
        ],
        metric_grows: true,
    },
    PolluxJob {
        name: "deepspeech2",
        placements: data!("pollux-tables/deepspeech2/placements.csv"),
        scalability: data!("pollux-tables/deepspeech2/scalability.csv"),
        initial_batch: 20,
        curves: &[
            (20, data!("pollux-tables/deepspeech2/validation-20.csv")),
            (40, data!("pollux-tables/deepspeech2/validation-40.csv")),
            (80, data!("pollux-tables/deepspeech2/validation-80.csv")),
            (160, data!("pollux-tables/deepspeech2/validation-160.csv")),
            (320, data!("pollux-tables/deepspeech2/validation-320.csv")),
            (640, data!("pollux-tables/deepspeech2/validation-640.csv")),
        ],
        metric_grows: false,
    },
    PolluxJob {
        name: "ncf",
        placements: data!("pollux-tables/ncf/placements.csv"),
        scalability: data!("pollux-tables/ncf/scalability.csv"),
        initial_batch: 256,
        curves: &[
            (256, data!("pollux-tables/ncf/validation-256.csv")),
            (512, data!("pollux-tables/ncf/validation-512.csv")),
            (1024, data!("pollux-tables/ncf/validation-1024.csv")),
            (2048, data!("pollux-tables/ncf/validation-2048.csv")),
            (4096, data!("pollux-tables/ncf/validation-4096.csv")),
            (8192, data!("pollux-tables/ncf/validation-8192.csv")),
            (16384, data!("pollux-tables/ncf/validation-16384.csv")),
            (32768, data!("pollux-tables/ncf/validation-32768.csv")),
        ],
        metric_grows: true,
    },
];

/// Throughput tables of ElasticFlow: GPU type, model, table.
pub const ELASTICFLOW: [(&str, &str, &str); 13] = [
    ("A100", "bert", data!("elasticflow/A100/bert.csv")),
    ("A100", "deepspeech2", data!("elasticflow/A100/deepspeech2.csv")),
    ("A100", "gpt2", data!("elasticflow/A100/gpt2.csv")),
    ("A100", "inception3", data!("elasticflow/A100/inception3.csv")),
    ("A100", "resnet50", data!("elasticflow/A100/resnet50.csv")),
    ("A100", "resnet50_cifar10", data!("elasticflow/A100/resnet50_cifar10.csv")),
    ("A100", "vgg16", data!("elasticflow/A100/vgg16.csv")),
    ("T4", "bert", data!("elasticflow/T4/bert.csv")),
    ("T4", "cifar10", data!("elasticflow/T4/cifar10.csv")),
    ("T4", "deepspeech2", data!("elasticflow/T4/deepspeech2.csv")),
    ("T4", "imagenet", data!("elasticflow/T4/imagenet.csv")),
    ("T4", "ncf", data!("elasticflow/T4/ncf.csv")),
    ("T4", "yolov3", data!("elasticflow/T4/yolov3.csv")),
];

/// A row of the Pollux tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Replicas of each node.
    pub placement: Vec<u32>,
    pub row: Row,
}

fn number(field: &str) -> f64 {
    field.trim().parse().unwrap_or_else(|_| panic!("`{field}` in a table of data/ is not a number"))
}

fn lines(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = table.lines().skip(1).filter(|line| !line.is_empty());
    rows.map(|line| line.split(',').map(str::trim).collect())
}

fn row(nodes: u32, replicas: u32, fields: &[&str]) -> Row {
    let exchange_s = (replicas > 1).then(|| number(fields[2]));
    // The table gives some milliseconds of "exchange" to single replicas: bookkeeping, not exchange.
    Row { nodes, replicas, local_batch: number(fields[0]), step_s: number(fields[1]), exchange_s }
}

/// The rows of `placements.csv`.
pub fn placements(table: &str) -> Vec<Placed> {
    let placed = |fields: Vec<&str>| {
        let placement: Vec<u32> =
            fields[0].chars().map(|digit| digit.to_digit(10).expect("a placement is digits")).collect();
        let row = row(placement.len() as u32, placement.iter().sum(), &fields[1..]);
        Placed { placement, row }
    };
    lines(table).map(placed).collect()
}

/// The rows of `scalability.csv`; replicas are spread evenly.
pub fn scalability(table: &str) -> Vec<Row> {
    lines(table).map(|fields| row(number(fields[0]) as u32, number(fields[1]) as u32, &fields[2..])).collect()
}

/// The measured cells of a table of ElasticFlow, which has full nodes of `node_size`: global batch and row.
pub fn elasticflow(table: &str, node_size: u32) -> Vec<(u64, Row)> {
    let counts: Vec<u32> =
        table.lines().next().expect("a head").split(',').skip(1).map(|n| number(n) as u32).collect();
    let mut rows = Vec::new();
    for fields in lines(table) {
        let batch = number(fields[0]) as u64;
        for (&replicas, field) in counts.iter().zip(&fields[1..]) {
            // Cells that were not measured are empty, 0 or `nan`.
            let steps_per_s: f64 = field.trim().parse().unwrap_or(f64::NAN);
            if steps_per_s > 0.0 {
                let (nodes, local_batch) = (replicas.div_ceil(node_size), batch as f64 / f64::from(replicas));
                rows.push((
                    batch,
                    Row { nodes, replicas, local_batch, step_s: 1.0 / steps_per_s, exchange_s: None },
                ));
            }
        }
    }
    rows
}

/// A validation curve: progress in steps of the initial batch, steps, metric, squared norm, variance.
pub fn curve(table: &str) -> Vec<[f64; 5]> {
    lines(table).map(|fields| std::array::from_fn(|index| number(fields[index]))).collect()
}
