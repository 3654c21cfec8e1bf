//! The units of work of training through servers: the profile of a whole batch cut to what one worker pulls parameters
//! for, computes, and pushes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::prediction::{Configuration, Protocol};
use bellwether_core::profile::{MeasuredStep, Operation, OperationKind, Profile};

use super::ProfileModel;

/// Operations that a cut profile may have; more are refused before they take the machine's memory.
const OPERATIONS_MAX: u64 = 1 << 20;

/// What one worker does between two moments at which it may wait for others.
struct Turn {
    /// Virtual nodes of each unit, one after another.
    units: Vec<u32>,
}

impl ProfileModel {
    /// The configuration of `workers` that exchange something after every `nodes` virtual nodes: no worker waits, or
    /// only some do, or all wait for all at servers.
    pub fn in_units(&self, configuration: Configuration, nodes: u32) -> Configuration {
        configuration.in_units(self.profile.batch, self.profile.virtual_nodes, nodes)
    }

    /// Virtual nodes of a unit, as the batch of a configuration in which not all workers wait says.
    pub(super) fn unit_nodes(&self, configuration: &Configuration) -> u32 {
        let virtual_nodes = self.profile.virtual_nodes;
        let nodes = (self.batch_factor(configuration) * f64::from(virtual_nodes)).round();
        (nodes as u32).clamp(1, virtual_nodes)
    }

    /// Whether each worker computes whole virtual nodes of the profile between two exchanges: as it was measured.
    pub(super) fn is_whole_units(&self, configuration: &Configuration) -> bool {
        let nodes = self.batch_factor(configuration) * f64::from(self.profile.virtual_nodes);
        let whole =
            (nodes - nodes.round()).abs() < 1e-9 && nodes < f64::from(self.profile.virtual_nodes) + 0.5;
        self.shares_batch() && !configuration.protocol.waits_for_all() && whole
    }

    /// Units of the worker that has most of them in a synchronous step through servers, and their virtual nodes.
    ///
    /// # Errors
    ///
    /// Returns an error for more workers than units.
    pub(super) fn synchronous_units(&self, configuration: &Configuration) -> Result<(u32, u32), InputError> {
        let (virtual_nodes, workers) = (self.profile.virtual_nodes, configuration.workers().max(1));
        let unit = configuration.accumulation.clamp(1, virtual_nodes);
        let units = virtual_nodes.div_ceil(unit);
        if workers > units {
            let what = format!(
                "a step has {units} units of {unit} of its {virtual_nodes} virtual nodes, fewer than {workers} workers"
            );
            return Err(InputError::new("workers", what).hint("let fewer virtual nodes make one update"));
        }
        let most = units.div_ceil(workers);
        Ok((most, (most * unit).min(virtual_nodes)))
    }

    /// What the simulation repeats for each worker, and how much less work of the profile's batch that is.
    ///
    /// # Errors
    ///
    /// Returns an error for more operations than can be simulated.
    pub(super) fn turn(&self, configuration: &Configuration) -> Result<(Cow<'_, Profile>, f64), InputError> {
        let profile = self.with_waiting(self.mean_speed(configuration).unwrap_or(1.0));
        let virtual_nodes = profile.virtual_nodes;
        let computes = profile.operations.iter().filter(|o| o.kind == OperationKind::Compute).count();
        let downloads = profile.operations.iter().any(|o| matches!(o.kind, OperationKind::Download(_)));
        // Where computing is not cut into virtual nodes, a share of it is the best guess.
        if !self.shares_batch() || computes != virtual_nodes as usize || downloads {
            return Ok((profile, 1.0));
        }
        let turn = if configuration.protocol == Protocol::Bsp {
            let nodes = self.synchronous_units(configuration)?.1;
            let unit = configuration.accumulation.clamp(1, nodes);
            let whole = std::iter::repeat_n(unit, (nodes / unit) as usize);
            let last = Some(nodes % unit).filter(|nodes| *nodes > 0);
            Turn { units: whole.chain(last).collect() }
        } else {
            Turn { units: vec![self.unit_nodes(configuration)] }
        };
        let nodes: u32 = turn.units.iter().sum();
        let operations = u64::from(nodes) + (2 * turn.units.len() as u64 + 1) * profile.parts.len() as u64;
        if operations > OPERATIONS_MAX {
            let what = format!("{operations} operations of each worker are more than can be simulated");
            return Err(InputError::new("profile", what).hint("use the coarse model"));
        }
        Ok((Cow::Owned(turn.profile(&profile)), f64::from(nodes) / f64::from(virtual_nodes)))
    }
}

impl Turn {
    /// The profile of a turn: every unit downloads all that is uploaded, computes its virtual nodes and uploads, and
    /// then the next begins; when all units have, what was uploaded is applied.
    fn profile(&self, whole: &Profile) -> Profile {
        let mut cut = Profile { operations: Vec::new(), steps: Vec::new(), ..whole.clone() };
        let uploads: Vec<u32> = (0..whole.parts.len() as u32)
            .filter(|part| whole.operations.iter().any(|o| o.kind == OperationKind::Upload(*part)))
            .collect();
        let mut push = |name: &str, kind, after: Vec<u32>| {
            cut.operations.push(Operation { name: name.to_string(), kind, after });
            cut.operations.len() as u32 - 1
        };
        let name = |part: u32| &whole.parts[part as usize].name;
        let mut sent: Vec<Vec<u32>> = vec![Vec::new(); whole.parts.len()];
        let mut last = None;
        let mut before: Vec<u32> = Vec::new();
        for nodes in &self.units {
            let down: Vec<u32> = uploads
                .iter()
                .map(|part| {
                    push(&format!("download {}", name(*part)), OperationKind::Download(*part), before.clone())
                })
                .collect();
            for node in 0..*nodes {
                let mut after: Vec<u32> = last.into_iter().collect();
                if node == 0 {
                    after.extend(&down);
                }
                last = Some(push("virtual node", OperationKind::Compute, after));
            }
            let computed: Vec<u32> = last.into_iter().collect();
            before.clear();
            for part in &uploads {
                let upload =
                    push(&format!("send {}", name(*part)), OperationKind::Upload(*part), computed.clone());
                sent[*part as usize].push(upload);
                before.push(upload);
            }
        }
        let updates: Vec<usize> = (0..whole.operations.len())
            .filter(|place| matches!(whole.operations[*place].kind, OperationKind::Update(_)))
            .collect();
        for place in &updates {
            let operation = &whole.operations[*place];
            if let OperationKind::Update(part) = operation.kind {
                push(&operation.name, operation.kind, sent[part as usize].clone());
            }
        }
        cut.steps = self.steps(whole, &cut.operations, &updates);
        cut
    }

    /// The virtual nodes of every measured step, dealt out to turns: each counts as often as any other.
    fn steps(&self, whole: &Profile, operations: &[Operation], updates: &[usize]) -> Vec<MeasuredStep> {
        let nodes = self.units.iter().sum::<u32>() as usize;
        let mut steps = Vec::new();
        for step in &whole.steps {
            let computes = step.operations_s.iter().zip(&whole.operations);
            let computes = computes.filter(|(_, operation)| operation.kind == OperationKind::Compute);
            let of_step: Vec<f64> = computes.map(|(seconds, _)| *seconds).collect();
            let apart = if of_step.len().is_multiple_of(nodes) { nodes } else { 1 };
            let updates_s: f64 = updates.iter().map(|place| step.operations_s[*place]).sum();
            for first in (0..of_step.len()).step_by(apart) {
                let mut own = of_step.iter().cycle().skip(first).copied();
                let mut applied = updates.iter().map(|place| step.operations_s[*place]);
                let mut step_s = updates_s;
                let seconds = |operation: &Operation| match operation.kind {
                    OperationKind::Compute => {
                        let seconds = own.next().unwrap_or(0.0);
                        step_s += seconds;
                        seconds
                    }
                    OperationKind::Update(_) => applied.next().unwrap_or(0.0),
                    OperationKind::Download(_) | OperationKind::Upload(_) => 0.0,
                };
                let operations_s = operations.iter().map(seconds).collect();
                // A virtual node that took no time is still a step.
                steps.push(MeasuredStep {
                    step_s: step_s.max(f64::MIN_POSITIVE),
                    operations_s,
                    data_wait_s: 0.0,
                });
            }
        }
        steps
    }
}

/// Devices of each node.
pub(super) fn devices_by_node(configuration: &Configuration) -> Vec<u32> {
    let mut nodes: BTreeMap<u32, u32> = BTreeMap::new();
    for group in &configuration.devices {
        *nodes.entry(group.node).or_default() += group.count;
    }
    nodes.into_values().collect()
}
