//! `--export skypilot`: what was chosen, as a task for `sky launch`.

use std::fmt::Write;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::plan::{Candidate, Market, Plan};

use super::PlanArguments;
use super::words::{alike, quoted, run_words};

/// Where the coordinator listens on the first node.
const PORT: u16 = 29_400;

/// The task: the first node has the coordinator, and each has a worker for each device. YAML, whose values are
/// written as JSON writes them.
pub(super) fn task(
    arguments: &PlanArguments,
    job: &Path,
    plan: &Plan,
    chosen: &Candidate,
) -> Result<String, InputError> {
    let (machines, kind) = alike("skypilot", plan, chosen)?;
    if kind.obtain.skypilot.is_empty() {
        let what = format!("nothing says which of SkyPilot's resources `{}` is", kind.machine);
        return Err(InputError::new("--export skypilot", what).hint(
            "write for example obtain.skypilot = { infra = \"gcp/us-east1\", accelerators = \"K80:1\" } under its \
             [[machine]] in the catalogue",
        ));
    }
    let value = |text: &str| serde_json::Value::String(text.to_owned()).to_string();
    let mut text = String::new();
    let _ = writeln!(text, "# {}", plan.reason.replace('\n', " "));
    text.push_str("# The token lets workers join:\n");
    text.push_str("# BELLWETHER_TOKEN=$(openssl rand -hex 32) sky launch --secret BELLWETHER_TOKEN FILE\n");
    let _ = writeln!(text, "name: {}", value(&format!("bellwether-{}", plan.job)));
    let _ = writeln!(text, "num_nodes: {}\nworkdir: .\nresources:", machines.count);
    for (key, resource) in &kind.obtain.skypilot {
        let _ = writeln!(text, "  {}: {}", value(key), value(resource));
    }
    let _ = writeln!(text, "  use_spot: {}", machines.market == Market::Transient);
    let image = arguments.export.image.as_ref().or(kind.obtain.image.as_ref());
    if let Some(image) = image {
        let _ = writeln!(text, "  image_id: {}", value(&format!("docker:{image}")));
    }
    text.push_str("secrets:\n  BELLWETHER_TOKEN: null\n");
    if !kind.obtain.setup.is_empty() {
        text.push_str("setup: |\n");
        for line in kind.obtain.setup.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text.push_str("run: |\n");
    for line in run(arguments, job, chosen, machines.devices).lines() {
        let _ = writeln!(text, "  {line}");
    }
    Ok(text)
}

/// What each node runs. A worker that comes before its coordinator tries again.
fn run(arguments: &PlanArguments, job: &Path, chosen: &Candidate, devices: u32) -> String {
    let coordinator = quoted(&run_words(arguments, job, chosen));
    format!(
        r#"umask 077
token=$(mktemp)
printf '%s\n' "$BELLWETHER_TOKEN" > "$token"
head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1):{PORT}
if [ "$SKYPILOT_NODE_RANK" = 0 ]; then
  {coordinator} --no-spawn --token-file "$token" --listen "$head" &
  run=$!
fi
device=0
while [ "$device" -lt {devices} ]; do
  (until CUDA_VISIBLE_DEVICES=$device \
     bellwether worker --join "$head" --token-file "$token" --listen auto --notices gce,ec2
   do sleep 2; done) &
  device=$((device + 1))
done
if [ "$SKYPILOT_NODE_RANK" = 0 ]; then wait "$run"; else wait; fi
"#
    )
}
