//! JSON schema, as far as our document uses it: whether a value is right, and values that are.

use bellwether_testkit::Random;
use serde_json::{Map, Value, json};

/// A generator of numbers, small and the same everywhere.
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Random(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// A schema's keywords that are known here; any other is a fault of the test.
const KEYWORDS: [&str; 23] = [
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maximum",
    "minItems",
    "minimum",
    "oneOf",
    "pattern",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "title",
    "type",
];

fn resolve<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str() {
        Some(name) => document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name} leads nowhere")),
        None => schema,
    }
}

/// What is wrong with a value, and where.
pub(crate) fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else {
        return if schema == &json!(false) { Err(format!("{value} is one too many")) } else { Ok(()) };
    };
    for (keyword, wanted) in keywords {
        assert!(KEYWORDS.contains(&keyword.as_str()), "{keyword} is not known here");
        keyword_holds(document, schema, keyword, wanted, value)?;
    }
    Ok(())
}

fn keyword_holds(
    document: &Value,
    schema: &Value,
    keyword: &str,
    wanted: &Value,
    value: &Value,
) -> Result<(), String> {
    let number = || value.as_f64().zip(wanted.as_f64());
    let matching = |all: &Value| {
        all.as_array().into_iter().flatten().filter(|one| check(document, one, value).is_ok()).count()
    };
    let holds = match keyword {
        "$ref" => return check(document, resolve(document, schema), value),
        "type" => match wanted.as_array() {
            Some(any) => any.iter().any(|one| is_a(value, one)),
            None => is_a(value, wanted),
        },
        "const" => value == wanted,
        "enum" => wanted.as_array().unwrap().contains(value),
        "minimum" => number().is_none_or(|(value, least)| value >= least),
        "maximum" => number().is_none_or(|(value, most)| value <= most),
        "exclusiveMinimum" => number().is_none_or(|(value, least)| value > least),
        "oneOf" => matching(wanted) == 1,
        "anyOf" => matching(wanted) > 0,
        "allOf" => matching(wanted) == wanted.as_array().unwrap().len(),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().unwrap()),
        "required" => {
            let has = |key: &Value| value.get(key.as_str().unwrap()).is_some();
            !value.is_object() || wanted.as_array().unwrap().iter().all(has)
        }
        "properties" | "additionalProperties" => return members_hold(document, schema, value),
        "items" | "prefixItems" => return items_hold(document, schema, value),
        _ => true,
    };
    if holds { Ok(()) } else { Err(format!("{value} is not of {keyword} {wanted}")) }
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is not a type"),
    }
}

fn members_hold(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for (key, member) in value.as_object().into_iter().flatten() {
        let known = schema["properties"].get(key);
        let wanted = known.or(schema.get("additionalProperties")).unwrap_or(&Value::Null);
        check(document, wanted, member).map_err(|what| format!("{key}: {what}"))?;
    }
    Ok(())
}

fn items_hold(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        let first = schema["prefixItems"].get(place);
        let wanted = first.or(schema.get("items")).unwrap_or(&Value::Null);
        check(document, wanted, item).map_err(|what| format!("{place}: {what}"))?;
    }
    Ok(())
}

/// A value that is right, each part of which may be extreme.
pub(crate) fn invent(document: &Value, schema: &Value, dice: &mut Dice) -> Value {
    let schema = resolve(document, schema);
    for choice in ["oneOf", "anyOf"] {
        if let Some(all) = schema[choice].as_array() {
            let mut value = invent(document, dice.of(all), dice);
            // What stands beside the choice holds as well.
            if let (Value::Object(value), true) = (&mut value, schema["properties"].is_object()) {
                value.extend(members(document, schema, dice));
            }
            return value;
        }
    }
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(all) = schema["enum"].as_array() {
        return dice.of(all).clone();
    }
    let kind = match &schema["type"] {
        Value::Array(all) => dice.of(all).as_str().unwrap(),
        kind => kind.as_str().unwrap_or("boolean"),
    };
    match kind {
        "null" => Value::Null,
        "boolean" => json!(dice.one_in(2)),
        "integer" | "number" => number(schema, kind, dice),
        "string" => json!(text(schema, dice)),
        "array" => {
            let first = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
            let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
            let length = if first.is_empty() { least.max(dice.below(4)) } else { first.len() };
            let item = |place: usize| first.get(place).unwrap_or(&schema["items"]);
            (0..length).map(|place| invent(document, item(place), dice)).collect()
        }
        _ => Value::Object(members(document, schema, dice)),
    }
}

fn members(document: &Value, schema: &Value, dice: &mut Dice) -> Map<String, Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut members = Map::new();
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&key.as_str()) || dice.one_in(4) {
            members.insert(key.clone(), invent(document, schema, dice));
        }
    }
    members
}

fn number(schema: &Value, kind: &str, dice: &mut Dice) -> Value {
    let least = schema["minimum"].as_u64().unwrap_or(0);
    let most = schema["maximum"].as_u64().unwrap_or(u64::MAX);
    let whole = match dice.below(8) {
        0 => least,
        1 => most,
        2 => dice.next(),
        _ => least.saturating_add(dice.next() % 100),
    };
    let whole = whole.clamp(least, most);
    if kind == "integer" {
        return json!(whole);
    }
    json!(dice.of(&[0.5, 1e-300, 1e300, 0.001, 7.0]))
}

fn text(schema: &Value, dice: &mut Dice) -> String {
    if schema.get("pattern").is_some() {
        // The only pattern is that of a number of workers.
        return (*dice.of(&["1", "1..4", "2..3", "4294967295", "3..1", "00000000000000000001"])).to_owned();
    }
    let texts = [
        "",
        "x",
        "x-0",
        "../x",
        "1ms",
        "4KiB",
        "2h",
        "fifo",
        "/tmp/data.csv",
        "\u{0}",
        "ä€𝄞",
        "name = 'x'",
        "\r\n",
        "-1s",
        "1e999h",
    ];
    (*dice.of(&texts)).to_owned()
}

/// Changes something in a value.
pub(crate) fn mutate(value: &mut Value, dice: &mut Dice) {
    let strange = [
        json!(null),
        json!(-1),
        json!(1.5),
        json!("strange"),
        json!([]),
        json!({}),
        json!(true),
        json!(u64::MAX),
    ];
    match value {
        Value::Object(members) if !members.is_empty() && !dice.one_in(8) => {
            let keys: Vec<String> = members.keys().cloned().collect();
            let key = dice.of(&keys);
            match dice.below(5) {
                0 => drop(members.remove(key)),
                1 => drop(members.insert(format!("{key}x"), json!(1))),
                _ => mutate(&mut members[key], dice),
            }
        }
        Value::Array(items) if !items.is_empty() && !dice.one_in(8) => {
            let place = dice.below(items.len());
            mutate(&mut items[place], dice);
        }
        _ => *value = dice.of(&strange).clone(),
    }
}

#[test]
fn the_check_can_fail() {
    let document = json!({ "a": { "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } },
        "required": ["n"], "additionalProperties": false } });
    let schema = json!({ "anyOf": [{ "$ref": "#/a" }, { "type": "array", "items": { "$ref": "#/a" } }] });
    let right = [json!({ "n": 1 }), json!([]), json!([{ "n": 2 }])];
    let wrong = [
        json!({}),
        json!({ "n": 0 }),
        json!({ "n": 1.5 }),
        json!({ "n": 1, "m": 1 }),
        json!([1]),
        json!(null),
    ];
    assert!(right.iter().all(|value| check(&document, &schema, value).is_ok()));
    assert!(wrong.iter().all(|value| check(&document, &schema, value).is_err()));
}
