//! The checks that a job file must pass, beyond its shape.

use std::collections::BTreeSet;

use super::ensure::{Check, ensure};
use super::{
    CustomOptions, Data, Feature, Goodput, Job, Mode, Model, Optimizer, RateRule, Reduce, SCHEDULE_TABLE_MAX,
    Schedule, Shards, checkpoint, sharding, stop, verify,
};
use crate::error::InputError;

/// Most seconds that a stage of a worker's start may take: a week.
const STAGE_MAX_S: f64 = 604_800.0;

fn share(key: &str, value: f64) -> Check {
    ensure(
        (0.0..1.0).contains(&value),
        key,
        format!("{value} is not in 0…1 (1 excluded)"),
        "write a share such as 0.2",
    )
}

fn positive(key: &str, value: f64) -> Check {
    ensure(value.is_finite() && value > 0.0, key, format!("{value} is not a positive number"), "")
}

fn not_negative(key: &str, value: f64) -> Check {
    ensure(value.is_finite() && value >= 0.0, key, format!("{value} is negative or not finite"), "")
}

/// What [`is_name`] accepts.
const NAME: &str = "use at most 100 letters, digits, `-`, `_` and `.`, not starting with `.`";

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=100).contains(&text.len()) && !text.starts_with('.') && text.chars().all(is_part)
}

fn options(key: &str, options: &CustomOptions) -> Check {
    match options.lost() {
        Some(name) => Err(InputError::new(format!("{key}.{name}"), "is not a finite number")),
        None => Ok(()),
    }
}

fn initial_weights(job: &Job) -> Check {
    let is_script = matches!(job.model, Model::Python { .. });
    ensure(
        job.initial_weights.is_none() || !is_script,
        "initial_weights",
        "the model of a script begins with the weights that the script gives it",
        "load them in the script",
    )
}

fn python(model: &Model) -> Check {
    let Model::Python { script, threads, environment, stage_allowance, .. } = model else { return Ok(()) };
    ensure(script.as_os_str() != "", "model.script", "no script is named", "write script = \"train.py\"")?;
    if let Some(allowance) = stage_allowance {
        ensure(
            (1.0..=STAGE_MAX_S).contains(&allowance.get()),
            "model.stage_allowance",
            format!("{allowance} is not in 1s…7d"),
            "write how long importing, building or compiling may take, for example \"20min\"",
        )?;
    }
    let bad = |text: &str| text.contains('\0');
    for (name, value) in environment {
        ensure(
            !(name.is_empty() || name.contains('=') || bad(name) || bad(value)),
            "model.environment",
            format!("{name:?} cannot be a variable, or cannot have its value"),
            "write NAME = \"VALUE\"",
        )?;
    }
    ensure((1..=1024).contains(threads), "model.threads", format!("{threads} is not in 1…1024"), "")
}

pub(super) fn job(job: &Job) -> Check {
    ensure(is_name(&job.name), "name", format!("`{}` cannot name a folder", job.name), NAME)?;
    let lengths = usize::from(job.steps.is_some()) + usize::from(job.epochs.is_some());
    ensure(
        lengths == 1,
        "steps",
        format!("{lengths} of `steps` and `epochs` are given"),
        "give exactly one of them",
    )?;
    ensure(
        job.steps.or(job.epochs).unwrap_or(0) > 0,
        if job.steps.is_some() { "steps" } else { "epochs" },
        "must be at least 1",
        "",
    )?;
    batch(job)?;
    if let Mode::Goodput(goodput) = &job.mode {
        moving_batch(job, goodput)?;
    }
    initial_weights(job)?;
    model(&job.model)?;
    data(&job.data)?;
    pairing(job)?;
    optimizer(&job.optimizer)?;
    ensure(
        !job.optimizer.is_own() || matches!(job.model, Model::Python { .. } | Model::Custom { .. }),
        "optimizer.kind",
        "this model brings no update rule of its own",
        "use \"sgd\", \"adam\" or \"adamw\"; `own` is for models in Python, and for custom ones",
    )?;
    sync(job)?;
    Feature::asked(job).try_for_each(|feature| feature.check(job))?;
    verify::check(job)?;
    sharding::check(job)?;
    stop::check(job)?;
    schedule(&job.schedule)?;
    checkpoint::check(job)
}

fn batch(job: &Job) -> Check {
    let (size, nodes) = (job.batch.size, u64::from(job.batch.virtual_nodes));
    ensure((1..=1 << 16).contains(&nodes), "batch.virtual_nodes", format!("{nodes} is not in 1…65536"), "")?;
    ensure((1..=1 << 24).contains(&size), "batch.size", format!("{size} is not in 1…16777216"), "")?;
    let (below, above) = ((size / nodes).max(1) * nodes, size.div_ceil(nodes) * nodes);
    ensure(
        size.is_multiple_of(nodes),
        "batch.size",
        format!("{size} samples do not divide into {nodes} equal virtual nodes"),
        &if below == above {
            format!("use a batch of {above}, or other virtual nodes")
        } else {
            format!("use a batch of {below} or {above}, or other virtual nodes")
        },
    )?;
    ensure(
        u64::from(job.workers.max) <= nodes,
        "workers",
        format!("{} workers cannot share {nodes} virtual nodes", job.workers.max),
        &format!(
            "use at most {nodes} workers, or raise batch.virtual_nodes (this changes the job's identity)"
        ),
    )
}

fn sync(job: &Job) -> Check {
    let sync = &job.sync;
    let (nodes, part) = (job.batch.virtual_nodes, sync.nodes_per_update);
    ensure(
        part >= 1 && nodes.is_multiple_of(part),
        "sync.nodes_per_update",
        format!("{part} virtual nodes per update do not divide the {nodes} of the batch"),
        "an asynchronous update is the gradient of that many virtual nodes: use a divisor, such as 1",
    )?;
    ensure(
        (1..=1024).contains(&sync.servers),
        "sync.servers",
        format!("{} is not in 1…1024", sync.servers),
        "synchronous training among the workers uses none of them",
    )?;
    ensure(
        sync.reduce != Reduce::Servers || part.is_power_of_two() || part == nodes,
        "sync.nodes_per_update",
        format!("gradients of {part} virtual nodes do not form a part of the sum that all-reduce makes"),
        "with reduce = \"servers\" use a power of two, or all virtual nodes",
    )?;
    positive("sync.outer_learning_rate", sync.outer_learning_rate)?;
    share("sync.outer_momentum", sync.outer_momentum)?;
    ensure(
        !sync.has_outer_steps() || sync.reduce == Reduce::AllReduce,
        "sync.reduce",
        "what virtual nodes move in local steps is summed among the workers",
        "use \"all-reduce\" with sync.policy = \"local:H\"",
    )
}

fn moving_batch(job: &Job, goodput: &Goodput) -> Check {
    let (size, nodes, most) = (job.batch.size, job.batch.virtual_nodes, goodput.max_batch);
    ensure(
        nodes >= 2,
        "batch.virtual_nodes",
        "one virtual node cannot tell how noisy its gradient is",
        "mode `goodput` measures the noise between virtual nodes: use 2 or more",
    )?;
    ensure(
        most >= size && most <= 1 << 24,
        "mode.goodput.max_batch",
        format!("{most} is not in {size}…16777216"),
        "the batch grows from batch.size to mode.goodput.max_batch at most",
    )?;
    let adaptive = !matches!(job.optimizer, Optimizer::Sgd { .. });
    ensure(
        !adaptive || matches!(goodput.rule, None | Some(RateRule::SquareRoot)),
        "mode.goodput.rule",
        "AdaScale and the linear rule are for SGD: Adam divides by the noise already",
        "use \"square-root\", or leave the rule out",
    )?;
    let largest = goodput.max_accumulation(size);
    for (step, factor) in &goodput.schedule {
        ensure(
            (1..=largest).contains(factor),
            "mode.goodput.schedule",
            format!("at step {step}: {factor} times the batch of {size} is not in {size}…{most}"),
            "a schedule lists [step, factor] pairs; raise mode.goodput.max_batch, or lower the factor",
        )?;
    }
    ensure(
        goodput.schedule.windows(2).all(|pair| pair[0].0 < pair[1].0),
        "mode.goodput.schedule",
        "the steps do not rise",
        "sort them, each step once",
    )
}

fn model(model: &Model) -> Check {
    let width = |key: &str, value: usize| {
        ensure((1..=1 << 16).contains(&value), key, format!("{value} is not in 1…65536"), "")
    };
    match model {
        Model::Mlp { hidden, dropout } => {
            hidden.iter().try_for_each(|w| width("model.hidden", *w))?;
            share("model.dropout", *dropout)
        }
        Model::Convnet { filters, hidden } => {
            filters.iter().try_for_each(|w| width("model.filters", *w))?;
            hidden.iter().try_for_each(|w| width("model.hidden", *w))
        }
        Model::Resnet { blocks, width: w } => {
            ensure((1..=200).contains(blocks), "model.blocks", format!("{blocks} is not in 1…200"), "")?;
            width("model.width", *w)
        }
        Model::Cell(cell) => cell.check(),
        Model::Transformer { context, width: w, layers, heads, dropout } => {
            width("model.context", *context)?;
            width("model.width", *w)?;
            ensure((1..=1000).contains(layers), "model.layers", format!("{layers} is not in 1…1000"), "")?;
            ensure(
                *heads >= 1 && w.is_multiple_of(*heads),
                "model.heads",
                format!("{heads} heads do not divide a width of {w}"),
                "choose a number of heads that divides model.width",
            )?;
            share("model.dropout", *dropout)
        }
        Model::Custom { name, options: own } => {
            ensure(is_name(name), "model.name", format!("`{name}` cannot name a model"), NAME)?;
            options("model.options", own)
        }
        Model::Python { .. } => python(model),
        Model::Synthetic { spread, parameters, layers, .. } => {
            not_negative("model.spread", *spread)?;
            ensure(
                *layers >= 1 && u64::from(*layers) <= parameters.0 / 4,
                "model.layers",
                format!("{layers} layers do not fit in {parameters} of parameters"),
                "use at least 1, and no more than a quarter of model.parameters",
            )?;
            ensure(
                (4..=1 << 36).contains(&parameters.0),
                "model.parameters",
                format!("{parameters} is not in 4B…64GiB"),
                "",
            )
        }
    }
}

fn teacher([samples, features, classes]: [u64; 3], noise: f64, held_out: f64) -> Check {
    share("data.held_out", held_out)?;
    share("data.noise", noise)?;
    ensure((1..=1 << 32).contains(&samples), "data.samples", format!("{samples} is not in 1…2^32"), "")?;
    ensure((1..=1 << 16).contains(&features), "data.features", format!("{features} is not in 1…65536"), "")?;
    ensure((2..=1 << 12).contains(&classes), "data.classes", format!("{classes} is not in 2…4096"), "")
}

fn data(data: &Data) -> Check {
    match data {
        Data::Digits { held_out, .. }
        | Data::Idx { held_out, .. }
        | Data::Cifar10 { held_out, .. }
        | Data::Csv { held_out, .. }
        | Data::Text { held_out, .. }
        | Data::Tokens { held_out, .. }
        | Data::Records { held_out, .. } => share("data.held_out", *held_out)?,
        Data::Teacher { samples, features, classes, noise, held_out, .. } => {
            teacher([*samples, *features as u64, *classes as u64], *noise, *held_out)?;
        }
        Data::Custom { options: own, .. } => options("data.options", own)?,
        Data::Python { training_samples, .. } => ensure(
            (1..=1 << 40).contains(training_samples),
            "data.training_samples",
            format!("{training_samples} is not in 1…2^40"),
            "",
        )?,
        Data::Indices { samples, .. } => {
            ensure(
                (1..=1 << 40).contains(samples),
                "data.samples",
                format!("{samples} is not in 1…2^40"),
                "",
            )?;
        }
    }
    match data {
        Data::Csv { path, classes, .. } => {
            named("data.path", path)?;
            class_names(classes)
        }
        Data::Idx { images, labels, test_images, test_labels, .. } => {
            named("data.images", images)?;
            named("data.labels", labels)?;
            ensure(
                test_images.is_some() == test_labels.is_some(),
                "data.test_labels",
                "test_images and test_labels must be given together",
                "",
            )
        }
        Data::Cifar10 { files, .. } => ensure(!files.is_empty(), "data.files", "no file is named", ""),
        Data::Text { path, .. } => named("data.path", path),
        Data::Tokens { path, vocabulary, .. } => {
            named("data.path", path)?;
            ensure(
                (2..=1 << 20).contains(vocabulary),
                "data.vocabulary",
                format!("{vocabulary} is not in 2…1048576"),
                "write how many tokens there are, one more than the largest",
            )
        }
        Data::Records { path, shape, .. } => {
            named("data.path", path)?;
            ensure(
                shape.is_none_or(|sizes| sizes.iter().all(|size| (1..=1 << 16).contains(size))),
                "data.shape",
                "a size is not in 1…65536",
                "write channels, height and width, for example [3, 32, 32]",
            )
        }
        _ => Ok(()),
    }
}

fn class_names(classes: &[String]) -> Check {
    let different = classes.iter().collect::<BTreeSet<_>>().len();
    ensure(
        classes.is_empty() || (2..=1 << 12).contains(&classes.len()),
        "data.classes",
        format!("{} is not in 2…4096", classes.len()),
        "leave it out where labels are numbers",
    )?;
    ensure(different == classes.len(), "data.classes", "a name is there twice", "name each class once")
}

fn named(key: &str, files: &Shards) -> Check {
    ensure(!files.paths().is_empty(), key, "no file is named", "name a file, a pattern, or a list of them")
}

/// Which model can learn which data.
fn pairing(job: &Job) -> Check {
    let fits = match (&job.model, &job.data) {
        // What it can learn is known to the program that brings it.
        (Model::Custom { .. }, _) => true,
        (Model::Python { .. }, data) => matches!(data, Data::Python { .. }),
        (_, Data::Python { .. }) => false,
        (_, Data::Custom { .. }) => false,
        (Model::Synthetic { .. }, Data::Indices { .. }) => true,
        (Model::Synthetic { .. }, _) | (_, Data::Indices { .. }) => false,
        (Model::Transformer { .. }, Data::Text { .. } | Data::Tokens { .. }) => true,
        (Model::Transformer { .. }, _) | (_, Data::Text { .. } | Data::Tokens { .. }) => false,
        (Model::Convnet { .. } | Model::Resnet { .. } | Model::Cell(_), Data::Csv { .. }) => false,
        (Model::Convnet { .. } | Model::Resnet { .. } | Model::Cell(_), Data::Teacher { features, .. }) => {
            features.isqrt().pow(2) == *features
        }
        _ => true,
    };
    ensure(
        fits,
        "data.kind",
        "this model cannot learn this kind of data",
        "mlp learns digits, idx, cifar10, csv, records and teacher; convnet, resnet and cell learn the images among them, \
         a square number of a teacher's features included; \
         transformer learns text and tokens; synthetic takes indices; only a custom model learns custom data, and only a python \
         model that of its script",
    )
}

fn optimizer(optimizer: &Optimizer) -> Check {
    let clip = optimizer.clip_norm();
    clip.map_or(Ok(()), |norm| positive("optimizer.clip_norm", norm))?;
    let (rate, decay) = match optimizer {
        Optimizer::Sgd { learning_rate, momentum, nesterov, weight_decay, .. } => {
            share("optimizer.momentum", *momentum)?;
            ensure(
                !nesterov || *momentum > 0.0,
                "optimizer.nesterov",
                "Nesterov's look-ahead needs momentum",
                "set optimizer.momentum, for example to 0.9",
            )?;
            (learning_rate, weight_decay)
        }
        Optimizer::Adam { learning_rate, betas, epsilon, weight_decay, .. }
        | Optimizer::Adamw { learning_rate, betas, epsilon, weight_decay, .. } => {
            share("optimizer.betas", betas[0])?;
            share("optimizer.betas", betas[1])?;
            positive("optimizer.epsilon", *epsilon)?;
            (learning_rate, weight_decay)
        }
        Optimizer::Own { name, slots, .. } => return own_rule(name, slots),
    };
    positive("optimizer.learning_rate", *rate)?;
    not_negative("optimizer.weight_decay", *decay)
}

fn own_rule(name: &str, slots: &[String]) -> Check {
    ensure(is_name(name), "optimizer.name", format!("`{name}` cannot name a rule"), NAME)?;
    ensure(slots.len() <= 16, "optimizer.slots", format!("{} are more than 16", slots.len()), "")?;
    if let Some(slot) = slots.iter().find(|slot| !is_name(slot)) {
        return Err(InputError::new("optimizer.slots", format!("`{slot}` cannot name a slot")).hint(NAME));
    }
    let different = slots.iter().collect::<BTreeSet<_>>().len();
    ensure(different == slots.len(), "optimizer.slots", "a name is there twice", "name each slot once")
}

fn schedule_table(factors: &[f64]) -> Check {
    ensure(
        (1..=SCHEDULE_TABLE_MAX).contains(&factors.len()),
        "schedule.factors",
        format!("{} factors are not in 1…{SCHEDULE_TABLE_MAX}", factors.len()),
        "a longer schedule needs a rule of the script's own",
    )?;
    factors.iter().try_for_each(|factor| not_negative("schedule.factors", *factor))
}

fn schedule(schedule: &Schedule) -> Check {
    match schedule {
        Schedule::Constant { .. } => Ok(()),
        Schedule::Step { at, factor, .. } => {
            positive("schedule.factor", *factor)?;
            ensure(
                at.windows(2).all(|w| w[0] < w[1]),
                "schedule.at",
                "the steps do not rise",
                "sort them, each once",
            )
        }
        Schedule::Cosine { floor, .. } => ensure(
            (0.0..=1.0).contains(floor),
            "schedule.floor",
            format!("{floor} is not in 0…1"),
            "the rate falls to this share of its start",
        ),
        Schedule::Table { factors } => schedule_table(factors),
    }
}
