//! What a sweep file may say, and what is said of one that may not.

use super::*;

const HEAD: &str = "job = \"job.toml\"\n[budget]\ntrials = 9\n";

fn refusal(text: &str) -> String {
    read(text, "s.toml").expect_err(text).to_string()
}

fn space(lines: &str) -> Result<Sweep, InputError> {
    read(&format!("{HEAD}[space]\n{lines}\n"), "s.toml")
}

#[test]
fn a_whole_file_is_read() {
    let text = "job = \"digits.toml\"\nworkers = 4\nconcurrent = 2\n[set]\nseed = 3\n[space]\n\
        \"optimizer.learning_rate\" = { low = 1e-4, high = 1.0, scale = \"log\" }\n\
        \"optimizer.kind\" = { choices = [\"sgd\", \"adam\"] }\n\
        \"optimizer.momentum\" = { low = 0.0, high = 0.9, step = 0.3, when = { \"optimizer.kind\" = \"sgd\" } }\n\
        \"batch.size\" = { low = 32, high = 128, step = 32 }\n\
        [objective]\nmetric = \"loss\"\n[sampler]\nkind = \"tpe\"\nseed = 7\n\
        [scheduler]\nkind = \"asha\"\nreduction = 4\nminimum = 2\nmaximum = 32\n\
        [budget]\nmoney = \"$20\"\nprice = \"$0.35/h\"\n";
    let sweep = read(text, "s.toml").unwrap();
    let keys: Vec<&str> = sweep.space.parameters.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["batch.size", "optimizer.kind", "optimizer.learning_rate", "optimizer.momentum"]);
    assert_eq!(sweep.space.parameters[0].domain.count(), Some(4));
    assert_eq!(sweep.space.parameters[3].domain, Domain::Steps { low: 0.0, step: 0.3, steps: 3 });
    let again: SweepFile = serde_json::from_str(&serde_json::to_string(&sweep.file).unwrap()).unwrap();
    assert_eq!(again, sweep.file);
}

#[test]
fn a_condition_comes_after_its_key() {
    let sweep = space(
        "\"a.x\" = { low = 0.0, high = 1.0, when = { \"z.kind\" = [\"p\", \"q\"] } }\n\
         \"z.kind\" = { choices = [\"p\", \"q\", \"r\"] }",
    )
    .unwrap();
    assert_eq!(sweep.space.parameters[1].key, "a.x");
    let text = |text: &str| Value::Text(text.into());
    let sample = |kind: &str| Sample::from([("z.kind".to_string(), text(kind))]);
    assert!(sweep.space.has(&sample("r")) && !sweep.space.has(&sample("p")));
    let mut full = sample("p");
    full.insert("a.x".into(), Value::Number(0.5));
    assert!(sweep.space.has(&full));
    full.insert("z.kind".into(), text("r"));
    assert!(!sweep.space.has(&full));
}

#[test]
fn impossible_spaces_are_named() {
    let cases = [
        ("\"a\" = { low = 1, high = 1 }", "no values from 1 to 1"),
        ("\"a\" = { low = 2.0 }", "s.toml: space.\"a\".high: it is missing"),
        ("\"a\" = { low = -1.0, high = 1.0, scale = \"log\" }", "logarithmic scale"),
        ("\"a\" = { low = 1.0, high = 2.0, scale = \"log\", step = 0.5 }", "equal steps"),
        ("\"a\" = { low = 1, high = 9, step = 0 }", "no step of 0 fits"),
        ("\"a\" = { choices = [1, 2, 1] }", "1 is there twice"),
        ("\"a\" = { choices = [1] }", "1 choices"),
        ("\"a\" = { choices = [1, 2], low = 1 }", "choices have no order"),
        ("\"a\" = { low = \"1h\", high = \"2h\" }", "`1h` is not a number"),
        ("\"a\" = { low = 0.0, high = inf }", "beyond what a range may have"),
        ("\"a\" = { low = 0.0, high = nan }", "beyond what a range may have"),
        ("\"a\" = { low = 0, high = 9, lo = 3 }", "did you mean `low`?"),
        ("\"a\" = { low = 0, high = 9, when = { b = 1 } }\n\"b\" = { choices = [2, 3] }", "`b` is never 1"),
        (
            "\"a\" = { low = 0, high = 9, when = { bb = 1 } }\n\"b\" = { choices = [1, 3] }",
            "did you mean `b`?",
        ),
        (
            "\"a\" = { low = 0, high = 9, when = { b = 1 } }\n\"b\" = { low = 0, high = 9, when = { a = 1 } }",
            "wait for each other",
        ),
        ("\"a\" = { low = 0, high = 9, when = { a = 1 } }", "its own condition"),
        ("optimizer.rate = { low = 0.0, high = 1.0 }", "\"optimizer.rate\" = {"),
        ("", "no key is varied"),
    ];
    for (lines, expected) in cases {
        let error = space(lines).expect_err(lines).to_string();
        assert!(error.contains(expected), "{lines}: {error}");
        assert!(error.contains("hint: "), "{lines}: {error}");
    }
}

#[test]
fn what_else_is_impossible_is_named() {
    let key = "[space]\n\"a\" = { low = 0.0, high = 1.0 }\n";
    let cases = [
        (format!("job = \"j\"\n{key}"), "nothing says when the sweep ends"),
        (format!("job = \"j\"\n{key}[budget]\nmoney = \"$3\"\n"), "what a worker costs"),
        (format!("job = \"j\"\n{key}[budget]\ntrials = 0\n"), "0 trials"),
        (format!("job = \"j\"\n{key}[budget]\nworker_hours = -1.0\n"), "above 0"),
        (format!("job = \"j\"\n{key}[sampler]\nkind = \"grid\"\n"), "add `points` or `step`"),
        (format!("job = \"j\"\nworkers = 0\n{key}[budget]\ntrials = 1\n"), "0 workers"),
        (format!("job = \"j\"\n[set]\na = 1\n{key}[budget]\ntrials = 1\n"), "is varied, too"),
        (format!("{HEAD}{key}[scheduler]\nkind = \"asha\"\nreduction = 1\n"), "one trial in 1 goes on"),
        (format!("{HEAD}{key}[scheduler]\nkind = \"asha\"\nminimum = 0\n"), "a rung of length 0"),
        (
            format!("{HEAD}{key}[scheduler]\nkind = \"asha\"\nminimum = 5\nmaximum = 3\n"),
            "less than the first rung",
        ),
        (format!("{HEAD}{key}[scheduler]\nkind = \"asah\"\n"), "did you mean `asha`?"),
        (format!("{HEAD}{key}[sampler]\nkind = \"random\"\nstartup_trials = 3\n"), "only `tpe`"),
        (format!("{HEAD}trails = 3\n{key}"), "did you mean `trials`?"),
    ];
    for (text, expected) in cases {
        let error = refusal(&text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}
