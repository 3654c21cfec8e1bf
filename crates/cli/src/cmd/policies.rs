//! `bellwether policies`: what there is to choose from.

use std::fmt::Write;
use std::process::ExitCode;

use bellwether_render as render;
use bellwether_sched::policy::About;
use bellwether_sched::registry::Registry;
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::options::Format;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct PoliciesArguments {
    /// Only these
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}

pub(crate) fn policies(arguments: &PoliciesArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    for name in &arguments.names {
        Registry::built_in().parse(name)?;
    }
    let is_asked =
        |about: &&About| arguments.names.is_empty() || arguments.names.iter().any(|name| name == about.name);
    let registry = Registry::built_in();
    let asked: Vec<&About> = registry.iter().filter(is_asked).collect();
    match arguments.format {
        Format::Table => printer.out(table(&asked).trim_end()),
        Format::Json => {
            let one = |about: &&About| {
                let option = |(name, value, what): &(&str, f64, &str)| json!({ "name": name, "default": value, "meaning": what });
                json!({
                    "policy": about.name,
                    "idea": about.idea,
                    "bad_when": about.bad_when,
                    "options": about.options.iter().map(option).collect::<Vec<_>>(),
                    "needs_remaining": about.needs_remaining,
                    "work_conserving": about.promises.work_conserving,
                    "starvation_free": about.promises.starvation_free,
                })
            };
            let all: Vec<_> = asked.iter().map(one).collect();
            printer.out(render::json(&all));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(asked: &[&About]) -> String {
    let mut text = String::new();
    for about in asked {
        let _ = writeln!(text, "{}: {}", about.name, about.idea);
        let _ = writeln!(text, "    bad when {}", about.bad_when);
        for (name, value, what) in about.options {
            let _ = writeln!(text, "    option {name}={value}: {what}");
        }
        let mut notes = Vec::new();
        if about.needs_remaining {
            notes.push("needs to know the work that remains");
        }
        if about.promises.work_conserving {
            notes.push("leaves no device idle that a waiting job could use");
        }
        if about.promises.starvation_free {
            notes.push("lets no job wait for ever");
        }
        if !notes.is_empty() {
            let _ = writeln!(text, "    {}", notes.join("; "));
        }
    }
    text
}
