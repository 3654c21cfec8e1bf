//! A job that a script declares, together with what a job file says of it.
//!
//! A number may stand in the script or in the file. Where it stands in both it must be the same, because the script's
//! workers compute with theirs.

use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use crate::error::InputError;

/// Tables and keys that only say how a job is run: the file's count.
const FREE: [&str; 7] =
    ["name", "workers", "evaluation", "checkpoint", "model.script", "model.python", "model.arguments"];

/// What a script says by leaving it out, too: its loaders read the samples ahead in this order.
const ALWAYS_SAID: &str = "data.order";

/// The text of the job file that both make: `file` is the text of a job file (empty where there is none) at `place`,
/// and `declared` the job's tables as `script` says them.
///
/// # Errors
///
/// Returns an error for text that is not TOML, and for a key that is not the same in both; it names both values.
///
/// ```
/// use bellwether_core::declared::merge;
/// let declared = serde_json::json!({ "name": "train", "batch": { "size": 64, "virtual_nodes": 8 } });
/// let declared = declared.as_object().unwrap();
/// let text = merge("name = \"mine\"\nsteps = 9\n", "job.toml", declared, "train.py")?;
/// assert!(text.contains("name = \"mine\"") && text.contains("size = 64"), "{text}");
/// let error = merge("[batch]\nsize = 128\n", "job.toml", declared, "train.py").unwrap_err();
/// assert_eq!(error.to_string().lines().next(), Some("job.toml: batch.size: it is 128 here and 64 in train.py"));
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
pub fn merge(
    file: &str,
    place: &str,
    declared: &Map<String, Json>,
    script: &str,
) -> Result<String, InputError> {
    let mut merged: Table = crate::parse::document(file, place)?;
    let mut declared = declared.clone();
    // The length is not what the script's workers compute with.
    if merged.contains_key("steps") || merged.contains_key("epochs") {
        declared.remove("steps");
        declared.remove("epochs");
    }
    lay(&mut merged, &declared, "").map_err(|Difference { key, here, there }| {
        InputError::new(format!("{place}: {key}"), format!("it is {here} here and {there} in {script}"))
            .hint("write it in one place only: the script's workers compute with what the script says")
    })?;
    Ok(merged.to_string())
}

/// The table `[model]` of a job file whose model is a Python script: what is needed to start it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct ScriptTable {
    /// The script, as the file names it.
    pub script: std::path::PathBuf,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The interpreter.
    pub python: Option<std::path::PathBuf>,
    /// Variables that it is started with.
    #[serde(default)]
    pub environment: std::collections::BTreeMap<String, String>,
}

/// The script that a job file names, if it names one. What else is wrong with the file is said when it is merged.
pub fn script_of(file: &str) -> Option<ScriptTable> {
    let mut table: Table = toml::from_str(file).ok()?;
    let Value::Table(model) = table.remove("model")? else { return None };
    (model.get("kind")?.as_str()? == "python").then(|| model.try_into().ok())?
}

/// Two values of one key.
struct Difference {
    key: String,
    here: String,
    there: String,
}

/// Adds to `table` what is declared and not there.
fn lay(table: &mut Table, declared: &Map<String, Json>, above: &str) -> Result<(), Difference> {
    for (name, json) in declared {
        let key = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        // TOML has no null: what is null is not said.
        let Some(value) = value(json) else {
            match table.get(name).filter(|_| key == ALWAYS_SAID) {
                Some(here) => return Err(Difference { key, here: here.to_string(), there: "none".into() }),
                None => continue,
            }
        };
        match (table.get_mut(name), json) {
            (None, _) => drop(table.insert(name.clone(), value)),
            (Some(_), _) if FREE.contains(&key.as_str()) && !json.is_object() => {}
            (Some(Value::Table(inner)), Json::Object(more)) => {
                let free = FREE.contains(&key.as_str());
                match lay(inner, more, &key) {
                    Err(difference) if !free => return Err(difference),
                    _ => {}
                }
            }
            (Some(here), _) if is_same(here, &value) => {}
            (Some(here), _) => {
                return Err(Difference { key, here: here.to_string(), there: value.to_string() });
            }
        }
    }
    Ok(())
}

/// Integers and numbers with a fraction may be equal, too.
fn is_same(here: &Value, there: &Value) -> bool {
    let number = |value: &Value| value.as_float().or(value.as_integer().map(|number| number as f64));
    here == there || number(here).is_some_and(|here| number(there) == Some(here))
}

/// The same value without its nulls.
fn value(json: &Json) -> Option<Value> {
    match json {
        Json::Null => None,
        Json::Object(map) => {
            let pairs = map.iter().filter_map(|(key, json)| Some((key.clone(), value(json)?)));
            Some(Value::Table(pairs.collect()))
        }
        Json::Array(list) => Some(Value::Array(list.iter().filter_map(value).collect())),
        other => Value::try_from(other).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Map<String, Json> {
        let json = serde_json::json!({
            "name": "train",
            "epochs": 5,
            "seed": 7,
            "batch": { "size": 64, "virtual_nodes": 8 },
            "model": { "kind": "python", "script": "/t/train.py", "layout": "abc" },
            "data": { "kind": "python", "training_samples": 1438 },
            "optimizer": { "kind": "sgd", "learning_rate": 0.1, "clip_norm": null },
            "schedule": { "kind": "table", "factors": [1.0, 0.30000000000000004] },
            "checkpoint": { "every_steps": 23 },
        });
        json.as_object().expect("an object").clone()
    }

    #[test]
    fn a_script_alone_makes_a_job() {
        let text = merge("", "train.py", &declared(), "train.py").expect("no conflict");
        let job = crate::parse::job(&text, "train.py", &[]).expect("a good job");
        assert_eq!((job.epochs, job.batch.size, job.checkpoint.every_steps), (Some(5), 64, 23));
        let crate::job::Schedule::Table { factors } = &job.schedule else { panic!("{:?}", job.schedule) };
        // The last bit counts.
        assert_eq!(factors[1].to_bits(), 0.300_000_000_000_000_04_f64.to_bits());
    }

    #[test]
    fn a_file_adds_what_the_script_leaves_open() {
        let file = "name = \"mine\"\nsteps = 40\nworkers = \"1..4\"\nseed = 7\nverify_every = 5\n\
                    [checkpoint]\nevery_steps = 10\nkeep = 2\n[optimizer]\nlearning_rate = 0.1\n";
        let text = merge(file, "job.toml", &declared(), "train.py").expect("no conflict");
        let job = crate::parse::job(&text, "job.toml", &[]).expect("a good job");
        assert_eq!((job.steps, job.epochs, job.name.as_str()), (Some(40), None, "mine"));
        assert_eq!((job.checkpoint.every_steps, job.checkpoint.keep, job.verify_every), (10, 2, 5));
    }

    #[test]
    fn what_differs_is_refused_with_both_values() {
        for (file, place, what) in [
            ("seed = 8\n", "job.toml: seed", "it is 8 here and 7 in train.py"),
            ("[optimizer]\nkind = \"adam\"\n", "job.toml: optimizer.kind", "it is \"adam\" here and \"sgd\""),
            ("[model]\nlayout = \"x\"\n", "job.toml: model.layout", "it is \"x\" here and \"abc\""),
        ] {
            let error = merge(file, "job.toml", &declared(), "train.py").expect_err("a conflict");
            assert_eq!(error.place, place);
            assert!(error.what.starts_with(what), "{error}");
        }
    }

    #[test]
    fn only_a_script_says_the_order_of_its_samples() {
        let file = "[data]\norder = { block = 32 }\n";
        let with = |order: Json| {
            let mut declared = declared();
            declared["data"]["order"] = order;
            merge(file, "job.toml", &declared, "train.py")
        };
        let error = with(Json::Null).expect_err("its loaders would not know");
        assert_eq!(error.place, "job.toml: data.order");
        assert_eq!(error.what, "it is { block = 32 } here and none in train.py");
        assert!(with(serde_json::json!({ "block": 64 })).is_err());
        let text = with(serde_json::json!({ "block": 32 })).expect("the same in both");
        let job = crate::parse::job(&text, "job.toml", &[]).expect("a good job");
        assert_eq!(job.data.order_block().map(u64::from), Some(32));
        assert!(job.identity().contains("\"order\":{\"block\":32}"), "{}", job.identity());
    }

    #[test]
    fn a_file_names_its_script() {
        let file = "[model]\nkind = \"python\"\nscript = \"t.py\"\narguments = [\"--fast\"]\nthreads = 2\n\
                    environment = { KERAS_BACKEND = \"jax\" }\n";
        let found = script_of(file).expect("a script");
        assert_eq!(found.environment.get("KERAS_BACKEND").map(String::as_str), Some("jax"));
        assert_eq!((found.script.to_str(), found.arguments.len(), found.python), (Some("t.py"), 1, None));
        for other in ["", "[model]\nkind = \"mlp\"\nhidden = [8]\n", "[model", "model = 3"] {
            assert_eq!(script_of(other), None, "{other}");
        }
    }

    #[test]
    fn arguments_of_a_file_start_the_script() {
        let file = "[model]\nkind = \"python\"\nscript = \"train.py\"\narguments = [\"--fast\"]\n";
        let text = merge(file, "job.toml", &declared(), "train.py").expect("no conflict");
        assert!(
            text.contains("arguments = [\"--fast\"]") && text.contains("script = \"train.py\""),
            "{text}"
        );
    }
}
