//! What the two changes to the sources of Kubernetes mend (`recipe.rs`), shown on a running server.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::client::{APPLY, Client, JSON, MERGE};
use super::processes;

const GROUP: &str = "bench.bellwether.test";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Updates of one resource. Without the change, the first that touches its kind fails.
const UPDATES: u64 = 20;

/// How long a kind may take to be served once it is defined; on an idle machine it takes 20 ms.
const PATIENCE: Duration = Duration::from_secs(20);

/// Defines a kind, tries both on it, and removes it.
pub(crate) fn check(client: &Client) -> Result<()> {
    let definition = format!("{DEFINITIONS}/things.{GROUP}");
    client.put("POST", DEFINITIONS, JSON, &kind())?.granted()?;
    let things = format!("/apis/{GROUP}/v1/namespaces/default/things");
    if !processes::wait_until(PATIENCE, || client.get(&things).is_ok_and(|answer| answer.status == 200)) {
        bail!("a kind that was defined is not served after {} s", PATIENCE.as_secs());
    }
    empty_strings_are_accepted(client, &things)?;
    println!("empty strings of a custom resource are accepted: ok");
    updates_leave_the_server_alive(client, &things)?;
    println!("{UPDATES} updates of a custom resource leave the server alive: ok");
    client.delete(&definition)?.granted()?;
    Ok(())
}

/// In a field, in a list and in a map; by creation and by server-side apply.
fn empty_strings_are_accepted(client: &Client, things: &str) -> Result<()> {
    let spec = json!({ "text": "", "list": ["", "a", ""], "map": { "key": "" }, "number": 0 });
    let created = client.put("POST", things, JSON, &thing("created", &spec))?.granted()?;
    ensure!(created["spec"] == spec, "created with other values: {}", created["spec"]);
    let path = format!("{things}/applied?fieldManager=bench");
    let applied = client.put("PATCH", &path, APPLY, &thing("applied", &spec))?.granted()?;
    ensure!(applied["spec"] == spec, "applied with other values: {}", applied["spec"]);
    Ok(())
}

/// By replacement, merge patch and server-side apply in turn, and of the status.
fn updates_leave_the_server_alive(client: &Client, things: &str) -> Result<()> {
    let path = format!("{things}/created");
    for number in 0..UPDATES {
        let spec = json!({ "number": number, "map": { "key": "value", "other": "" }, "list": ["a"] });
        let updated = match number % 3 {
            0 => {
                let mut whole = client.get(&path)?.granted()?;
                whole["spec"] = spec;
                client.put("PUT", &path, JSON, &whole)?
            }
            1 => client.put("PATCH", &path, MERGE, &json!({ "spec": spec }))?,
            _ => {
                let path = format!("{path}?fieldManager=bench&force=true");
                client.put("PATCH", &path, APPLY, &thing("created", &spec))?
            }
        };
        let updated = updated.granted()?;
        ensure!(updated["spec"]["number"] == number, "update {number} has no effect: {}", updated["spec"]);
        let status = json!({ "status": { "number": number } });
        client.put("PATCH", &format!("{path}/status"), MERGE, &status)?.granted()?;
    }
    ensure!(client.get("/readyz")?.status == 200, "the server is not ready any more");
    Ok(())
}

fn thing(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "Thing",
        "metadata": { "name": name, "labels": { "app": "bench" } },
        "spec": spec,
    })
}

fn kind() -> Value {
    let string = json!({ "type": "string" });
    let number = json!({ "type": "integer" });
    let spec = json!({
        "type": "object",
        "properties": {
            "text": string,
            "number": number,
            "list": { "type": "array", "items": string },
            "map": { "type": "object", "additionalProperties": string },
        },
    });
    let status = json!({ "type": "object", "properties": { "number": number } });
    let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "plural": "things", "singular": "thing", "kind": "Thing" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}
