//! The file of an architecture search: which supernet is trained, how it is split, how architectures are searched and
//! what the best one may cost.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::InputError;
use crate::job::Cell;
use crate::parse::document;
use crate::units::{Bytes, Dollars, DollarsPerHour, Seconds};

/// Most supernets of one search: each is a job.
const SUPERNETS_MAX: f64 = 4096.0;

/// An architecture search, as its author describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NasFile {
    /// The job file of the supernet, whose model has `kind = "cell"`. A relative path starts at this file's folder.
    pub job: PathBuf,
    /// The edges that each level splits: `[[0]]` makes a sub-supernet for each operation of edge 0, `[[0], [1]]` splits
    /// each of those once more. Without it: one-shot.
    #[serde(default)]
    pub split: Vec<Vec<usize>>,
    /// How long a sub-supernet is trained, as a share of the job's length.
    #[serde(default = "half")]
    pub share: f64,
    /// How architectures are searched.
    #[serde(default)]
    pub search: SearchOptions,
    /// What the best architecture may take.
    #[serde(default)]
    pub limits: Limits,
    /// The device for which it is chosen.
    #[serde(default)]
    pub device: DeviceOptions,
}

/// How architectures are searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchOptions {
    /// `"evolution"` (regularised evolution, the default) or `"random"`.
    pub method: SearchMethod,
    /// Architectures whose score is asked for.
    pub evaluations: usize,
    /// Members of the population of evolution.
    pub population: usize,
    /// Members of the population that are drawn for a tournament; the best of them is mutated.
    pub tournament: usize,
    /// Seed of the search.
    pub seed: u64,
    /// Architectures that are shown, the best first.
    pub top: usize,
}

/// How architectures are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchMethod {
    /// Regularised evolution.
    #[default]
    Evolution,
    /// Uniformly.
    Random,
}

/// What the best architecture may take, as far as it is predicted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Time of a training step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time: Option<Seconds>,
    /// Resident memory of a worker at its peak.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Price of training it to the end of the job; needs `device.price`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Dollars>,
}

/// The device for which the best architecture is chosen, and how it is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceOptions {
    /// Workers that train it; the fewest of the job without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Speed of the device relative to this machine's.
    pub speed: f64,
    /// Price of one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<DollarsPerHour>,
    /// Architectures that are measured here, from which the others are predicted; 0 predicts nothing.
    pub measured: usize,
    /// Steps of each measurement.
    pub steps: u64,
}

fn half() -> f64 {
    0.5
}

impl Default for SearchOptions {
    fn default() -> Self {
        let (method, seed) = (SearchMethod::default(), 0);
        SearchOptions { method, evaluations: 500, population: 10, tournament: 5, seed, top: 10 }
    }
}

impl Default for DeviceOptions {
    fn default() -> Self {
        DeviceOptions { workers: None, speed: 1.0, price: None, measured: 12, steps: 20 }
    }
}

impl Limits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

impl NasFile {
    /// Reads a search. `place` names the file in errors.
    ///
    /// # Errors
    ///
    /// What is wrong first: the syntax, an unknown key, a value out of range.
    pub fn read(text: &str, place: &str) -> Result<NasFile, InputError> {
        let file: NasFile = document(text, place)?;
        file.check().map_err(|error| InputError { place: format!("{place}: {}", error.place), ..error })?;
        Ok(file)
    }

    /// The JSON schema of the file.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(NasFile).to_value()
    }

    fn check(&self) -> Result<(), InputError> {
        let ensure = |holds: bool, key: &str, what: String, hint: &str| match holds {
            true => Ok(()),
            false => Err(InputError::new(key, what).hint(hint)),
        };
        let share = self.share;
        ensure(share > 0.0 && share <= 10.0, "share", format!("{share} is not in 0…10 (0 excluded)"), "")?;
        let SearchOptions { evaluations, population, tournament, top, .. } = self.search;
        for (key, value, most) in [
            ("search.evaluations", evaluations, 10_000_000),
            ("search.population", population, 1_000_000),
            ("search.tournament", tournament, 1_000_000),
            ("search.top", top, 1000),
        ] {
            ensure((1..=most).contains(&value), key, format!("{value} is not in 1…{most}"), "")?;
        }
        let DeviceOptions { workers, speed, price, measured, steps } = &self.device;
        ensure(
            speed.is_finite() && *speed > 0.0,
            "device.speed",
            format!("{speed} is not a positive number"),
            "1 is as fast as this machine",
        )?;
        ensure(*workers != Some(0), "device.workers", "0 workers train nothing".into(), "name 1 or more")?;
        let few = "name 8 or more, from which the others can be predicted, or 0 to predict nothing";
        let measures = *measured == 0 || (8..=1000).contains(measured);
        ensure(measures, "device.measured", format!("{measured} is neither 0 nor in 8…1000"), few)?;
        ensure((1..=100_000).contains(steps), "device.steps", format!("{steps} is not in 1…100000"), "")?;
        ensure(
            self.limits.is_empty() || *measured > 0,
            "limits",
            "nothing is measured, so that no limit can be kept".into(),
            "leave device.measured out, or [limits]",
        )?;
        ensure(
            self.limits.price.is_none() || price.is_some(),
            "limits.price",
            "what a worker costs is not known".into(),
            "say what it costs, for example device.price = \"$0.5/h\"",
        )
    }

    /// Checks the split against the supernet that it cuts.
    ///
    /// # Errors
    ///
    /// An edge that is not there, is split twice or has one operation; too many sub-supernets; a space of one.
    pub fn check_split(&self, cell: &Cell) -> Result<(), InputError> {
        let edges = cell.edges();
        if cell.count() < 2.0 {
            return Err(InputError::new(
                "job: model.architecture",
                "there is one architecture, and nothing to search",
            )
            .hint("give some edge several operations, or leave model.architecture out"));
        }
        let mut split = Vec::new();
        let mut supernets = 1.0;
        for (level, cut) in self.split.iter().enumerate() {
            let place = format!("split[{level}]");
            if cut.is_empty() {
                return Err(InputError::new(place, "it splits no edge").hint("name an edge, for example [0]"));
            }
            for edge in cut {
                let Some(operations) = edges.get(*edge) else {
                    let what = format!(
                        "there is no edge {edge}: a cell of {} nodes has {}",
                        cell.nodes,
                        edges.len()
                    );
                    return Err(
                        InputError::new(place, what).hint(format!("edges are 0 to {}", edges.len() - 1))
                    );
                };
                if split.contains(edge) {
                    return Err(InputError::new(place, format!("edge {edge} is split already"))
                        .hint("name each edge once"));
                }
                if operations.len() < 2 {
                    let what = format!("edge {edge} holds one operation, and cannot be split");
                    return Err(InputError::new(place, what).hint("name an edge that has several"));
                }
                split.push(*edge);
                supernets *= operations.len() as f64;
            }
            if supernets > SUPERNETS_MAX {
                let what = format!("{supernets} sub-supernets are more than {SUPERNETS_MAX}");
                return Err(InputError::new(place, what).hint("split fewer edges"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        NasFile::read(&format!("job = \"job.toml\"\n{text}"), "s.toml").unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_searched_is_named() {
        assert!(refused("splits = [[0]]").contains("did you mean `split`?"));
        assert!(refused("share = 0.0").starts_with("s.toml: share: 0 is not in 0…10"));
        assert!(refused("[search]\nmethod = \"evolve\"").contains("unknown variant `evolve`"));
        assert!(refused("[search]\npopulation = 0").contains("search.population: 0 is not in"));
        assert!(refused("[limits]\nprice = \"$1\"").contains("what a worker costs is not known"));
        assert!(
            refused("[limits]\nmemory = \"1MiB\"\n[device]\nmeasured = 0").contains("nothing is measured")
        );
        assert!(refused("[device]\nmeasured = 3").contains("3 is neither 0 nor in 8…1000"));
        assert!(refused("[device]\nspeed = -1.0").contains("-1 is not a positive number"));
        let cell: Cell = toml::from_str(
            "nodes = 3\narchitecture = [\"skip\", [\"none\", \"skip\"], [\"none\", \"skip\"]]",
        )
        .unwrap();
        let split = |split: &str| {
            let file = NasFile::read(&format!("job = \"j\"\nsplit = {split}"), "s").unwrap();
            file.check_split(&cell).map_err(|error| error.to_string())
        };
        assert_eq!(split("[[1], [2]]"), Ok(()));
        assert!(split("[[3]]").unwrap_err().contains("there is no edge 3: a cell of 3 nodes has 3"));
        assert!(split("[[1], [1]]").unwrap_err().contains("edge 1 is split already"));
        assert!(split("[[0]]").unwrap_err().contains("edge 0 holds one operation"));
        assert!(split("[[]]").unwrap_err().contains("it splits no edge"));
    }
}
