//! Federations of datacenters: their description with the files that it names, and the answers about it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bellwether_core::prediction::{Link, StepModel};
use bellwether_core::profile::Profile;
use bellwether_core::{InputError, ParseError};
use bellwether_federation::description::Speeds;
use bellwether_model::predict::ProfileModel;
use bellwether_model::throughput_table::GavelTable;

pub use bellwether_federation::answer;
pub use bellwether_federation::description::Description;

/// Reads the files that a description names: profiles, tables of speeds, traces. Their paths are relative to its
/// folder.
#[derive(Debug)]
pub struct Beside {
    folder: PathBuf,
}

impl Beside {
    /// For the description in this file.
    pub fn new(description: &Path) -> Beside {
        Beside { folder: description.parent().map(Path::to_path_buf).unwrap_or_default() }
    }

    fn read(&self, path: &str) -> Result<(String, Vec<u8>), InputError> {
        let path = self.folder.join(path);
        let place = path.display().to_string();
        let bytes = fs::read(&path).map_err(|error| {
            InputError::new(&place, format!("it cannot be read: {error}"))
                .hint("paths are relative to the folder of the federation's file")
        })?;
        Ok((place, bytes))
    }

    fn text(&self, path: &str) -> Result<(String, String), InputError> {
        let (place, bytes) = self.read(path)?;
        let text = String::from_utf8(bytes).map_err(|_| InputError::new(&place, "the file is not text"))?;
        Ok((place, text))
    }
}

impl Speeds for Beside {
    fn table(&self, path: &str, job: &str) -> Result<BTreeMap<String, f64>, InputError> {
        let (place, bytes) = self.read(path)?;
        let table = GavelTable::parse(&bytes, &place)?;
        let mut speeds = BTreeMap::new();
        let mut unknown = None;
        for device in table.device_types() {
            match table.steps_per_s(device, job, 1, false) {
                Ok(steps_per_s) => {
                    speeds.insert(device.to_string(), steps_per_s);
                }
                Err(why) => unknown = Some(why),
            }
        }
        match unknown {
            Some(why) if speeds.is_empty() => Err(InputError::new(place, why.to_string())),
            _ => Ok(speeds),
        }
    }

    fn profile(&self, path: &str) -> Result<f64, InputError> {
        let (place, text) = self.text(path)?;
        let model = ProfileModel::new(Profile::read(&text, &place)?)
            .map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })?;
        // One worker alone sends nothing.
        let configuration = model.configuration(1, Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 });
        let prediction = model.predict(&model.job(), &configuration);
        Ok(prediction.map_err(|why| InputError::new(place, why.to_string()))?.examples_per_s)
    }

    fn trace(&self, path: &str) -> Result<Vec<(f64, f64)>, InputError> {
        let (place, text) = self.text(path)?;
        let mut lines = text.lines().enumerate();
        let head = lines.next().map(|(_, line)| line.trim());
        if head != Some("arrival_s,work_s") {
            return Err(InputError::new(place, "its first line is not `arrival_s,work_s`").hint(
                "write one job per line: when it arrives, and how long it takes one server, in seconds",
            ));
        }
        let job = |(number, line): (usize, &str)| {
            let cell = |cell: &str| cell.trim().parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
            let both = line.split_once(',').and_then(|(arrival, work)| Some((cell(arrival)?, cell(work)?)));
            both.ok_or_else(|| {
                let expected = "two numbers that are zero or more, for example 12.5,3600";
                ParseError::new("job", line, expected).at(format!("{place}, line {}", number + 1))
            })
        };
        let jobs: Vec<(f64, f64)> =
            lines.filter(|(_, line)| !line.trim().is_empty()).map(job).collect::<Result<_, _>>()?;
        if jobs.is_empty() {
            return Err(InputError::new(place, "there is no job in it"));
        }
        match jobs.windows(2).position(|pair| pair[1].0 < pair[0].0) {
            Some(place_of) => {
                Err(InputError::new(place, format!("job {} arrives before the one before it", place_of + 2))
                    .hint("sort the jobs by arrival"))
            }
            None => Ok(jobs),
        }
    }
}
