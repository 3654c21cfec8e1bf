//! Performance models by the texts that name them, and the files behind these.

use std::fs;
use std::path::{Path, PathBuf};

use bellwether_core::fitted::FittedFile;
use bellwether_core::prediction::StepModel;
use bellwether_core::profile::Profile;
use bellwether_core::{InputError, ParseError};
use bellwether_model::biased::Biased;
use bellwether_model::calibrate::kinds::FittedKinds;
use bellwether_model::colocation::Colocated;
use bellwether_model::elastic::jobs::{Applications, FittedJobs, MeasuredJobs, Sources};
use bellwether_model::named::ModelSpec;
use bellwether_model::profiles::ProfiledJobs;
use bellwether_model::speedup::Speedup;
use bellwether_model::throughput_table::{ElasticFlowTables, GavelTable};
use bellwether_sim::cluster::Cluster;

/// A model, and what it knows of the work of applications.
pub struct NamedModel {
    /// The model.
    pub model: Box<dyn StepModel + Sync>,
    /// Applications, where it is made of tables of them.
    pub applications: Option<Applications>,
}

/// The model that `text` names, such as `amdahl:0.1` or `gavel:FILE`; `cluster` says how fast
/// types of device are relative to each other, and what memory they have. `place` names the text in errors.
///
/// # Errors
///
/// Returns an error if the text names no model, and if a file cannot be read or used.
pub fn read(text: &str, place: &str, cluster: &Cluster) -> Result<NamedModel, InputError> {
    let named: ModelSpec = text.parse().map_err(|error: ParseError| error.at(place))?;
    make(&named, cluster)
}

fn make(named: &ModelSpec, cluster: &Cluster) -> Result<NamedModel, InputError> {
    let speeds = &cluster.device_speeds;
    let plain = |model: Box<dyn StepModel + Sync>| NamedModel { model, applications: None };
    Ok(match named {
        ModelSpec::Law(law) => plain(Box::new(Speedup::new(law.clone(), speeds.clone())?)),
        ModelSpec::Gavel { file, by_nodes } => {
            let bytes = fs::read(file).map_err(|e| unreadable(file, &e))?;
            let table = GavelTable::parse(&bytes, file)?;
            plain(Box::new(if *by_nodes { table.by_nodes() } else { table }))
        }
        ModelSpec::Colocated(file) => {
            let bytes = fs::read(file).map_err(|e| unreadable(file, &e))?;
            plain(Box::new(Colocated::fit(GavelTable::parse(&bytes, file)?, |_, _| true)?))
        }
        ModelSpec::ElasticFlow(folder) => plain(Box::new(elasticflow(folder)?)),
        ModelSpec::Goodput(folder) => {
            let applications = applications(folder)?;
            NamedModel { model: Box::new(FittedJobs(applications.clone())), applications: Some(applications) }
        }
        ModelSpec::Measured(folder) => {
            let applications = applications(folder)?;
            NamedModel {
                model: Box::new(MeasuredJobs(applications.clone())),
                applications: Some(applications),
            }
        }
        ModelSpec::Profiles(folder) => plain(Box::new(profiles(folder, cluster)?)),
        ModelSpec::Fitted(file) => {
            let fitted = FittedFile::read(&text(Path::new(file))?, file)?;
            plain(Box::new(FittedKinds::new(fitted, speeds.clone())))
        }
        ModelSpec::Noisy { error, model } => {
            let NamedModel { model, applications } = make(model, cluster)?;
            NamedModel { model: Box::new(Biased::new(model, *error, 0)?), applications }
        }
    })
}

/// `FOLDER/NAME.json`, and `FOLDER/NAME/DEVICE.json` of a type of device.
fn profiles(folder: &str, cluster: &Cluster) -> Result<ProfiledJobs, InputError> {
    let mut jobs =
        ProfiledJobs::new(cluster.device_speeds.clone()).with_memory(cluster.device_memory.clone());
    let found = entries(Path::new(folder))?;
    for (name, profile) in profiles_in(&found) {
        let (place, profile) = profile?;
        jobs.add(name, profile).map_err(|error| of_file(&place, error))?;
    }
    for (name, path) in found.iter().filter(|(_, path)| path.is_dir()) {
        for (device, profile) in profiles_in(&entries(path)?) {
            let (place, profile) = profile?;
            jobs.add_on(name, device, profile).map_err(|error| of_file(&place, error))?;
        }
    }
    if jobs.names().next().is_none() {
        return Err(InputError::new(folder, "no profile (NAME.json or NAME/DEVICE.json) lies here").hint(
            "`bellwether profile JOB.toml -o FOLDER/NAME.json` makes one; NAME is the model that a trace says, DEVICE a \
             type of the cluster",
        ));
    }
    Ok(jobs)
}

/// The profiles among these files, with the files' names without `.json`, and their places.
fn profiles_in(
    files: &[(String, PathBuf)],
) -> impl Iterator<Item = (&str, Result<(String, Profile), InputError>)> {
    let read = |path: &Path| {
        let place = path.display().to_string();
        Profile::read(&text(path)?, &place).map(|profile| (place, profile))
    };
    files.iter().filter_map(move |(file, path)| Some((file.strip_suffix(".json")?, read(path))))
}

/// The error of what a file says.
fn of_file(place: &str, error: InputError) -> InputError {
    InputError { place: format!("{place}: {}", error.place), ..error }
}

/// `FOLDER/TYPE/NETWORK.csv`.
fn elasticflow(folder: &str) -> Result<ElasticFlowTables, InputError> {
    let mut tables = ElasticFlowTables::default();
    for (device, path) in entries(Path::new(folder))?.into_iter().filter(|(_, path)| path.is_dir()) {
        for (name, path) in entries(&path)? {
            if let Some(network) = name.strip_suffix(".csv") {
                tables.add(&device, network, &text(&path)?, &path.display().to_string())?;
            }
        }
    }
    Ok(tables)
}

/// `FOLDER/APPLICATION/{placements,scalability,validation-B}.csv`, and `FOLDER/limits.csv` where there is one.
fn applications(folder: &str) -> Result<Applications, InputError> {
    let mut applications = Applications::default();
    for (name, path) in entries(Path::new(folder))?.into_iter().filter(|(_, path)| path.is_dir()) {
        let placements = text(&path.join("placements.csv"))?;
        let scalability = path.join("scalability.csv");
        let scalability = if scalability.is_file() { text(&scalability)? } else { String::new() };
        let mut validation = Vec::new();
        for (file, path) in entries(&path)? {
            let batch = file.strip_prefix("validation-").and_then(|rest| rest.strip_suffix(".csv"));
            if let Some(batch) = batch.and_then(|batch| batch.parse().ok()) {
                validation.push((batch, text(&path)?));
            }
        }
        let validation: Vec<(u64, &str)> = validation.iter().map(|(b, text)| (*b, text.as_str())).collect();
        let sources = Sources { placements: &placements, scalability: &scalability, validation: &validation };
        applications.add(&name, &sources, &path.display().to_string())?;
    }
    let limits = Path::new(folder).join("limits.csv");
    if limits.exists() {
        applications.cap_local_batches(&text(&limits)?, &limits.display().to_string())?;
    }
    Ok(applications)
}

/// Names and paths in a folder, by name.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, InputError> {
    let place = folder.display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| unreadable(&place, &e))? {
        let entry = entry.map_err(|e| unreadable(&place, &e))?;
        found.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    found.sort();
    Ok(found)
}

fn text(path: &Path) -> Result<String, InputError> {
    fs::read_to_string(path).map_err(|e| unreadable(&path.display().to_string(), &e))
}

fn unreadable(place: &str, why: &std::io::Error) -> InputError {
    InputError::new(place, format!("the model cannot be read: {why}"))
}
