//! `bellwether fit`: models of jobs from what was measured of them.

use std::path::PathBuf;
use std::process::ExitCode;

use bellwether_answers::fit::{self, Law, Sources};
use bellwether_core::fitted::{FittedFile, FittedKind};
use bellwether_core::units::Bytes;
use bellwether_render as render;
use bellwether_render::table::facts;
use clap::Args;

use crate::failure::Failure;
use crate::files;
use crate::options::Format;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct FitArguments {
    /// What was measured: tables (workers,step_s,… in CSV), runs by name or folder, profiles
    #[arg(required = true, value_name = "TABLE.csv|RUN|PROFILE.json")]
    pub(crate) sources: Vec<PathBuf>,
    /// Where the models go, for `predict` and `simulate --truth fitted:FILE.json`
    #[arg(short, long, value_name = "FILE.json")]
    pub(crate) output: PathBuf,
    /// Bytes that workers exchange in every step, where the sources do not say it
    #[arg(long, value_name = "BYTES")]
    pub(crate) bytes: Option<Bytes>,
    /// What is fitted to synchronous measurements: auto, all-reduce, scaling or goodput
    #[arg(long, value_name = "LAW", default_value = "auto", value_parser = str::parse::<Law>)]
    pub(crate) law: Law,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    /// Folder of the runs [default: $BELLWETHER_STATE_DIR, $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

pub(crate) fn fit(arguments: &FitArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    files::check_folder(&arguments.output)?;
    let mut sources = Sources::new();
    for source in &arguments.sources {
        fit::add(&mut sources, source, arguments.state_dir.as_deref())?;
    }
    let file = fit::fit(&sources, arguments.bytes.map(|bytes| bytes.0), arguments.law)?;
    let text = render::json(&file);
    files::write_whole(&arguments.output, text.as_bytes())?;
    match arguments.format {
        Format::Json => printer.out(text),
        Format::Table => {
            printer.out(table(&file));
            let path = arguments.output.display();
            printer.note(format_args!("`bellwether predict {path}` says what it means"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(file: &FittedFile) -> String {
    let of_kind = |kind: &FittedKind| {
        let FittedKind { name, batch, servers, per_node, virtual_nodes, measurements, held_out_error, model } =
            kind;
        let error = |error: f64| format!("{:.1} %", 100.0 * error);
        let (least, most) = model.workers;
        let how =
            if *servers > 0 { format!("asynchronous, {servers} servers") } else { "synchronous".into() };
        let mut rows = vec![
            ("kind", name.clone()),
            ("model", format!("{} ({how})", model.model)),
            ("samples per step", batch.to_string()),
            ("measurements", format!("{measurements}, on {least} to {most} workers")),
            ("error, fitted", error(model.mean_absolute_residual())),
        ];
        if let Some(nodes) = virtual_nodes {
            rows.push(("virtual nodes", nodes.to_string()));
        }
        if *per_node > 1 {
            rows.push(("workers of a node", format!("{per_node} at most")));
        }
        rows.push((
            "error, held out",
            held_out_error.map_or("too few measurements to tell".into(), |held_out| {
                format!("{}, each as the others predict it", error(held_out))
            }),
        ));
        facts(&rows)
    };
    file.kinds.iter().map(of_kind).collect::<Vec<_>>().join("\n\n")
}
