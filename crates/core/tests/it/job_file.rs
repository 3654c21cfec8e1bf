//! What a job file may say, and what a person reads when it says something else.

use bellwether_core::InputError;
use bellwether_core::job::{
    Cell, CellEdges, CellOperation, CheckedJob, Data, Feature, Job, Model, Optimizer, Support, TrainingMode,
    WorkerRange, architecture_text,
};
use bellwether_core::parse;
use bellwether_core::units::{Bytes, Seconds};
use proptest::prelude::*;

const GOOD: &str = r#"
name = "digits"
epochs = 2
workers = "1..4"

[model]
kind = "mlp"
hidden = [64, 32]

[data]
kind = "digits"

[batch]
size = 64
virtual_nodes = 8

[optimizer]
kind = "sgd"
learning_rate = 0.1
momentum = 0.9
nesterov = true
"#;

fn read(text: &str) -> Result<CheckedJob, InputError> {
    parse::job(text, "job.toml", &[])
}

fn with(from: &str, to: &str) -> InputError {
    let text = GOOD.replace(from, to);
    assert_ne!(text, GOOD, "`{from}` is in the good file");
    read(&text).expect_err("the changed file is bad")
}

fn set(key: &str, value: &str) -> Result<CheckedJob, InputError> {
    parse::job(GOOD, "job.toml", &[(key.into(), value.into())])
}

/// A cell, some of its edges, and an architecture of its space.
fn cells() -> impl Strategy<Value = (Cell, Vec<usize>, Vec<CellOperation>)> {
    let operations = proptest::sample::subsequence(CellOperation::ALL.to_vec(), 1..=5);
    let spaces = (2..=5_usize, 1..=3_usize).prop_flat_map(move |(nodes, cells)| {
        let edges = nodes * (nodes - 1) / 2;
        (Just((nodes, cells)), proptest::collection::vec(operations.clone(), edges))
    });
    spaces.prop_flat_map(|((nodes, cells), edges)| {
        let cell: Cell = toml::from_str(&format!("nodes = {nodes}\ncells = {cells}")).expect("a cell");
        let numbers: Vec<usize> = (0..edges.len()).collect();
        let picks = edges.iter().map(|edge| proptest::sample::select(edge.clone())).collect::<Vec<_>>();
        (Just(cell.with_edges(edges)), proptest::sample::subsequence(numbers, 0..=3.min(nodes - 1)), picks)
    })
}

proptest! {
    #[test]
    fn the_parts_of_a_split_space_cover_it_and_are_disjoint((cell, edges, architecture) in cells()) {
        let parts = cell.split(&edges);
        let operations = cell.edges();
        prop_assert_eq!(parts.len(), edges.iter().map(|edge| operations[*edge].len()).product::<usize>());
        prop_assert_eq!(parts.iter().map(Cell::count).sum::<f64>(), cell.count());
        // Where every architecture is in one part, they cover the space and share nothing.
        prop_assert_eq!(parts.iter().filter(|part| part.contains(&architecture)).count(), 1);
        for part in &parts {
            prop_assert!(edges.iter().all(|edge| part.edges()[*edge].len() == 1));
            let rest = (0..operations.len()).filter(|edge| !edges.contains(edge));
            prop_assert!(rest.into_iter().all(|edge| part.edges()[edge] == operations[edge]));
        }
        // Level by level they are the same.
        let (first, then) = edges.split_at(edges.len() / 2);
        let by_level: Vec<Cell> = cell.split(first).iter().flat_map(|part| part.split(then)).collect();
        prop_assert_eq!(by_level, parts);
    }

    #[test]
    fn an_architecture_is_read_as_it_is_written((_, _, architecture) in cells()) {
        let text = architecture_text(&architecture);
        let read: CellEdges = text.parse().unwrap();
        prop_assert_eq!(read.0.concat(), architecture);
        // No text makes the reader panic.
        for cut in 0..text.len() {
            let _ = text[..cut].parse::<CellEdges>();
            let _ = text[cut..].parse::<CellEdges>();
        }
    }
}

#[test]
fn a_good_file_is_read_with_its_defaults() {
    let job = read(GOOD).unwrap();
    assert_eq!(job.workers, WorkerRange { min: 1, max: 4 });
    assert_eq!(job.data, Data::Digits { held_out: 0.2, order: None });
    assert_eq!(job.checkpoint.keep, 3);
    assert!(matches!(job.optimizer, Optimizer::Sgd { nesterov: true, clip_norm: None, .. }));
    // Two epochs of 1,438 samples in batches of 64: the last step of each takes the rest.
    assert_eq!(job.total_steps(1438), 46);
}

#[test]
fn a_job_survives_its_own_serialisation() {
    let job = read(GOOD).unwrap();
    let json = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<CheckedJob>(&json).unwrap(), job);
    assert_eq!(read(&toml::to_string(&job).unwrap()).unwrap(), job);
}

#[test]
fn misspelt_words_are_met_with_the_nearest_known_one() {
    for (from, to, line, near) in [
        ("momentum = 0.9", "momentun = 0.9", 20, "momentum"),
        ("epochs = 2", "epoch = 2", 3, "epochs"),
        ("kind = \"mlp\"", "kind = \"mpl\"", 7, "mlp"),
        ("[batch]", "[bacth]", 13, "batch"),
        ("virtual_nodes", "virtual_node", 15, "virtual_nodes"),
        ("hidden = [64, 32]", "hiden = [64, 32]", 8, "hidden"),
    ] {
        let error = with(from, to);
        assert!(error.hint.contains(&format!("did you mean `{near}`?")) && error.is_unknown(), "{error}");
        assert_eq!(error.place, format!("job.toml, line {line}"), "{error}");
    }
}

#[test]
fn values_that_cannot_be_are_named_with_their_key() {
    for (from, to, key, word) in [
        ("size = 64", "size = 60", "batch.size", "60 samples do not divide into 8"),
        ("\"1..4\"", "9", "workers", "9 workers cannot share 8"),
        ("\"1..4\"", "\"4..1\"", "job.toml", "no fewer at its end"),
        ("learning_rate = 0.1", "learning_rate = -1.0", "optimizer.learning_rate", "positive"),
        ("learning_rate = 0.1", "learning_rate = nan", "optimizer.learning_rate", "positive"),
        ("momentum = 0.9\n", "momentum = 1.5\n", "optimizer.momentum", "0…1"),
        ("momentum = 0.9\n", "", "optimizer.nesterov", "needs momentum"),
        ("epochs = 2", "epochs = 2\nsteps = 3", "steps", "2 of `steps` and `epochs`"),
        ("epochs = 2", "", "steps", "0 of `steps` and `epochs`"),
        ("name = \"digits\"", "name = \"../x\"", "name", "cannot name a folder"),
        ("[batch]", "[exchange]\nprecision = \"f16\"\n[batch]", "job.toml", "f16"),
        ("[batch]", "[exchange]\nprecision = 16\n[batch]", "job.toml", "wanted string"),
        ("[batch]", "[exchange]\nbits = 16\n[batch]", "job.toml", "bits"),
        ("kind = \"digits\"", "kind = \"digits\"\nheld_out = 1.0", "data.held_out", "0…1"),
        (
            "kind = \"mlp\"\nhidden = [64, 32]",
            "kind = \"transformer\"\ncontext=8\nwidth=8\nlayers=1\nheads=3",
            "model.heads",
            "3 heads",
        ),
        (
            "kind = \"mlp\"\nhidden = [64, 32]",
            "kind = \"transformer\"\ncontext=8\nwidth=8\nlayers=1\nheads=2",
            "data.kind",
            "cannot learn",
        ),
    ] {
        let error = with(from, to);
        assert!(error.place.contains(key) && error.what.contains(word), "{key} {word}: {error}");
    }
}

const CUSTOM: &str = r#"kind = "custom"
name = "line"
options = { features = 4, scale = 0.5, names = ["a", "b"] }
"#;

fn custom(model: &str, data: &str) -> Result<CheckedJob, InputError> {
    let text = GOOD.replace("kind = \"mlp\"\nhidden = [64, 32]\n", model);
    read(&text.replace("kind = \"digits\"\n", data))
}

#[test]
fn a_model_of_ones_own_carries_options_of_its_own() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Options {
        features: usize,
        scale: f64,
        names: Vec<String>,
    }
    let job = custom(CUSTOM, "kind = \"custom\"\noptions = { points = 8 }\n").unwrap();
    let names = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(job.model.options(), Ok(Options { features: 4, scale: 0.5, names }));
    let error = job.data.options::<Options>().unwrap_err();
    assert_eq!((error.place.as_str(), error.what.as_str()), ("data.options", "unknown field `points`"));
    assert!(read(GOOD).unwrap().model.options::<Options>().is_err(), "a built-in model has none");
    assert_eq!(read(&toml::to_string(&job).unwrap()).unwrap(), job);
    assert_eq!(serde_json::from_str::<CheckedJob>(&serde_json::to_string(&job).unwrap()).unwrap(), job);
    // They decide bits as any key of the model does.
    let other = custom(&CUSTOM.replace("0.5", "0.25"), "kind = \"digits\"\n").unwrap();
    let same = custom(CUSTOM, "kind = \"digits\"\n").unwrap();
    assert!(job.identity() == same.identity() && job.identity() != other.identity());
}

#[test]
fn what_a_custom_model_cannot_be_is_named() {
    let digits = "kind = \"digits\"\n";
    let place = |model: &str, data: &str| custom(model, data).unwrap_err().place;
    assert_eq!(place(&CUSTOM.replace("\"line\"", "\"../x\""), digits), "job.toml: model.name");
    assert_eq!(place(&CUSTOM.replace("0.5", "nan"), digits), "job.toml: model.options.scale");
    let mlp = "kind = \"mlp\"\nhidden = [8]\n";
    assert_eq!(place(mlp, "kind = \"custom\"\n"), "job.toml: data.kind");
}

#[test]
fn broken_syntax_names_its_line() {
    let error = with("size = 64", "size = = 64");
    assert_eq!(error.place, "job.toml, line 14");
}

#[test]
fn overrides_are_read_as_they_would_stand_in_the_file() {
    assert_eq!(set("batch.size", "128").unwrap().batch.size, 128);
    assert_eq!(set("workers", "\"2..3\"").unwrap().workers, WorkerRange { min: 2, max: 3 });
    assert_eq!(set("workers", "2..3").unwrap().workers, WorkerRange { min: 2, max: 3 });
    assert_eq!(set("name", "other").unwrap().name, "other");
    let narrow = set("model.hidden", "[8]").unwrap();
    assert!(matches!(&narrow.model, Model::Mlp { hidden, .. } if *hidden == [8]));
    assert!(set("optimizer.learning_rat", "1").unwrap_err().hint.contains("learning_rate"));
    assert!(set("", "1").is_err());
    assert!(set("name.x", "1").is_err());
}

#[test]
fn a_checked_job_is_changed_only_where_it_stays_right() {
    let job = read(GOOD).unwrap();
    let wider = job.clone().edit(|job| job.batch.size = 128).unwrap();
    assert_eq!((wider.batch.size, wider.name.as_str()), (128, "digits"));
    let error = job.clone().edit(|job| job.batch.size = 60).unwrap_err();
    assert_eq!(error.place, "batch.size");
    let written = serde_json::to_string(&job).unwrap();
    assert_eq!(written, serde_json::to_string(&job.into_job()).unwrap());
    let broken = written.replace("\"size\":64", "\"size\":60");
    let refused = serde_json::from_str::<CheckedJob>(&broken).unwrap_err().to_string();
    assert!(refused.contains("60 samples do not divide into 8"), "{refused}");
}

#[test]
fn what_a_mode_cannot_do_is_refused_as_its_table_says() {
    let (goodput, servers) = (("mode.goodput.max_batch", "128"), ("sync.reduce", "servers"));
    let (asp, gossip) = (("sync.policy", "asp"), ("sync.policy", "gossip"));
    let (clip, verify) = (("optimizer.clip_norm", "1.0"), ("verify_every", "10"));
    let (verdict, bfloat) = (("verdict.every_steps", "10"), ("exchange.precision", "bf16"));
    let (greedy, mixed) = (("sync.stragglers", "greedy"), ("mode", "mixed"));
    for (sets, mode, feature) in [
        ([goodput, servers], TrainingMode::Servers, Feature::MovingBatch),
        ([goodput, asp], TrainingMode::Asynchronous, Feature::MovingBatch),
        ([goodput, gossip], TrainingMode::Gossip, Feature::MovingBatch),
        ([clip, servers], TrainingMode::Servers, Feature::ClipNorm),
        ([verify, servers], TrainingMode::Servers, Feature::Verify),
        ([verify, asp], TrainingMode::Asynchronous, Feature::Verify),
        ([verify, gossip], TrainingMode::Gossip, Feature::Verify),
        ([verdict, goodput], TrainingMode::Goodput, Feature::Verdicts),
        ([verdict, servers], TrainingMode::Servers, Feature::Verdicts),
        ([verdict, asp], TrainingMode::Asynchronous, Feature::Verdicts),
        ([verdict, gossip], TrainingMode::Gossip, Feature::Verdicts),
        ([bfloat, servers], TrainingMode::Servers, Feature::Bfloat16),
        ([bfloat, asp], TrainingMode::Asynchronous, Feature::Bfloat16),
        ([bfloat, gossip], TrainingMode::Gossip, Feature::Bfloat16),
        ([bfloat, greedy], TrainingMode::Asynchronous, Feature::Bfloat16),
        ([mixed, verify], TrainingMode::Mixed, Feature::Verify),
    ] {
        let sets = sets.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let error = parse::job(GOOD, "job.toml", &sets).expect_err("a combination that cannot be");
        let Support::Refused { key, reason, hint } = mode.support(feature) else { panic!("{mode:?}") };
        assert_eq!((error.what.as_str(), error.hint.as_str()), (reason, hint));
        assert!(error.place.ends_with(key) && error.is_unsupported(), "{error}");
    }
    let exact = read(GOOD).unwrap();
    assert!(TrainingMode::of(&exact).eq([TrainingMode::Exact]));
    assert!(Feature::MovingBatch.check(&exact).is_err() && Feature::Resize.check(&exact).is_ok());
    let phases = set("sync.policy", "{ phases = [[0.0, \"bsp\"], [0.5, \"gossip\"]] }").unwrap();
    assert!(TrainingMode::of(&phases).eq([TrainingMode::Gossip, TrainingMode::Exact]));
}

#[test]
fn unlike_kernels_train_together_where_the_job_says_so_or_promises_no_bits() {
    let open = |key: &str, value: &str| set(key, value).unwrap().is_open_to_any_class();
    let switched = "{ phases = [[0.0, \"bsp\"], [0.5, \"asp\"]] }";
    assert!(open("mode", "mixed") && open("sync.policy", "asp") && open("sync.policy", "ssp:2"));
    assert!(!open("seed", "2") && !open("sync.policy", switched) && !open("sync.policy", "auto"));
    assert!(!open("sync.stragglers", "greedy") && !open("sync.reduce", "servers"));
    assert!(!open("sync.policy", "local:4") && !open("mode.goodput.max_batch", "128"));
    let mixed = set("mode", "mixed").unwrap();
    assert!(TrainingMode::of(&mixed).eq([TrainingMode::Mixed]));
    assert_ne!(mixed.identity(), read(GOOD).unwrap().identity());
}

#[test]
fn identity_is_what_decides_bits() {
    let job = read(GOOD).unwrap();
    assert_eq!(job.identity(), set("workers", "3").unwrap().identity());
    assert_eq!(job.identity(), set("checkpoint.every_steps", "3").unwrap().identity());
    assert_ne!(job.identity(), set("seed", "3").unwrap().identity());
    assert_ne!(job.identity(), set("batch.virtual_nodes", "4").unwrap().identity());
    assert_ne!(
        job.identity(),
        set("verdict.every_steps", "4").unwrap().identity(),
        "it decides how long a run is"
    );
    assert_eq!(job.identity(), set("verdict.every_steps", "0").unwrap().identity());
    assert!(!job.identity().contains("exchange"), "checkpoints of old stay those of the job");
    assert_eq!(job.identity(), set("exchange.precision", "f32").unwrap().identity());
    assert_ne!(job.identity(), set("exchange.precision", "bf16").unwrap().identity());
}

#[test]
fn the_schema_names_every_key_of_the_good_file() {
    let schema = Job::schema().to_string();
    for key in
        ["name", "epochs", "workers", "virtual_nodes", "learning_rate", "nesterov", "held_out", "hidden"]
    {
        assert!(schema.contains(&format!("\"{key}\"")), "{key}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(?s).{0,200}", at in 0usize..300, noise in "[\\[\\]=\"a-z0-9.{}\n]{0,12}") {
        let _ = read(&text);
        let mut mutated = GOOD.to_string();
        let at = at.min(mutated.len());
        if mutated.is_char_boundary(at) {
            mutated.insert_str(at, &noise);
        }
        let _ = read(&mutated);
    }

    #[test]
    fn quantities_survive_their_text(nanoseconds in 0u64..10_000_000_000_000, bytes in 0u64..1 << 50) {
        let time = Seconds::new(nanoseconds as f64 * 1e-9);
        let back: Seconds = time.to_string().parse().unwrap();
        prop_assert!((back.get() - time.get()).abs() <= 1e-6 * time.get().max(1e-6));
        prop_assert_eq!(String::from(Bytes(bytes)).parse::<Bytes>(), Ok(Bytes(bytes)));
    }
}

#[test]
fn the_job_in_the_tour_is_a_good_one() {
    let tour = include_str!("../../../../docs/tour.md");
    let block = tour.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(read(block).unwrap().name, "digits");
}
