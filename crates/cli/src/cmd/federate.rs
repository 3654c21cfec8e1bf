//! `bellwether federate`: should datacenters share, how much, and who pays whom.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use bellwether::federate::Beside;
use bellwether_core::{InputError, ParseError};
use bellwether_federation::answer::{
    self, EXACT_MEMBERS, Report, Split, Unanswered, Valuation, Valuer, Wanted,
};
use bellwether_federation::description::Description;
use bellwether_federation::queue::Limits;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::files;
use crate::options::{TableFormat, picture};
use crate::printer::Printer;

mod posted;
mod prices;
mod savings;
mod show;

#[derive(Debug, Args)]
pub(crate) struct FederateArguments {
    /// The federation: members, their servers and jobs, prices (examples/federation-*.toml; `bellwether schema federation`)
    #[arg(value_name = "FEDERATION.toml")]
    federation: PathBuf,
    /// What is asked [default: savings where the file has [jobs], else affinity]
    #[arg(long, value_enum)]
    game: Option<GameKind>,
    /// How the savings are split
    #[arg(long, value_enum, default_value = "shapley")]
    split: SplitArgument,
    /// Search for the number of servers that each should share
    #[arg(long, value_enum)]
    optimise: Option<Optimise>,
    /// Show the federation in which no member gains by leaving, instead of that of all members
    #[arg(long)]
    stable: bool,
    /// Simulate, also where a model could be solved
    #[arg(long)]
    simulate: bool,
    /// Half the width of the 95 % interval at which a simulation ends, relative to what is forwarded
    #[arg(long, value_name = "PART", default_value_t = 0.01, value_parser = part)]
    precision: f64,
    /// States of a chain above which it is simulated instead
    #[arg(long, value_name = "N", default_value_t = Limits::default().most_states)]
    most_states: u64,
    /// Decides every draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    format: TableFormat,
    /// Draw the savings over the numbers of servers that two members share
    #[arg(long, value_name = "FILE.svg", value_parser = picture)]
    plot: Option<PathBuf>,
    /// The two members of the picture [default: the first two]
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1, requires = "plot")]
    plot_members: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GameKind {
    /// Jobs queue for servers that are all alike; what the pool serves need not be bought.
    Savings,
    /// Work suits some devices better than others.
    Affinity,
    /// Each member decides for itself how much it lends, at prices inside.
    Prices,
}

/// How savings are split, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SplitArgument(Split);

impl ValueEnum for SplitArgument {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [SplitArgument; 5] = [
            SplitArgument(Split::Shapley),
            SplitArgument(Split::Core),
            SplitArgument(Split::Nucleolus),
            SplitArgument(Split::Nash),
            SplitArgument(Split::All),
        ];
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self.0 {
            Split::Shapley => ("shapley", "Each gets its mean contribution"),
            Split::Core => ("core", "So that no member gains by leaving, where that is possible"),
            Split::Nucleolus => {
                ("nucleolus", "So that the member that gains most by leaving gains as little as possible")
            }
            Split::Nash => ("nash", "All get the same beyond what they have alone"),
            Split::All => ("all", "All of these, and simple rules beside them"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Optimise {
    /// The servers that each shares.
    Sharing,
}

fn part(text: &str) -> Result<f64, ParseError> {
    let expected = "a number above 0 and below 1";
    let part: f64 = text.parse().map_err(|_| ParseError::new("part", text, expected))?;
    if part > 0.0 && part < 1.0 { Ok(part) } else { Err(ParseError::out_of_range("part", text, expected)) }
}

pub(crate) fn federate(arguments: &FederateArguments, printer: &Printer) -> Result<ExitCode, Failure> {
    let place = arguments.federation.display().to_string();
    let text = fs::read_to_string(&arguments.federation).map_err(|error| {
        InputError::new(&place, format!("the federation cannot be read: {error}")).hint(
            "examples/federation-*.toml are some; `bellwether schema federation` says what such a file holds",
        )
    })?;
    let federation = Description::read(&text, &place, &Beside::new(&arguments.federation))?;
    if let Some(path) = &arguments.plot {
        files::check_folder(path)?;
    }
    let game = arguments.game.unwrap_or(match federation.jobs {
        Some(_) => GameKind::Savings,
        None => GameKind::Affinity,
    });
    // Elsewhere in this program a process is one thread; here many coalitions are looked at.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| Failure::at("threads", error))?;
    pool.install(|| answer(game, &federation, arguments, printer))
}

impl FederateArguments {
    fn valuation(&self) -> Valuation {
        Valuation {
            simulate: self.simulate,
            precision: self.precision,
            most_states: self.most_states,
            seed: self.seed,
        }
    }

    fn wanted(&self) -> Wanted {
        Wanted { split: self.split.0, stable: self.stable }
    }

    /// Why there is no answer, with the words of the file and of the command line.
    fn failure(&self, why: Unanswered) -> Failure {
        let file = self.federation.display();
        let error = |place: String, what: &str| InputError::new(place, format!("{why}{what}"));
        let error = match &why {
            Unanswered::Input(error) => error.clone(),
            Unanswered::NoJobs => error(file.to_string(), ", and the file has no [jobs]")
                .hint("write [jobs] with mean_time and public_price, or say --game affinity"),
            Unanswered::NoClasses => error(file.to_string(), ", and the file has no [[class]]")
                .hint("write [[class]] with speeds, or say --game savings"),
            Unanswered::NoJobLength { class } => error(format!("{file}: class {class}"), "")
                .hint("give it job_examples, the examples of a job on average"),
            Unanswered::OneMember => error(file.to_string(), "").hint("add a [[member]]"),
            Unanswered::OnlySampled { .. } => error("--split".into(), "")
                .hint(format!("say --split shapley, or look at {EXACT_MEMBERS} members or fewer")),
        };
        error.into()
    }
}

fn answer(
    game: GameKind,
    federation: &Description,
    arguments: &FederateArguments,
    printer: &Printer,
) -> Result<ExitCode, Failure> {
    let failure = |why| arguments.failure(why);
    let report: Report = match game {
        GameKind::Savings => savings::savings(federation, arguments, printer)?,
        GameKind::Affinity => {
            refuse(arguments.plot.is_some(), "--plot", "the game affinity has no sharing levels to draw")?;
            refuse(arguments.optimise.is_some(), "--optimise", "in the game affinity all is shared")?;
            answer::affinity(federation, &arguments.valuation(), arguments.wanted()).map_err(failure)?
        }
        GameKind::Prices => {
            refuse(arguments.plot.is_some(), "--plot", "the game prices is not drawn: draw --game savings")?;
            refuse(
                arguments.optimise.is_some(),
                "--optimise",
                "in the game prices each optimises for itself",
            )?;
            if federation.jobs.is_none() {
                let report = answer::posted(federation).map_err(failure)?;
                printer.out(posted::render(&report, arguments.format).trim_end());
                return Ok(code(Some(report.stable)));
            }
            let valuer = Valuer::new(federation, &arguments.valuation()).map_err(failure)?;
            let report = answer::prices(&valuer).map_err(failure)?;
            printer.out(prices::render(&report, arguments.format).trim_end());
            return Ok(code(Some(report.stable)));
        }
    };
    printer.out(show::render(&report, arguments.format).trim_end());
    Ok(code(report.advice.stable))
}

fn refuse(is_wrong: bool, place: &str, what: &str) -> Result<(), InputError> {
    if is_wrong { Err(InputError::new(place, what)) } else { Ok(()) }
}

/// 1 where it was looked into and no stable federation exists.
fn code(stable: Option<bool>) -> ExitCode {
    if stable == Some(false) { ExitCode::from(1) } else { ExitCode::SUCCESS }
}
