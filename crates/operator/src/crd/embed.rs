//! The schema of the job file as Kubernetes can have it.
//!
//! A schema of Kubernetes is structural: one type at every place, and no choice between shapes. The job file has
//! choices: a table with a `kind`, a word or a table, a number or a text. The shapes of a choice are laid over each
//! other here: every key of any shape is known, with a type that fits all of them. Where no type does, the place is
//! open. What is lost that way, [`super::check()`] says.
//!
//! Keys that the schema does not know are kept, not cut off: the operator answers a key that is misspelt with the one
//! that was meant, and a definition that is older than the operator loses nothing. Defaults stay out, because a default
//! of one shape would be put into the others.

use std::collections::BTreeMap;

use bellwether_core::job::Job;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

const OPEN: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Said of a place that no type fits.
const WHY_OPEN: &str =
    "It is not checked here: it may have several types, which a schema of Kubernetes cannot say.";

/// What a schema may say of a plain value.
const LIMITS: [&str; 7] = ["minimum", "maximum", "pattern", "minLength", "maxLength", "minItems", "maxItems"];

/// The schema of `spec.job`.
pub(super) fn job(_: &mut SchemaGenerator) -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = structural(&settings.into_generator().into_root_schema_for::<Job>().to_value());
    schema.insert("nullable".into(), json!(true));
    // One owner for the whole file: a part of one author's and a part of another's make no job.
    schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        // The object has a name.
        required.retain(|key| key != "name");
    }
    schema.remove("description");
    Schema::from(schema)
}

/// The same schema without choices.
fn structural(schema: &Value) -> Object {
    let Some(schema) = schema.as_object() else { return open() };
    let mut made = Object::new();
    let choices = ["oneOf", "anyOf"].iter().find_map(|key| schema.get(*key)).and_then(Value::as_array);
    if let Some(choices) = choices {
        made = overlaid(choices);
    } else {
        typed(schema, &mut made);
    }
    if let Some(description) = schema.get("description").and_then(Value::as_str) {
        let own = made.get("description").and_then(Value::as_str);
        let both = own.map_or(description.to_owned(), |own| format!("{description} {own}"));
        made.insert("description".into(), json!(both));
    }
    made
}

fn open() -> Object {
    Object::from_iter([(OPEN.to_owned(), json!(true))])
}

/// What is said of a value of one type.
fn typed(schema: &Object, made: &mut Object) {
    let kind = match &schema.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str);
            let kind = kinds.clone().find(|kind| *kind != "null").unwrap_or_default().to_owned();
            if kinds.any(|kind| kind == "null") {
                made.insert("nullable".into(), json!(true));
            }
            kind
        }
        _ => return made.extend(open()),
    };
    made.insert("type".into(), json!(kind));
    made.extend(LIMITS.iter().filter_map(|key| Some(((*key).to_owned(), schema.get(*key)?.clone()))));
    if let Some(value) = schema.get("const") {
        made.insert("enum".into(), json!([value]));
    }
    if let Some(values) = schema.get("enum") {
        made.insert("enum".into(), values.clone());
    }
    match kind.as_str() {
        "object" => object(schema, made),
        "array" => {
            let items = match (schema.get("items"), schema.get("prefixItems").and_then(Value::as_array)) {
                (Some(items), _) => structural(items),
                (None, Some(items)) => items.iter().map(structural).reduce(merged).unwrap_or_else(open),
                (None, None) => open(),
            };
            made.insert("items".into(), json!(items));
        }
        _ => {}
    }
}

fn object(schema: &Object, made: &mut Object) {
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        made.insert("additionalProperties".into(), json!(structural(values)));
        return;
    }
    made.insert(OPEN.into(), json!(true));
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let properties: Object =
        properties.iter().map(|(key, value)| (key.clone(), json!(structural(value)))).collect();
    made.insert("properties".into(), json!(properties));
    if let Some(required) = schema.get("required") {
        made.insert("required".into(), required.clone());
    }
}

/// The shapes of a choice, laid over each other. The description says what each is for.
fn overlaid(choices: &[Value]) -> Object {
    let is_null = |choice: &&Value| choice["type"] == "null";
    let shapes: Vec<Object> = choices.iter().filter(|choice| !is_null(choice)).map(structural).collect();
    let mut made = shapes.iter().cloned().reduce(merged).unwrap_or_else(open);
    made.remove("description");
    if choices.iter().any(|choice| is_null(&choice)) {
        made.insert("nullable".into(), json!(true));
    }
    let tags: Vec<Option<(&str, &str)>> = shapes.iter().map(tag).collect();
    if let Some(key) = tags.iter().flatten().map(|(key, _)| *key).next() {
        describe_properties(&mut made, &shapes, key, &tags);
        return made;
    }
    let texts =
        shapes.iter().filter_map(|shape| shape.get("description").and_then(Value::as_str).zip(word(shape)));
    let texts: Vec<String> = texts.map(|(text, word)| format!("`{word}`: {text}")).collect();
    let mut texts = texts.join(" ");
    if made.get("type").is_none() && made.contains_key(OPEN) {
        texts = [&texts, WHY_OPEN].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    }
    if !texts.is_empty() {
        made.insert("description".into(), json!(texts));
    }
    made
}

/// The only word that a text may be, or the only key that an object has.
fn word(shape: &Object) -> Option<&str> {
    let words = shape.get("enum").and_then(Value::as_array);
    match words.map(Vec::as_slice) {
        Some([word]) => word.as_str(),
        _ => shape.get("required")?.as_array()?.first()?.as_str(),
    }
}

/// The key and the word by which a shape is known, as `kind` and `mlp`.
fn tag(shape: &Object) -> Option<(&str, &str)> {
    let properties = shape.get("properties")?.as_object()?;
    properties.iter().find_map(|(key, property)| match property["enum"].as_array()?.as_slice() {
        [word] => Some((key.as_str(), word.as_str()?)),
        _ => None,
    })
}

/// Says of every property to which shapes it belongs, and of the one that tells them apart what each is.
fn describe_properties(made: &mut Object, shapes: &[Object], key: &str, tags: &[Option<(&str, &str)>]) {
    let Some(properties) = made.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        // A text, and the words of the shapes of which it is said.
        let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for (shape, (_, word)) in shapes.iter().zip(tags).filter_map(|(shape, tag)| Some((shape, (*tag)?))) {
            let said = if name == key { Some(shape) } else { shape["properties"][name].as_object() };
            let Some(text) = said.and_then(|said| said.get("description")?.as_str()) else { continue };
            if !order.contains(&text) {
                order.push(text);
            }
            texts.entry(text).or_default().push(word);
        }
        let of_all = texts.values().any(|words| words.len() == shapes.len());
        let sentences = order.iter().map(|text| match (of_all, texts.get(text)) {
            (false, Some(words)) => format!("`{}`: {text}", words.join("`, `")),
            _ => (*text).to_owned(),
        });
        let description = sentences.collect::<Vec<_>>().join(" ");
        if let Some(property) = property.as_object_mut().filter(|_| !description.is_empty()) {
            property.insert("description".into(), json!(description));
        }
    }
}

/// A schema that fits what either of two fits.
fn merged(a: Object, b: Object) -> Object {
    let nullable = [&a, &b].iter().any(|schema| schema.contains_key("nullable"));
    let kind = |schema: &Object| schema.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut made = match (kind(&a).as_str(), kind(&b).as_str()) {
        (one, other) if one == other && !one.is_empty() => alike(&a, &b),
        ("integer", "number") | ("number", "integer") => {
            Object::from_iter([("type".to_owned(), json!("number"))])
        }
        ("integer", "string") | ("string", "integer") => {
            Object::from_iter([(INT_OR_STRING.to_owned(), json!(true))])
        }
        ("integer" | "string", "") if b.contains_key(INT_OR_STRING) => b,
        ("", "integer" | "string") if a.contains_key(INT_OR_STRING) => a,
        _ => open(),
    };
    if nullable {
        made.insert("nullable".into(), json!(true));
    }
    made
}

/// As [`merged`], of two schemas of one type.
fn alike(a: &Object, b: &Object) -> Object {
    let keys = ["type", OPEN].into_iter().chain(LIMITS);
    let same = keys.filter_map(|key| {
        Some((key.to_owned(), a.get(key).filter(|value| b.get(key) == Some(value))?.clone()))
    });
    let mut made: Object = same.collect();
    if let (Some(Value::Array(of_a)), Some(Value::Array(of_b))) = (a.get("enum"), b.get("enum")) {
        let new = of_b.iter().filter(|value| !of_a.contains(value));
        made.insert("enum".into(), json!(of_a.iter().chain(new).collect::<Vec<_>>()));
    }
    if let (Some(Value::Object(of_a)), Some(Value::Object(of_b))) = (a.get("items"), b.get("items")) {
        made.insert("items".into(), json!(merged(of_a.clone(), of_b.clone())));
    }
    if a.get("type").is_some_and(|kind| kind == "object") {
        made.insert(OPEN.into(), json!(true));
        let of = |schema: &Object| {
            schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
        };
        let mut properties = of(a);
        for (key, of_b) in of(b) {
            let both = match (properties.remove(&key), of_b) {
                (Some(Value::Object(of_a)), Value::Object(of_b)) => json!(merged(of_a, of_b)),
                (_, of_b) => of_b,
            };
            properties.insert(key, both);
        }
        made.insert("properties".into(), json!(properties));
        let required =
            |schema: &Object| schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let of_b = required(b);
        let both: Vec<Value> = required(a).into_iter().filter(|key| of_b.contains(key)).collect();
        if !both.is_empty() {
            made.insert("required".into(), json!(both));
        }
    }
    made
}
