//! The devices that are known, with the evidence for their rules.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellwether_model::gpu::Device;
use bellwether_render as render;
use bellwether_render::csv::Csv;
use bellwether_render::table::aligned;
use serde::Serialize;
use serde_json::Value;

use crate::options::TableFormat;

pub(super) fn render(devices: &[Device], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(devices),
        TableFormat::Json => render::json(&devices),
        TableFormat::Csv => csv(devices),
    }
}

fn table(devices: &[Device]) -> String {
    let head =
        ["gpu", "architecture", "SMs", "threads/SM", "blocks/SM", "shared/SM", "ties", "at once", "evidence"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for device in devices {
        let (order, issue) = (word(device.order_evidence), word(device.issue_evidence));
        rows.push(vec![
            device.name.clone(),
            format!("{} {}", device.architecture, device.compute_capability),
            device.multiprocessors.to_string(),
            device.threads_per_multiprocessor.to_string(),
            device.blocks_per_multiprocessor.to_string(),
            format!("{} KiB", device.shared_bytes_per_multiprocessor / 1024),
            word(device.order),
            word(device.issue),
            if order == issue { order } else { format!("{order}, {issue}") },
        ]);
    }
    let mut text = aligned(&rows);
    text.push_str(
        "ties: which SM comes first among those of equal room. at once: blocks that one choice places.\n\
         evidence: observed in a trace of this device, published by others, or assumed as of a related device.\n",
    );
    for device in devices.iter().filter(|device| !device.note.is_empty()) {
        let _ = writeln!(text, "{}: {}", device.name, device.note);
    }
    text.trim_end().to_string()
}

/// The word that stands for it in files.
pub(super) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

fn csv(devices: &[Device]) -> String {
    let objects: Vec<BTreeMap<String, Value>> = devices
        .iter()
        .filter_map(|device| serde_json::from_value(serde_json::to_value(device).ok()?).ok())
        .collect();
    let Some(first) = objects.first() else { return String::new() };
    let mut csv = Csv::new(first.keys());
    for object in &objects {
        csv.write(object.values().map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }));
    }
    csv.text()
}
