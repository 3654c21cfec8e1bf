//! Job files to begin with: every key that matters at first, each with a comment.

use std::fmt::Write;

use crate::data::Inspected;

/// Samples in a step where there are enough.
const BATCH: usize = 64;

/// Virtual nodes, and so the most workers.
const VIRTUAL_NODES: usize = 4;

/// Values beyond this are brought to one size.
const LARGE: f64 = 2.0;

/// The job file of a task that needs no file: the digits that ship with the program.
pub fn digits(name: &str) -> String {
    let data = "# The 8x8 digits that ship with the program; `bellwether init --data FILE.csv` is for your own data.\n\
                [data]\nkind = \"digits\"\n";
    job(name, data, 32, BATCH)
}

/// The job file for a table: `path` as it shall stand in the file.
pub fn table(name: &str, path: &str, table: &Inspected) -> String {
    let mut data = format!(
        "# {} samples of {} features{}.\n[data]\nkind = \"csv\"\npath = {}\n",
        table.samples,
        table.features,
        match table.classes.len() {
            0 => String::new(),
            classes => format!(", {classes} classes"),
        },
        quoted(path)
    );
    let _ = writeln!(data, "header = {}{:<10}# whether the first line names the columns", table.header, "");
    let _ = writeln!(data, "separator = {}{:<8}# between two fields", quoted(table.separator.name()), "");
    if !table.label_is_last || table.header {
        let _ = writeln!(data, "label = {}{:<8}# the column of the classes", quoted(&table.label), "");
    }
    if !table.classes.is_empty() {
        let names: Vec<String> = table.classes.iter().map(|class| quoted(class)).collect();
        let _ = writeln!(data, "classes = [{}]  # in the order of their numbers", names.join(", "));
    }
    let (low, high) = table.range;
    if low.abs().max(high.abs()) > LARGE {
        data.push_str("normalise = \"standard\"   # each feature gets mean 0 and deviation 1\n");
    }
    data.push_str(
        "held_out = 0.2           # this share is never trained on; it tells how good the model is\n",
    );
    for obstacle in &table.obstacles {
        let _ = writeln!(data, "# To mend first: {obstacle}.");
    }
    let training = (table.samples as f64 * 0.8) as usize;
    // A step has a tenth of the samples at most, and equal parts for all virtual nodes.
    let batch = (training / 10).next_power_of_two().clamp(VIRTUAL_NODES, BATCH);
    let width = if table.features > 64 { 128 } else { 32 };
    job(name, &data, width, batch)
}

fn job(name: &str, data: &str, width: usize, batch: usize) -> String {
    format!(
        "# A job for Bellwether: `bellwether run FILE` trains it. All keys: docs/job-file.md, `bellwether schema job`.\n\
         name = {name}\n\
         workers = \"1..{VIRTUAL_NODES}\"         # a number, or a range from which `run` chooses\n\
         epochs = 30              # passes over the training samples; or `steps`\n\
         seed = 0\n\
         \n\
         {data}\
         \n\
         [model]\n\
         kind = \"mlp\"             # mlp, convnet, resnet, cell, transformer, synthetic\n\
         hidden = [{width}]            # width of each hidden layer\n\
         \n\
         [batch]\n\
         size = {batch}                # samples per step, over all workers\n\
         virtual_nodes = {VIRTUAL_NODES}        # equal parts of it: at most this many workers\n\
         \n\
         [optimizer]\n\
         kind = \"adam\"            # sgd, adam, adamw\n\
         learning_rate = 0.003\n\
         \n\
         [evaluation]\n\
         every_steps = 50         # how often the held-out samples are looked at\n\
         \n\
         [checkpoint]\n\
         every = \"60s\"            # a run never loses more than this\n",
        name = quoted(name),
    )
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\t' => quoted.push_str("\\t"),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A name for a job, made of `text` and of what a name may hold.
pub fn name(text: &str) -> String {
    let fits =
        |letter: char| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '-' };
    let name: String = text.chars().take(60).map(fits).collect();
    if name.trim_matches('-').is_empty() { "first".into() } else { name }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bellwether_core::parse;

    use super::*;
    use crate::data::inspect;

    #[test]
    fn templates_are_jobs() {
        let job = parse::job(&digits("first"), "job.toml", &[]).unwrap();
        assert_eq!((job.name.as_str(), job.workers.max), ("first", 4));
        crate::build(&job, &|_| unreachable!()).unwrap();
    }

    #[test]
    fn a_table_is_trained_on_as_it_was_found() {
        let text: String =
            (0..60).map(|row| format!("{};{};{}\n", row, 100 - row, ["a \"b\"", "c\\d"][row / 30])).collect();
        let table = inspect("odd.csv", format!("x;y;kind\n{text}").into_bytes()).unwrap();
        let file = super::table("mine", "my tables/odd.csv", &table);
        let job = parse::job(&file, "job.toml", &[]).unwrap_or_else(|error| panic!("{error}\n{file}"));
        let open = |path: &Path| {
            assert_eq!(path, Path::new("my tables/odd.csv"));
            Ok(format!("x;y;kind\n{text}").into_bytes())
        };
        crate::build(&job, &open).unwrap_or_else(|error| panic!("{error}\n{file}"));
    }
}
