//! `--compare`: how well the model foresees a measured trace, block by block.

use std::fmt::Write;

use bellwether_model::gpu::{RunScore, Score};
use bellwether_render::csv::{Csv, cell};
use bellwether_render::figure::percent;
use bellwether_render::{self as render, table::aligned};

use crate::options::TableFormat;

pub(super) fn render(scores: &[Score], format: TableFormat) -> String {
    match format {
        TableFormat::Table => table(scores),
        TableFormat::Json => render::json(&scores),
        TableFormat::Csv => csv(scores),
    }
}

fn table(scores: &[Score]) -> String {
    let head = ["run", "test", "kernel", "blocks", "exact", "counts per SM", "first difference"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    for Score { run, .. } in scores {
        for launch in &run.launches {
            let first = launch.first_wrong.map(|wrong| {
                format!("block {} was on SM {}, not {}", wrong.block, wrong.measured, wrong.modelled)
            });
            rows.push(vec![
                run.run.clone(),
                run.test.clone(),
                launch.kernel.clone(),
                launch.blocks.to_string(),
                percent(launch.exact as f64 / launch.blocks as f64),
                if launch.counts_equal { "as measured" } else { "differ" }.to_string(),
                first.unwrap_or_default(),
            ]);
        }
    }
    let mut text = aligned(&rows);
    text.push('\n');
    for of_device in scores.chunk_by(|a, b| a.device == b.device) {
        text.push_str(&summary(of_device));
    }
    text.trim_end().to_string()
}

/// One device in a sentence or two.
fn summary(scores: &[Score]) -> String {
    let count = |is: fn(&RunScore) -> bool| scores.iter().filter(|score| is(&score.run)).count();
    let launches = || scores.iter().flat_map(|score| &score.run.launches);
    let exact: usize = launches().map(|launch| launch.exact).sum();
    let blocks: usize = launches().map(|launch| launch.blocks).sum();
    let (runs, first) = (scores.len(), &scores[0]);
    let mut text = format!(
        "{} as {}: {} of {runs} runs exact in every block, {exact} of {blocks} blocks ({}); the number of blocks on \
         every SM as measured in {} of {runs} runs\n",
        first.device,
        first.gpu,
        count(RunScore::is_exact),
        percent(exact as f64 / blocks as f64),
        count(RunScore::counts_equal),
    );
    let early: Vec<&str> = scores
        .iter()
        .filter(|score| score.ended_early.is_some_and(|blocks| blocks > 0))
        .map(|score| score.run.run.as_str())
        .collect();
    if !early.is_empty() {
        let _ = writeln!(
            text,
            "no fair comparison, because blocks ended before the last one began: run {}; measure again with longer blocks \
             or fewer",
            early.join(", ")
        );
    }
    text
}

fn csv(scores: &[Score]) -> String {
    let mut csv = Csv::new([
        "device",
        "gpu",
        "run",
        "test",
        "kernel",
        "blocks",
        "exact",
        "counts_equal",
        "first_wrong_block",
        "measured",
        "modelled",
        "ended_early",
    ]);
    for Score { device, gpu, run, ended_early } in scores {
        for launch in &run.launches {
            let wrong = launch.first_wrong;
            csv.row(&[
                device,
                gpu,
                &run.run,
                &run.test,
                &launch.kernel,
                &launch.blocks,
                &launch.exact,
                &launch.counts_equal,
                &cell(wrong.map(|wrong| wrong.block)),
                &cell(wrong.map(|wrong| wrong.measured)),
                &cell(wrong.map(|wrong| wrong.modelled)),
                &cell(*ended_early),
            ]);
        }
    }
    csv.text()
}
