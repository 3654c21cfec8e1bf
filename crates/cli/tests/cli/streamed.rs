//! Samples that stay in their files: the same bits as in memory, less memory, and no sample of a file that has changed.

use std::fs::{self, File};
use std::io::Write;

use bellwether_core::record::Summary;

use crate::harness::Scene;

fn job(steps: u32, model: &str, data: &str) -> String {
    format!(
        "name = \"job\"\nseed = 3\nsteps = {steps}\n[model]\n{model}\n[data]\n{data}\n[batch]\nsize = 32\n\
         virtual_nodes = 8\n[optimizer]\nkind = \"adam\"\nlearning_rate = 0.01\n[evaluation]\nevery_steps = 25\n\
         [checkpoint]\nevery_steps = 20\n"
    )
}

const MLP: &str = "kind = \"mlp\"\nhidden = [16]";

/// Lines of a table, the same ones wherever they are asked for.
fn lines(rows: std::ops::Range<u32>) -> String {
    let title = "a,b,kind\n".to_owned();
    rows.fold(title, |text, row| {
        let (a, b) = (row * 7919 % 1000, row * 104_729 % 777);
        text + &format!("{a}.25,{b},{}\n", ["low", "high"][usize::from(a * 2 > b * 3)])
    })
}

fn table(path: &str, streamed: bool) -> String {
    format!(
        "kind = \"csv\"\npath = \"{path}\"\nheader = true\nlabel = \"kind\"\nclasses = [\"low\", \"high\"]\n\
         normalise = \"standard\"\nstreamed = {streamed}"
    )
}

#[track_caller]
fn finished(summary: Summary) -> Summary {
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    summary
}

/// Trains on these files.
#[track_caller]
fn trained(files: &[(&str, Vec<u8>)], job: &str, workers: &str) -> Summary {
    let scene = Scene::new(job);
    files.iter().for_each(|(name, bytes)| {
        scene.write(name, bytes);
    });
    finished(scene.train(&["--workers", workers]).summary())
}

#[test]
fn shards_train_the_bits_of_one_file_when_a_worker_is_killed_too() {
    let whole = ("whole.csv", lines(0..900).into_bytes());
    let expected = trained(&[whole], &job(300, MLP, &table("whole.csv", false)), "1");
    assert_eq!(expected.data_wait, None, "what is in memory is not waited for");
    let scene = Scene::new(&job(300, MLP, &table("shard-*.csv", true)));
    for (number, rows) in [0..100, 100..650, 650..900].into_iter().enumerate() {
        scene.write(&format!("shard-{number}.csv"), lines(rows));
    }
    let alone = finished(scene.train(&["--workers", "1"]).summary());
    assert_eq!(alone.params_digest, expected.params_digest);
    assert_eq!(alone.held_out_loss, expected.held_out_loss);
    assert!(alone.data_wait.is_some(), "the first samples are always waited for: {alone:?}");
    assert!((1..=300).contains(&alone.data_waits), "{alone:?}");
    let again = Scene::new(&fs::read_to_string(scene.path("job.toml")).expect("it was written"));
    for number in 0..3 {
        let name = format!("shard-{number}.csv");
        again.write(&name, fs::read(scene.path(&name)).expect("it was written"));
    }
    let mut run = again.train(&["--workers", "3"]);
    assert!(run.reach(60), "the run is over before a worker could be killed");
    let (_, process) = again.workers()[1];
    again.kill_worker(process);
    let disturbed = finished(run.summary());
    assert_eq!(disturbed.params_digest, expected.params_digest);
    assert_eq!(disturbed.crashes.len(), 1, "{disturbed:?}");
    again.audit();
}

/// A member of a tar archive (ustar).
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    bytes[148..156].fill(b' ');
    bytes[156] = b'0';
    bytes[257..263].copy_from_slice(b"ustar\0");
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    bytes[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn archives_of_records_and_files_of_tokens_train() {
    let mut archive = Vec::new();
    for number in 0..200u32 {
        let pixels: Vec<u8> = (0..64).map(|place| (number * 31 % 2 * 90 + place) as u8).collect();
        archive.extend(member(&format!("{number:04}.bin"), &pixels));
        archive.extend(member(&format!("{number:04}.cls"), (number * 31 % 2).to_string().as_bytes()));
    }
    let tokens: Vec<u8> =
        (0..4000u32).flat_map(|place| ((place * place % 600) as u16).to_le_bytes()).collect();
    let records = "kind = \"records\"\npath = [\"a.tar\"]\nshape = [1, 8, 8]";
    let numbers = "kind = \"tokens\"\npath = \"t.bin\"\nvocabulary = 600";
    let transformer = "kind = \"transformer\"\ncontext = 16\nwidth = 16\nlayers = 1\nheads = 2";
    for (file, model, data) in
        [(("a.tar", archive), "kind = \"convnet\"", records), (("t.bin", tokens), transformer, numbers)]
    {
        let digest = |streamed| {
            let job = job(12, model, &format!("{data}\nstreamed = {streamed}"));
            trained(std::slice::from_ref(&file), &job, "2").params_digest
        };
        assert_eq!(digest(true), digest(false), "{data}");
    }
}

/// Black images without a byte of them on the disk.
fn images(scene: &Scene, count: u32) {
    let write = |name: &str, sizes: &[u32], header: u8| {
        let path = scene.path(name);
        let mut file = File::create(path).expect("the test's folder can be written");
        let sizes_bytes: Vec<u8> = sizes.iter().flat_map(|size| size.to_be_bytes()).collect();
        file.write_all(&[&[0, 0, 8, header], &sizes_bytes[..]].concat())
            .expect("the test's folder can be written");
        let values: u64 = sizes.iter().map(|size| u64::from(*size)).product();
        file.set_len(4 + sizes_bytes.len() as u64 + values).expect("a file may have a hole");
    };
    write("images", &[count, 32, 32], 3);
    write("labels", &[count], 1);
}

#[test]
fn a_set_trains_in_much_less_memory_than_it_has() {
    let peak = |streamed: bool| {
        let data = format!("kind = \"idx\"\nimages = \"images\"\nlabels = \"labels\"\nstreamed = {streamed}");
        let scene = Scene::new(&job(30, MLP, &format!("{data}\nheld_out = 0.001")));
        images(&scene, 200_000);
        let summary = finished(scene.train(&["--workers", "2"]).summary());
        (summary.peak_resident_bytes >> 20, summary.params_digest)
    };
    let ((streamed, one), (in_memory, other)) = (peak(true), peak(false));
    assert_eq!(one, other);
    // 195 MiB of images.
    assert!(in_memory > 195 && streamed < 100, "{streamed} MiB from files, {in_memory} MiB in memory");
}

#[test]
fn a_shard_that_changes_ends_the_run_by_its_name() {
    let scene = Scene::new(&job(1_000_000, MLP, &table("shard-*.csv", true)));
    scene.write("shard-0.csv", lines(0..400));
    let shard = scene.write("shard-1.csv", lines(400..800));
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(30), "the run is over before a shard could change");
    let file = File::options().write(true).open(&shard).expect("it was written");
    file.set_len(2000).expect("it can be cut");
    let ended = run.end();
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    let told = format!("{}{}", ended.stdout, ended.stderr);
    assert!(told.contains("shard-1.csv: has changed while its samples were in use"), "{ended:?}");
}

#[test]
fn files_that_cannot_be_streamed_are_refused() {
    let scene = Scene::new("");
    scene.write("packed.csv", [0x1f, 0x8b, 8, 0, 0]);
    scene.write("odd.bin", [1, 0, 2]);
    let refused = |data: &str, words: &[&str]| {
        scene.write("job.toml", job(5, MLP, data));
        scene.call(&["run", "job.toml"]).refused_with(words);
    };
    refused(&table("packed.csv", true), &["packed.csv", "packed by gzip", "unpack it"]);
    refused(&table("none-*.csv", true), &["none-*.csv", "describes no file"]);
    refused("kind = \"csv\"\npath = []", &["data.path", "no file is named"]);
    refused("kind = \"csv\"\npath = 5", &["job.toml, line 7", "a path, or a list of paths"]);
    refused("kind = \"records\"\npath = \"odd.bin\"", &["odd.bin", "its member at byte 0", "unpack"]);
    let transformer = "kind = \"transformer\"\ncontext = 4\nwidth = 8\nlayers = 1\nheads = 1";
    scene.write("job.toml", job(5, transformer, "kind = \"tokens\"\npath = \"odd.bin\"\nvocabulary = 9"));
    scene.call(&["run", "job.toml"]).refused_with(&["odd.bin", "3 bytes", "data.token"]);
}
