//! The number of virtual nodes that the batch is cut into, where it is free to choose.

use std::str::FromStr;

use bellwether_core::prediction::{DeviceGroup, Link, StepModel};
use bellwether_core::{InputError, ParseError};
use bellwether_model::predict::ProfileModel;
use bellwether_sched::plan::{Catalogue, Machine};

/// More virtual nodes than this are not tried.
const MOST: u32 = 1 << 12;

/// Into how many virtual nodes the batch is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtualNodes {
    /// As many as the profile has or, if a worker does not fit on some machines then, the fewest with which it does.
    Fit,
    /// This many.
    Number(u32),
}

impl FromStr for VirtualNodes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<VirtualNodes, ParseError> {
        match text {
            "fit" => Ok(VirtualNodes::Fit),
            _ => match text.parse() {
                Ok(number) if number > 0 => Ok(VirtualNodes::Number(number)),
                _ => Err(ParseError::new("virtual nodes", text, "a number above 0, or fit")),
            },
        }
    }
}

impl VirtualNodes {
    /// The model with these virtual nodes.
    ///
    /// # Errors
    ///
    /// Returns why the profile says nothing of this number.
    pub(super) fn cut(
        self,
        model: ProfileModel,
        catalogue: &Catalogue,
        note: &mut dyn FnMut(String),
    ) -> Result<ProfileModel, InputError> {
        let before = model.profile().virtual_nodes;
        let cut = match self {
            VirtualNodes::Number(number) => model
                .with_virtual_nodes(number)
                .map_err(|error| InputError { place: "--virtual-nodes".into(), ..error })?,
            VirtualNodes::Fit => fitting(model, catalogue),
        };
        let nodes = cut.profile().virtual_nodes;
        if nodes != before {
            note(format!(
                "planned for {nodes} virtual nodes in place of {before}: set batch.virtual_nodes = {nodes} in the job file"
            ));
        }
        Ok(cut)
    }
}

/// The fewest virtual nodes with which a worker fits on most kinds of machines.
fn fitting(model: ProfileModel, catalogue: &Catalogue) -> ProfileModel {
    let kinds = |model: &ProfileModel| catalogue.machines.iter().filter(|one| fits(model, one)).count();
    let (mut best, mut most) = (model.clone(), kinds(&model));
    for number in model.profile().virtual_nodes + 1..=MOST {
        if most == catalogue.machines.len() {
            break;
        }
        let Ok(cut) = model.with_virtual_nodes(number) else { continue };
        let count = kinds(&cut);
        if count > most {
            (best, most) = (cut, count);
        }
    }
    best
}

/// Whether a worker on each device of a machine fits into its memory, as far as that is known.
fn fits(model: &ProfileModel, machine: &Machine) -> bool {
    let Some(memory) = machine.memory_bytes else { return true };
    let mut configuration = model.configuration(machine.devices, Link::UNLIMITED);
    configuration.devices =
        vec![DeviceGroup { node: 0, device: machine.device.clone(), count: machine.devices }];
    model.fits(&model.job(), &configuration, memory as f64 / f64::from(machine.devices)).is_ok()
}
