//! What the columns of each format mean.

use super::Format;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Arrival,
    Devices,
    /// Seconds that it runs at the devices that it asks for.
    Duration,
    /// Steps or samples.
    Work,
    Started,
    Ended,
    Model,
    Batch,
    Least,
    Most,
    Weight,
    Deadline,
    DeviceTypes,
    AdaptiveBatch,
    /// Who waits for whom: `asp`, or several of which a policy may choose, as `bsp|asp`.
    Protocols,
    /// Parameter servers: `1`, or `1..4`.
    Servers,
    NodesPerUpdate,
    /// Part of the work after which a synchronous job goes on by its last protocol.
    SwitchAt,
    /// The queue that it is in, by name.
    Queue,
    /// Thousandths of one device.
    Thousandths,
    /// Instances of a task, each with its percentage of devices.
    Instances,
    /// Percent of a device for each instance.
    Percent,
    Ignored,
}

/// A format of rows and columns.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) format: Format,
    /// In the order of a file without a header.
    pub(super) columns: &'static [(&'static str, Field)],
    /// Columns that identify a header; empty for formats without one.
    pub(super) needed: &'static [&'static str],
    /// Whether a file may come without a header, and is read by the order of columns then.
    pub(super) bare: bool,
}

use Field::{
    AdaptiveBatch, Arrival, Batch, Deadline, DeviceTypes, Devices, Duration, Ended, Ignored, Instances,
    Least, Model, Most, Name, NodesPerUpdate, Percent, Protocols, Queue, Servers, Started, SwitchAt,
    Thousandths, Weight, Work,
};

/// All formats of rows and columns. Those that share names of columns stand in the order in which they are tried.
pub(super) const SCHEMAS: [Schema; 9] = [
    Schema {
        format: Format::Tiresias,
        columns: &[
            ("job_id", Name),
            ("num_gpu", Devices),
            ("submit_time", Arrival),
            // The simulator runs a job for its duration; iterations follow from it.
            ("iterations", Ignored),
            ("model_name", Model),
            ("duration", Duration),
            ("interval", Ignored),
        ],
        needed: &["job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration"],
        bare: false,
    },
    Schema {
        format: Format::Itp,
        columns: &[
            ("job_id", Name),
            ("submission_time", Arrival),
            ("duration", Duration),
            ("num_gpu", Devices),
        ],
        needed: &["job_id", "submission_time", "duration", "num_gpu"],
        bare: false,
    },
    Schema {
        format: Format::Gavel,
        columns: &[
            ("job_id", Name),
            ("arrival_s", Arrival),
            ("job_type", Model),
            ("scale_factor", Devices),
            ("total_steps", Work),
            ("priority_weight", Weight),
        ],
        needed: &["job_type", "scale_factor", "total_steps"],
        bare: false,
    },
    GAVEL_LINES,
    Schema {
        format: Format::Pollux,
        columns: &[
            ("name", Name),
            ("time", Arrival),
            ("application", Model),
            ("num_replicas", Devices),
            ("batch_size", Batch),
            // ElasticFlow's variant of the file.
            ("samples", Work),
        ],
        needed: &["name", "time", "application", "num_replicas", "batch_size"],
        bare: false,
    },
    Schema {
        format: Format::Helios,
        columns: &[
            ("job_id", Name),
            ("user", Ignored),
            ("vc", Ignored),
            ("gpu_num", Devices),
            ("cpu_num", Ignored),
            ("node_num", Ignored),
            ("state", Ignored),
            ("submit_time", Arrival),
            ("start_time", Ignored),
            ("end_time", Ignored),
            ("duration", Duration),
            ("queue", Ignored),
        ],
        needed: &["job_id", "gpu_num", "submit_time", "duration"],
        bare: false,
    },
    Schema {
        format: Format::Alibaba2020,
        columns: &[
            ("job_name", Name),
            ("task_name", Ignored),
            ("inst_num", Instances),
            ("status", Ignored),
            ("start_time", Started),
            ("end_time", Ended),
            ("plan_cpu", Ignored),
            ("plan_mem", Ignored),
            ("plan_gpu", Percent),
            // Where it ran, and not what it asked for.
            ("gpu_type", Ignored),
        ],
        needed: &["job_name", "inst_num", "start_time", "end_time", "plan_gpu"],
        bare: true,
    },
    Schema {
        format: Format::Alibaba2023,
        columns: &[
            ("name", Name),
            ("cpu_milli", Ignored),
            ("memory_mib", Ignored),
            ("num_gpu", Devices),
            ("gpu_milli", Thousandths),
            ("gpu_spec", DeviceTypes),
            ("qos", Ignored),
            ("pod_phase", Ignored),
            ("creation_time", Arrival),
            ("deletion_time", Ended),
            ("scheduled_time", Started),
        ],
        needed: &["name", "num_gpu", "creation_time", "deletion_time", "scheduled_time"],
        bare: false,
    },
    CSV,
];

/// Our own format; its header is the only one in which a column must be known.
pub(super) const CSV: Schema = Schema {
    format: Format::Csv,
    columns: &[
        ("job_id", Name),
        ("submit_time", Arrival),
        ("num_gpu", Devices),
        ("duration", Duration),
        ("model", Model),
        ("batch", Batch),
        ("min_gpu", Least),
        ("max_gpu", Most),
        ("weight", Weight),
        ("deadline", Deadline),
        ("device", DeviceTypes),
        ("work", Work),
        ("adaptive_batch", AdaptiveBatch),
        ("protocol", Protocols),
        ("servers", Servers),
        ("nodes_per_update", NodesPerUpdate),
        ("switch_at", SwitchAt),
        ("queue", Queue),
    ],
    needed: &["job_id", "submit_time", "num_gpu"],
    bare: false,
};

/// Gavel's own lines; jobs are numbered from 0. The seventh of its factors, of the service level, is a multiple of a
/// duration that only its tables know, so it says no deadline here.
const GAVEL_LINES: Schema = Schema {
    format: Format::Gavel,
    columns: &[
        ("job_type", Model),
        ("command", Ignored),
        ("working_directory", Ignored),
        ("num_steps_arg", Ignored),
        ("needs_data_dir", Ignored),
        ("total_steps", Work),
        ("scale_factor", Devices),
        ("priority_weight", Weight),
        ("SLO", Ignored),
        ("arrival_time", Arrival),
    ],
    needed: &[],
    bare: true,
};

impl Schema {
    /// The field of a column.
    pub(super) fn field(&self, column: &str) -> Option<Field> {
        self.columns.iter().find(|(name, _)| *name == column).map(|(_, field)| *field)
    }
}
