//! Workers on several types of device, each with a model of its own.

use bellwether_core::InputError;
use bellwether_core::fitted::FittedKind;
use bellwether_model::calibrate::asynchronous::{Class, predict_classes};
use bellwether_model::predict::{Answer, DeviceSpec, DeviceSpeed, mark};

use super::Question;
use super::sources::on_device;

impl Question<'_> {
    /// The kind whose model speaks of workers on this type of device: that of the job on it, else the job's own, whose
    /// devices are faster or slower by the type's speed.
    pub(super) fn kind_on(&self, device: &DeviceSpec) -> Result<&FittedKind, InputError> {
        let kinds = &self.file.kinds;
        let job = |kind: &FittedKind| {
            let on = kind.name.rsplit_once(" on ");
            on.map_or_else(|| kind.name.clone(), |(job, _)| job.to_string())
        };
        let wanted = match self.kind {
            Some(wanted) => wanted.to_string(),
            None if kinds.iter().all(|kind| job(kind) == job(&kinds[0])) => job(&kinds[0]),
            None => {
                let what = "it holds several kinds of job";
                return Err(InputError::new(self.place.display().to_string(), what)
                    .hint("say which with --kind NAME, without the device"));
            }
        };
        let named = |name: String| kinds.iter().find(move |kind| kind.name == name);
        named(on_device(&wanted, &device.name)).or_else(|| named(wanted.clone())).ok_or_else(|| {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
            let what = format!("`{wanted}` was not measured on `{}`", device.name);
            InputError::new("--device", what).hint(format!("there is {}", names.join(", ")))
        })
    }

    /// The answer for these workers, together.
    pub(super) fn together(&self) -> Result<Vec<Answer>, InputError> {
        let mut kinds = Vec::new();
        for device in &self.devices {
            let kind = self.kind_on(device)?;
            if kind.servers == 0 {
                let what =
                    format!("the workers of `{}` wait for each other, and so for the slowest", kind.name);
                return Err(InputError::new("--device", what).hint("leave it out, or predict from a profile"));
            }
            let Some(count) = device.count.filter(|count| *count > 0) else {
                let what = format!("how many workers have a `{}` is missing", device.name);
                let example = format!("write for example {}={}:2", device.name, device.speed);
                return Err(InputError::new("--device", what).hint(example));
            };
            let DeviceSpeed::Relative(speed) = device.speed else {
                let what = format!("`{}` has a profile, and fitted models are of runs", device.name);
                return Err(InputError::new("--device", what).hint(
                    "predict from a profile, or fit the device's runs too: bellwether fit, a column `device`",
                ));
            };
            kinds.push((kind, count, speed));
        }
        let Some((first, ..)) = kinds.first() else { return Ok(Vec::new()) };
        let servers = self.servers.unwrap_or(first.servers);
        let classes: Vec<Class<'_>> = kinds
            .iter()
            .map(|(kind, workers, speed)| Class { fitted: &kind.model, workers: *workers, speed: *speed })
            .collect();
        let workers: u32 = classes.iter().map(|class| class.workers).sum();
        let mut alone = 0.0;
        for class in &classes {
            let lone = predict_classes(&[Class { workers: 1, ..*class }], servers)?;
            alone += f64::from(class.workers) / f64::from(workers) * lone.examples_per_s;
        }
        let mut answers = vec![Answer::of(workers, predict_classes(&classes, servers)?, "fitted")];
        mark(&mut answers, alone);
        Ok(answers)
    }
}
