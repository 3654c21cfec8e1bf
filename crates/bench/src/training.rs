//! `training`: examples per second of real models through the runtime with one worker, beside a plain
//! loop in one process over the same model.

use bellwether_runtime::order::mix;
use clap::Args;
use serde_json::json;

use super::overhead::WARM_UP;
use super::report::{Report, Row};
use super::statistics::{largest, mean, median, smallest};
use super::trial::Trial;
use super::{OutputArguments, plain, published};
use crate::failure::Failure;
use crate::folder::Folder;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(super) struct TrainingArguments {
    /// Models to train
    #[arg(long, value_name = "MODEL,…", value_delimiter = ',', value_parser = ["mlp", "convnet", "resnet", "transformer"],
          default_value = "mlp,convnet,resnet,transformer")]
    models: Vec<String>,
    /// Alternations between the runtime and the plain loop
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: u32,
    /// Seconds that each run should train
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

/// Least share of the plain loop's speed that the runtime may keep.
const BOUND: f64 = 0.97;

/// Virtual nodes of the second comparison, which has no bar: smaller micro-batches cost kernels time.
const MANY_NODES: u32 = 4;

/// A model of a comparison.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) model: &'static str,
    pub(super) data: &'static str,
    pub(super) batch: u64,
    /// Examples per second, roughly: decides how many steps are trained.
    pub(super) rough_examples_per_s: f64,
    /// Whether the bar applies.
    pub(super) bar: bool,
}

const IMAGES: &str = "kind = \"idx\"\nimages = \"FOLDER/images\"\nlabels = \"FOLDER/labels\"\nheld_out = 0.0";
const COLOURS: &str = "kind = \"cifar10\"\nfiles = [\"FOLDER/colours\"]\nheld_out = 0.0";
const TEXT: &str = "kind = \"text\"\npath = \"FOLDER/text\"\nheld_out = 0.0";

pub(super) const SHAPES: [Shape; 4] = [
    Shape {
        name: "mlp",
        model: "kind = \"mlp\"\nhidden = [256, 128]",
        data: IMAGES,
        batch: 64,
        rough_examples_per_s: 80_000.0,
        bar: false,
    },
    Shape {
        name: "convnet",
        model: "kind = \"convnet\"",
        data: IMAGES,
        batch: 64,
        rough_examples_per_s: 5_000.0,
        bar: true,
    },
    Shape {
        name: "resnet",
        model: "kind = \"resnet\"\nblocks = 3\nwidth = 16",
        data: COLOURS,
        batch: 32,
        rough_examples_per_s: 90.0,
        bar: true,
    },
    Shape {
        name: "transformer",
        model: "kind = \"transformer\"\ncontext = 64\nwidth = 128\nlayers = 4\nheads = 4",
        data: TEXT,
        batch: 16,
        rough_examples_per_s: 120.0,
        bar: true,
    },
];

pub(super) fn measure(arguments: &TrainingArguments, printer: &Printer) -> Result<Report, Failure> {
    let settings = json!({
        "models": arguments.models, "rounds": arguments.rounds, "seconds": arguments.seconds,
        "optimizer": "sgd", "data": "random bytes", "threads": 1,
    });
    let mut report = Report::begin("training", settings, published::TRAINING);
    let data = Folder::new("bench")?;
    write_data(&data)?;
    for shape in SHAPES.iter().filter(|shape| arguments.models.iter().any(|name| name == shape.name)) {
        let (mut plain, mut runtime, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            printer.note(format_args!("{}, round {} of {}", shape.name, round + 1, arguments.rounds));
            // Alternate who goes first.
            if round % 2 == 0 {
                plain.push(of_plain(shape, arguments, &data)?);
                runtime.push(of_runtime(shape, arguments, &data, 1)?);
                nodes.push(of_runtime(shape, arguments, &data, MANY_NODES)?);
            } else {
                nodes.push(of_runtime(shape, arguments, &data, MANY_NODES)?);
                runtime.push(of_runtime(shape, arguments, &data, 1)?);
                plain.push(of_plain(shape, arguments, &data)?);
            }
        }
        row(&mut report, shape, &plain, &runtime, &nodes);
    }
    report.note(format!(
        "One thread each; the faster half of the steps counts, on both sides. The ratio compares the two runs of a round; reported is its median over the rounds. The bar \
         is on one virtual node, where both sides compute the same micro-batch; with {MANY_NODES} virtual nodes on the \
         one worker, smaller micro-batches cost the kernels time, which is a price of virtual nodes and not of the runtime."
    ));
    Ok(report)
}

fn row(report: &mut Report, shape: &Shape, plain: &[f64], runtime: &[f64], nodes: &[f64]) {
    let against_plain = |of: &[f64]| of.iter().zip(plain).map(|(a, b)| a / b).collect::<Vec<f64>>();
    let ratios = against_plain(runtime);
    report.row(
        Row::new(shape.name)
            .with("rounds", ratios.len())
            .with("plain_examples_per_s", median(plain))
            .with("runtime_examples_per_s", median(runtime))
            .with("ratio_median", median(&ratios))
            .with("ratio_worst", smallest(&ratios))
            .with("ratio_best", largest(&ratios))
            .with(format!("ratio_with_{MANY_NODES}_nodes"), median(&against_plain(nodes)))
            .samples("plain_samples_examples_per_s", plain)
            .samples("runtime_samples_examples_per_s", runtime)
            .samples("ratio_samples", &ratios),
    );
    if shape.bar {
        let ratio = median(&ratios);
        report.bar(
            format!("{}: runtime over plain loop, at least", shape.name),
            ratio,
            BOUND,
            ratio >= BOUND,
        );
    }
}

/// A job that trains for about as many seconds.
pub(super) fn job(shape: &Shape, seconds: f64, data: &Folder, nodes: u32) -> String {
    let batch = shape.batch;
    let steps = ((shape.rough_examples_per_s * seconds / batch as f64).round() as u64).max(5);
    let (model, data) = (shape.model, shape.data.replace("FOLDER", &data.path().display().to_string()));
    format!(
        "name = \"bench\"\nseed = 1\nsteps = {steps}\nworkers = 1\n[model]\n{model}\n[data]\n{data}\n\
         [batch]\nsize = {batch}\nvirtual_nodes = {nodes}\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.01\n"
    )
}

/// Examples per second of steps that took this long. Left out are the first ones, and of the others the slower
/// half: on a machine with other work these tell how often the core was taken away.
pub(super) fn speed(durations_s: &[f64], batch: u64) -> f64 {
    let warm = (durations_s.len() as f64 * WARM_UP).ceil() as usize;
    let mut sorted = durations_s[warm.min(durations_s.len())..].to_vec();
    sorted.sort_by(f64::total_cmp);
    batch as f64 / mean(&sorted[..sorted.len().div_ceil(2)])
}

fn of_plain(shape: &Shape, arguments: &TrainingArguments, data: &Folder) -> Result<f64, Failure> {
    let samples = plain::run(&Folder::new("bench")?, &job(shape, arguments.seconds, data, 1), 1)?;
    let durations_s: Vec<f64> = samples.iter().map(|sample| sample[0]).collect();
    Ok(speed(&durations_s, shape.batch))
}

fn of_runtime(
    shape: &Shape,
    arguments: &TrainingArguments,
    data: &Folder,
    nodes: u32,
) -> Result<f64, Failure> {
    let trial = Trial::launch(Folder::new("bench")?, &job(shape, arguments.seconds, data, nodes), 1)?;
    let durations_s: Vec<f64> = trial.finish()?.iter().map(|step| step.duration_s).collect();
    Ok(speed(&durations_s, shape.batch))
}

/// Random bytes in the formats of real data; whole batches per epoch.
pub(super) fn write_data(folder: &Folder) -> Result<(), Failure> {
    let random = |count: usize, most: u64| (0..count as u64).map(move |i| (mix(i, 7) % most) as u8);
    let size = |number: u32| number.to_be_bytes();
    let count = 4096;
    let mut images = vec![0, 0, 8, 3];
    [count, 28, 28].into_iter().for_each(|number| images.extend(size(number)));
    images.extend(random(count as usize * 28 * 28, 256));
    let mut labels = vec![0, 0, 8, 1];
    labels.extend(size(count));
    labels.extend(random(count as usize, 10));
    let mut colours = Vec::new();
    for (record, label) in random(1024, 10).enumerate() {
        colours.push(label);
        colours.extend((0..3072).map(|i| mix(record as u64, i) as u8));
    }
    let text: Vec<u8> = random(64 * 16 * 50 + 1, 256).collect();
    folder.write("images", images)?;
    folder.write("labels", labels)?;
    folder.write("colours", colours)?;
    folder.write("text", text).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_steps_are_not_the_programs_fault() {
        assert!((speed(&[9.0, 0.5, 0.5, 3.0, 4.0], 8) - 16.0).abs() < 1e-9);
    }

    #[test]
    fn every_shape_can_be_built_from_the_data() {
        let folder = Folder::new("bench").unwrap();
        write_data(&folder).unwrap();
        for shape in SHAPES.iter().filter(|shape| shape.name != "resnet") {
            let job = bellwether_core::parse::job(&job(shape, 0.01, &folder, 1), shape.name, &[]).unwrap();
            let workload = bellwether_workloads::build(&job, &|path| std::fs::read(path)).unwrap();
            assert_eq!(workload.training_samples() % shape.batch, 0, "{}", shape.name);
        }
    }
}
