//! What the README and the pages of `docs/` show works: commands are understood, those of the README and the tour run,
//! examples are read.

use std::fs;
use std::path::{Path, PathBuf};

use bellwether_core::record::Line;

use crate::harness::Scene;
use crate::plan::PRICES;
use crate::predict::profile;

/// The folder of the project.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The pages whose commands are run.
const RUN: [&str; 2] = ["README.md", "docs/tour.md"];

/// Commands of these that are not run here, by their first words, and why.
const NOT_RUN: [(&str, &str); 19] = [
    ("cargo xtask test", "it runs this"),
    ("cargo xtask wheel", "it builds the command again; see python/tests/test_wheel.py"),
    ("pip install", "it takes Python; see python/tests/test_wheel.py"),
    ("bellwether run examples/python", "it takes PyTorch; see python/tests/test_torch_digits.py"),
    ("bellwether profile examples/digits.toml", "measures for up to a minute; see `profile`"),
    ("bellwether federate examples/federation-partial.toml --optimise", "looks for long; see `federate`"),
    ("bellwether sweep examples/sweep/digits.toml --plot", "trains 27 trials; see `sweep`"),
    ("bellwether nas", "trains six supernets; see `nas`"),
    ("bellwether watch", "needs a run that goes on; see `jobs`"),
    ("bellwether scale", "needs a run that goes on; see `random_schedule`"),
    ("bellwether stop", "needs a run that goes on; see `coordinator`"),
    ("bellwether resume digits-1", "that run has ended; see `one_world`"),
    ("bellwether rm digits-1", "later commands read that run; see `one_world`"),
    ("bellwether run examples/digits.toml --listen", "needs another machine; see `by_hand`"),
    ("bellwether worker", "needs another machine; see `by_hand`"),
    ("bellwether serve", "goes on until it is stopped; see `served`"),
    ("bellwether dashboard", "needs a daemon; see `served`"),
    ("bellwether submit", "needs a daemon; see `served`"),
    ("bellwether policy", "needs a daemon; see `served`"),
];

/// One block of a page that stands between fences.
struct Block {
    language: String,
    text: String,
}

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The README and all pages of `docs/`, by name.
fn pages() -> Vec<(String, String)> {
    let folder = fs::read_dir(Path::new(ROOT).join("docs")).expect("there are pages").flatten();
    let names = folder.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    names.push("README.md".into());
    names.sort();
    names.into_iter().map(|name| (name.clone(), page(&name))).collect()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut parts = page.split("\n```");
    let mut blocks = Vec::new();
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap_or((block, ""));
        blocks.push(Block { language: language.into(), text: text.into() });
    }
    blocks
}

/// The lines of a block as a shell reads them: those that end with `\` go on.
fn lines(text: &str) -> Vec<String> {
    text.replace("\\\n", " ")
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// The words of a command as a shell reads them, up to a comment or a pipe.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#' | '|', None) if word.is_none() => return words,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The commands that a page shows in its blocks: those of a shell, and those after a prompt.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for block in blocks(page) {
        let lines = lines(&block.text);
        match &*block.language {
            "sh" => commands.extend(lines),
            _ => commands.extend(lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned)),
        }
    }
    let page = page.replace("\\\n", " ");
    let indented = |line: &&str| line.starts_with("    bellwether ");
    commands.extend(page.lines().filter(indented).map(|line| line.trim().to_owned()));
    commands.into_iter().map(|command| command.replace("cargo run --release -- ", "bellwether ")).collect()
}

#[test]
fn every_command_of_the_pages_is_understood() {
    let scene = Scene::new("");
    let mut understood = 0;
    for (name, page) in pages() {
        for command in commands(&page) {
            let words = words(&command);
            let Some(("bellwether", arguments)) = words.split_first().map(|(first, rest)| (&**first, rest))
            else {
                continue;
            };
            // What stands before `--help` is read first, and is met with an error if it is not known.
            let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            // What stands behind `--` is a script's.
            let end = arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len());
            arguments.insert(end, "--help");
            let ended = scene.call(&arguments);
            assert_eq!(ended.code, Some(0), "{name}: {command}\n{}", ended.stderr);
            understood += 1;
        }
    }
    assert!(understood > 80, "{understood} commands were found");
}

/// A folder in which these commands find what they name.
fn scene() -> Scene {
    let scene = Scene::new("");
    for folder in ["examples", "data"] {
        let there = PathBuf::from(ROOT).join(folder).canonicalize().expect("the project has it");
        std::os::unix::fs::symlink(there, scene.path(folder)).expect("the test's folder can be written");
    }
    for name in ["digits.json", "job.json", "sizes.json", "v100.json"] {
        scene.write(name, profile().to_string());
    }
    scene.write("measured.csv", "workers,batch,step_s\n1,64,0.64\n2,64,0.34\n4,64,0.19\n");
    let head = "job_id,submit_time,num_gpu,duration,model,min_gpu,max_gpu,work";
    scene.write("jobs.csv", format!("{head}\na,0,1,,measured,1,8,6400\n"));
    scene.write("prices.toml", PRICES);
    let trace = page("data/itp-traces/cluster01.csv");
    scene.write("trace.csv", trace.lines().take(300).fold(String::new(), |text, line| text + line + "\n"));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, page("data/traces/pytorch-ddp-gloo.json").as_bytes())
        .expect("memory takes it");
    scene.write("trace.json.gz", packed.finish().expect("memory takes it"));
    scene
}

#[test]
fn the_commands_of_the_readme_and_the_tour_run() {
    let scene = scene();
    let commands: Vec<String> = RUN.iter().flat_map(|name| commands(&page(name))).collect();
    for (first, why) in NOT_RUN {
        assert!(commands.iter().any(|command| command.starts_with(first)), "`{first}` ({why}) is gone");
    }
    for command in commands {
        if NOT_RUN.iter().any(|(first, _)| command.starts_with(first)) {
            continue;
        }
        let words = words(&command);
        assert_eq!(words[0], "bellwether", "`{command}` cannot be run here");
        // `--watch` goes on; once is enough.
        let arguments: Vec<&str> =
            words[1..].iter().map(String::as_str).filter(|word| *word != "--watch").collect();
        let ended = scene.call(&arguments);
        // No plan may be good enough for these prices, which is an answer too.
        let may_say_no = arguments[0] == "plan" && ended.code == Some(1);
        assert!(may_say_no || ended.code == Some(0), "`{command}`: {ended:?}");
    }
}

#[test]
fn the_examples_of_the_pages_are_read() {
    let scene = scene();
    let block = |name: &str, language: &str| {
        let blocks = blocks(&page(name));
        let of_language = blocks.into_iter().find(|block| block.language == language);
        of_language.unwrap_or_else(|| panic!("{name} has no {language}")).text
    };
    let read = |arguments: &[&str]| {
        let ended = scene.call(arguments);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    };
    scene.write("kernels.toml", block("docs/place.md", "toml"));
    read(&["place", "kernels.toml", "--gpu", "v100"]);
    // The page's machines are of another kind than the profile's.
    scene.write("catalog.toml", block("docs/plan.md", "toml"));
    read(&["plan", "job.json", "--catalog", "catalog.toml", "--steps", "1000", "--transient"]);
    let verified = format!("{}\n{}", block("docs/verification.md", "toml"), block("docs/tour.md", "toml"));
    scene.write("verified.toml", verified);
    read(&["run", "verified.toml", "--steps", "2", "--workers", "2"]);
    let line: Line = serde_json::from_str(&block("docs/autoscale.md", "json")).expect("a line of a journal");
    assert!(line.time_s > 0.0);
}

#[test]
fn words_are_those_of_a_shell() {
    assert_eq!(words("a  --b='c d' \"e'f\"g # h"), ["a", "--b=c d", "e'fg"]);
    assert_eq!(words("a b#c '' | d"), ["a", "b#c", ""]);
}
