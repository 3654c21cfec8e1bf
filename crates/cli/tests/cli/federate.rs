//! `bellwether federate`: published cases, markets, sharing levels, prices inside, and what it refuses.

use serde_json::Value;

use crate::harness::{Ended, Scene};

/// The examples' folder.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn ask(scene: &Scene, file: &str, arguments: &[&str]) -> Ended {
    scene.call(&[&["federate", file], arguments].concat())
}

fn example(name: &str, arguments: &[&str]) -> Ended {
    ask(&Scene::new(""), &format!("{FOLDER}/{name}"), arguments)
}

#[track_caller]
fn report(ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no report ({error}): {ended:?}"))
}

fn numbers(rows: &Value, key: &str) -> Vec<f64> {
    let rows = rows.as_array().expect("rows");
    rows.iter().map(|row| row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"))).collect()
}

#[track_caller]
fn near(found: &[f64], expected: &[f64], half: f64) {
    let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= half);
    assert!(found.len() == expected.len() && close, "{found:?}, expected {expected:?}");
}

#[test]
fn two_sites_share_and_the_overrun_one_pays() {
    let json = report(&example("federation-two-sites.toml", &["--format", "json"]), 0);
    // IEEE CLOUD 2022, Table I, to its digits.
    near(&[json["saved_dollars_per_hour"].as_f64().unwrap()], &[100.5 - 81.2], 0.05);
    let shapley = &json["splits"][0];
    near(&numbers(&shapley["members"], "cost_cut"), &[0.276, 0.071], 0.0005);
    assert_eq!(shapley["stable"], true);
    // What is paid inside is only moved.
    let moved = numbers(&shapley["members"], "receives_dollars_per_hour");
    assert!(moved[0] > 0.0 && (moved[0] + moved[1]).abs() < 1e-9, "{moved:?}");
    let table = example("federation-two-sites.toml", &[]);
    for words in ["south pays north $23.18 per hour", "27.6 %", "Federate all 2"] {
        assert!(table.stdout.contains(words), "{words}: {}", table.stdout);
    }
    let csv = example("federation-two-sites.toml", &["--format", "csv", "--split", "all"]);
    assert_eq!(csv.stdout.lines().count(), 1 + 2 * 7, "{}", csv.stdout);
}

#[test]
fn the_simulation_says_what_the_chain_says() {
    let computed = report(&example("federation-two-sites.toml", &["--format", "json"]), 0);
    let words = ["--simulate", "--precision", "0.02", "--format", "json"];
    let simulated = report(&example("federation-two-sites.toml", &words), 0);
    let saved = |json: &Value| json["saved_dollars_per_hour"].as_f64().unwrap();
    let half_width = simulated["half_width_dollars_per_hour"].as_f64().unwrap();
    assert!(half_width > 0.0 && computed["half_width_dollars_per_hour"] == 0.0);
    // The interval is that of what is forwarded together; alone is simulated too.
    assert!((saved(&computed) - saved(&simulated)).abs() < 2.0 * half_width, "{half_width}: {simulated}");
    assert_eq!(simulated["notes"][0], "simulated: it was asked for");
}

#[test]
fn a_member_that_does_harm_stays_alone() {
    let words = ["--split", "all", "--format", "json"];
    let json = report(&example("federation-patience.toml", &words), 0);
    near(&numbers(&json["members"], "alone_forwarded_per_hour"), &[7.57, 7.57, 0.88], 0.005);
    near(&numbers(&json["members"], "forwarded_per_hour"), &[6.56, 6.56, 0.0], 0.005);
    near(&numbers(&json["coalitions"], "saved_dollars_per_hour"), &[4.27, -1.86, -1.86, 2.91], 0.005);
    near(&numbers(&json["splits"][0]["members"], "dollars_per_hour"), &[1.99, 1.99, -1.07], 0.005);
    assert!(json["splits"].as_array().unwrap().iter().all(|split| split["stable"] == false), "an empty core");
    assert_eq!(json["advice"]["blocks"], serde_json::json!([["A", "B"], ["C"]]));
    assert!(json["notes"][0].as_str().unwrap().starts_with("core: empty"), "{json}");
    let stable = report(&example("federation-patience.toml", &["--stable", "--format", "json"]), 0);
    near(&numbers(&stable["splits"][0]["members"], "dollars_per_hour"), &[2.13, 2.13, 0.0], 0.006);
    assert_eq!(stable["splits"][0]["stable"], true);
    near(&numbers(&stable["members"], "forwarded_per_hour"), &[5.44, 5.44, 0.88], 0.005);
}

#[test]
fn sharing_levels_are_searched_and_drawn() {
    let scene = Scene::new("");
    let small = |servers: u32| {
        format!(
            "[jobs]\nmean_time = \"1h\"\npublic_price = \"$1\"\n\
             [[member]]\nname = \"hasty\"\nservers = {servers}\narrivals_per_hour = {servers}\n\
             [[member]]\nname = \"patient\"\nservers = {servers}\narrivals_per_hour = {servers}\nlongest_wait = \"1h\"\n"
        )
    };
    scene.write("small.toml", small(16));
    // All of everything does harm.
    let all = report(&ask(&scene, "small.toml", &["--format", "json"]), 1);
    assert!(
        all["saved_dollars_per_hour"].as_f64().unwrap() < 0.0 && all["advice"]["stable"] == false,
        "{all}"
    );
    assert!(all["notes"].to_string().contains("--optimise sharing"), "{all}");
    let words = ["--optimise", "sharing", "--plot", "map.svg", "--format", "json"];
    let best = report(&ask(&scene, "small.toml", &words), 0);
    assert!(best["saved_dollars_per_hour"].as_f64().unwrap() > 0.0, "{best}");
    assert!(best["notes"].to_string().contains("289 combinations looked at; no other levels"), "{best}");
    let map = std::fs::read_to_string(scene.path("map.svg")).unwrap();
    assert!(map.contains("servers that hasty shares") && map.contains("the most"), "{map}");
    let alike = ask(&scene, "small.toml", &["--plot", "map.svg", "--plot-members", "hasty,unknown"]);
    assert_eq!(alike.code, Some(2));
    alike.says(&["--plot-members", "there is no member `unknown`", "hasty and patient"]);
}

#[test]
fn what_suits_whom_is_traded() {
    let json = report(&example("federation-affinity.toml", &["--split", "all", "--format", "json"]), 0);
    let saved = json["saved_dollars_per_hour"].as_f64().unwrap();
    let splits = json["splits"].as_array().unwrap();
    for split in splits {
        let given: f64 = numbers(&split["members"], "dollars_per_hour").iter().sum();
        assert!((given - saved).abs() < 1e-6, "{split}");
    }
    let owen = splits.iter().find(|split| split["split"] == "market prices (Owen)").expect("the market");
    assert_eq!(owen["stable"], true);
    // The devices that are best at recommending are the oldest: they work for the shop.
    let runs = json["market"]["runs"].as_array().unwrap();
    let lent = |run: &&Value| run["of"] == "shop" && run["on"] == "vision" && run["device"] == "k80";
    assert!(runs.iter().any(|run| lent(&run) && run["class"] == "Recommendation"), "{runs:?}");
    let stable = report(&example("federation-affinity.toml", &["--stable", "--format", "json"]), 0);
    let rows = stable["splits"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["stable"]), (1, &Value::Bool(true)), "{stable}");
    let scene = Scene::new("");
    scene.write("golden.toml", GOLDEN);
    let golden = report(&ask(&scene, "golden.toml", &["--split", "all", "--format", "json"]), 0);
    for split in golden["splits"].as_array().unwrap() {
        near(&numbers(&split["members"], "dollars_per_hour"), &[50.0, 50.0], 1e-6);
    }
}

#[test]
fn devices_are_offered_at_posted_rents() {
    let words = ["--game", "prices", "--format", "json"];
    let json = report(&example("federation-affinity.toml", &words), 0);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{json}");
    let at_market = rows.iter().find(|row| row["rents"] == 1.0 && row["start"] == "everything").unwrap();
    assert_eq!(at_market["ends"], "equilibrium");
    near(&[at_market["efficiency"].as_f64().unwrap()], &[1.0], 1e-4);
    // No rents make them save more than there is to save.
    assert!(numbers(&json["rows"], "efficiency").iter().all(|part| *part <= 1.0 + 1e-6), "{json}");
    let table = example("federation-affinity.toml", &words[..2]);
    assert!(
        table.stdout.contains("At 1 of the market's rents, beginning with everything"),
        "{}",
        table.stdout
    );
}

#[test]
fn with_a_transfer_cost_prices_differ_by_member() {
    let scene = Scene::new("");
    scene.write("far.toml", GOLDEN.replace("public_price", "transfer = 0.25\npublic_price"));
    let json = report(&ask(&scene, "far.toml", &["--split", "core", "--format", "json"]), 0);
    // 150 examples/s away from home take 93.75 of the 100 devices, so nothing is forwarded.
    near(&[json["saved_dollars_per_hour"].as_f64().unwrap()], &[100.0], 1e-6);
    assert_eq!(json["market"]["rents"].as_array().unwrap().len(), 4, "two types at two members: {json}");
}

/// Two sites whose devices each suit the other's work.
const GOLDEN: &str = r#"
[[class]]
name = "first"
speeds = { a = 2.0, b = 1.0 }
public_price = "$1/h"
[[class]]
name = "second"
speeds = { a = 1.0, b = 2.0 }
public_price = "$1/h"
[[member]]
name = "A"
devices = { a = 100 }
demand = { second = 150.0 }
[[member]]
name = "B"
devices = { b = 100 }
demand = { first = 150.0 }
"#;

#[test]
fn prices_inside_lead_to_an_equilibrium() {
    let scene = Scene::new("");
    let text = "[jobs]\nmean_time = \"1h\"\npublic_price = \"$2\"\n[prices]\ninternal = [0.6]\n\
                [[member]]\nname = \"idle\"\nservers = 5\narrivals_per_hour = 1\n\
                [[member]]\nname = \"busy\"\nservers = 3\narrivals_per_hour = 6\n";
    scene.write("prices.toml", text);
    let json = report(&ask(&scene, "prices.toml", &["--game", "prices", "--format", "json"]), 0);
    let row = &json["prices"][0];
    assert_eq!((row["ends"].as_str(), &row["shared"][0]), (Some("equilibrium"), &Value::from(5)), "{json}");
    assert!(row["saved_dollars_per_hour"].as_array().unwrap().iter().all(|saved| saved.as_f64() > Some(0.0)));
    let efficiency = row["efficiency"].as_f64().unwrap();
    assert!((0.9..=1.0 + 1e-9).contains(&efficiency), "{json}");
    // A member that lends for nothing lends nothing.
    scene.write("free.toml", text.replace("[0.6]", "[0.0]"));
    let free = report(&ask(&scene, "free.toml", &["--game", "prices", "--format", "json"]), 1);
    assert_eq!(free["stable"], false, "{free}");
}

#[test]
fn many_members_are_sampled() {
    let scene = Scene::new("");
    let mut text = "[jobs]\nmean_time = \"1h\"\npublic_price = \"$1\"\n".to_string();
    for member in 0..18 {
        let arrivals = if member % 2 == 0 { 3 } else { 14 };
        text += &format!("[[member]]\nname = \"m{member}\"\nservers = 8\narrivals_per_hour = {arrivals}\n");
    }
    scene.write("many.toml", &text);
    let json = report(&ask(&scene, "many.toml", &["--format", "json"]), 0);
    let shares = numbers(&json["splits"][0]["members"], "dollars_per_hour");
    let saved = json["saved_dollars_per_hour"].as_f64().unwrap();
    assert!((shares.iter().sum::<f64>() - saved).abs() < 1e-6 * saved, "{shares:?}");
    // Members that are alike get alike.
    let widths = numbers(&json["splits"][0]["members"], "half_width_dollars_per_hour");
    assert!(widths.iter().all(|width| *width <= 0.0101 * saved), "{widths:?}");
    assert!((shares[0] - shares[2]).abs() < 3.0 * (widths[0] + widths[2]), "{shares:?} {widths:?}");
    let refused = ask(&scene, "many.toml", &["--split", "nucleolus"]);
    assert_eq!(refused.code, Some(2));
    refused.says(&["--split", "18 members", "--split shapley"]);
}

#[test]
fn bad_federations_are_refused() {
    let scene = Scene::new("");
    let two = std::fs::read_to_string(format!("{FOLDER}/federation-two-sites.toml")).unwrap();
    let with = |from: &str, to: &str| two.replacen(from, to, 1);
    let cases: &[(String, &[&str])] = &[
        (with("mean_time = \"1h\"", "mean_time = \"0h\""), &["[jobs]", "no length"]),
        (with("servers = 50", "servers = 50\nshared = 51"), &["member 1 (north)", "shares 51 of 50"]),
        (with("arrivals_per_hour = 30", "arrivals_per_hour = -30"), &["north", "-30", "negative"]),
        (with("name = \"south\"", "name = \"north\""), &["member 2", "another member"]),
        (with("servers = 50", "server = 50"), &["unknown", "`servers`"]),
        (
            with("public_price = \"$1\"", "public_price = \"$1\"\nbusy_price = \"$3/h\""),
            &["nothing can be saved"],
        ),
        (with("[jobs]\n", "[jobs]\nlaw = { pareto = 0.5 }\n"), &["pareto = 0.5", "above 1"]),
        ("[jobs]\nmean_time = \"1h\"\npublic_price = \"$1\"\n".into(), &["no members"]),
        (
            GOLDEN.replace("speeds = { a = 2.0, b = 1.0 }", "speeds = { c = 1.0 }"),
            &["class 1 (first)", "`c`"],
        ),
        (GOLDEN.replace("first = 150.0", "frist = 150.0"), &["no class `frist`", "`first`"]),
        (GOLDEN.replace("a = 100", "a = -100"), &["member 1 (A)", "-100 is negative"]),
        (GOLDEN.replacen("public_price = \"$1/h\"", "", 1), &["what the public cloud takes"]),
        (
            GOLDEN.replacen("speeds = { a = 2.0, b = 1.0 }", "table = \"none.json\"", 1),
            &["none.json", "cannot be read"],
        ),
    ];
    for (text, words) in cases {
        scene.write("bad.toml", text);
        let ended = ask(&scene, "bad.toml", &[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{text}: {ended:?}");
        ended.says(words);
    }
    // Two million states are not enough, and too many jobs would have to be simulated.
    let crowd = two
        .replace("servers = 50", "servers = 400000\nshared = 5")
        .replace("_per_hour = 30", "_per_hour = 400000");
    scene.write("crowd.toml", crowd.replace("_per_hour = 150", "_per_hour = 400000\nlongest_wait = \"1h\""));
    let crowd = ask(&scene, "crowd.toml", &[]);
    assert_eq!(crowd.code, Some(2), "{crowd:?}");
    crowd.says(&["too large to simulate", "--most-states"]);
    let missing = ask(&scene, "nowhere.toml", &[]);
    assert_eq!(missing.code, Some(2));
    missing.says(&["nowhere.toml", "cannot be read"]);
    scene.write("two.toml", &two);
    for (words, said) in [
        (&["--game", "affinity"][..], "[[class]]"),
        (&["--precision", "0"], "above 0 and below 1"),
        (&["--plot", "nowhere/map.svg"], "nowhere"),
        (&["--game", "prices", "--plot", "map.svg"], "--plot"),
    ] {
        let ended = ask(&scene, "two.toml", words);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        ended.says(&[said]);
    }
}

#[test]
fn arrivals_may_come_by_turns_or_from_a_trace() {
    let scene = Scene::new("");
    let head = "[jobs]\nmean_time = \"1h\"\npublic_price = \"$1\"\nlaw = { hyperexponential = 4.0 }\ntransfer = \"2min\"\n";
    let member = |name: &str, more: &str| format!("[[member]]\nname = \"{name}\"\nservers = 6\n{more}\n");
    let turns = "arrivals_per_hour = [1, 9]\nstay = [\"12h\", \"12h\"]";
    let text = [
        head,
        &member("a", turns),
        &member("b", "trace = \"jobs.csv\""),
        &member("c", "arrivals_per_hour = 3"),
    ]
    .concat();
    scene.write("mixed.toml", &text);
    let jobs: String = (0..200).map(|n| format!("{},{}\n", n * 900, 1800 + 60 * (n % 90))).collect();
    scene.write("jobs.csv", format!("arrival_s,work_s\n{jobs}"));
    let json = report(&ask(&scene, "mixed.toml", &["--precision", "0.1", "--format", "json"]), 0);
    assert!(json["saved_dollars_per_hour"].as_f64().unwrap() > 0.0, "{json}");
    assert!(json["notes"][0].as_str().unwrap().starts_with("simulated: "), "{json}");
    for (trace, words) in [
        ("arrival_s,work_s\n5,1\n3,1\n", "arrives before"),
        ("arrival_s,work_s\n5,-1\n", "line 2"),
        ("time\n", "arrival_s,work_s"),
        ("arrival_s,work_s\n", "no job"),
    ] {
        scene.write("jobs.csv", trace);
        let ended = ask(&scene, "mixed.toml", &[]);
        assert_eq!(ended.code, Some(2), "{trace}: {ended:?}");
        ended.says(&["jobs.csv", words]);
    }
}

#[test]
fn the_schema_knows_what_the_examples_use() {
    let schema = Scene::new("").call(&["schema", "federation"]);
    for key in ["mean_time", "longest_wait", "table_job", "gamma", "own"] {
        assert!(schema.stdout.contains(&format!("\"{key}\"")), "{key}");
    }
    // The remaining examples are read to the end.
    let partial = example("federation-partial.toml", &["--format", "json"]);
    near(&numbers(&report(&partial, 1)["members"], "forwarded_per_hour"), &[7.04, 0.0], 0.005);
    assert_eq!(example("federation-prices.toml", &["--format", "json"]).code, Some(0));
}
