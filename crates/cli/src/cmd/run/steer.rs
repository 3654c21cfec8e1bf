//! What a user may say about who steers a run.

use bellwether_core::InputError;
use bellwether_core::job::WorkerRange;
use bellwether_core::units::DollarsPerHour;
use bellwether_sched::autoscale::{self, Economy, Use, Utility};
use bellwether_sched::stragglers::Limits;
use bellwether_session::{Autoscale, Session, Sharing};
use clap::{Args, ValueEnum};

/// All of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct SteerArguments {
    #[command(flatten)]
    pub(super) autoscale: AutoscaleArguments,
    #[command(flatten)]
    stragglers: StragglerArguments,
    /// Share the virtual nodes among the workers by what each takes, as it is measured while the run goes on; or
    /// equally, or by --worker-speed [default: measured in mode `mixed`, else equal]
    #[arg(long, value_enum)]
    shares: Option<Shares>,
}

/// How the workers share the virtual nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shares {
    /// By what each worker takes; one that holds up the others more than it helps leaves, where the range of workers
    /// allows fewer.
    Measured,
    /// Equally, or by --worker-speed.
    Equal,
}

impl SteerArguments {
    /// Finds out, before anything is begun, whether a job with this range of workers can be steered so.
    ///
    /// # Errors
    ///
    /// See [`AutoscaleArguments::check`].
    pub(super) fn check(&self, range: WorkerRange) -> Result<(), InputError> {
        self.autoscale.check(range)
    }

    /// The session, steered so.
    ///
    /// # Errors
    ///
    /// What the autoscaler cannot work with.
    pub(super) fn steer(&self, mut session: Session) -> Result<Session, InputError> {
        let implied = self.autoscale.autoscale.is_some().then_some(Limits::default().per_hour);
        if let Some(asked) = self.autoscale.asked()? {
            session = session.autoscale(asked);
        }
        if let Some(price) = self.autoscale.price {
            session = session.price(price);
        }
        if let Some(start) = self.autoscale.start_workers {
            session = session.start(start);
        }
        if let Some(shares) = self.shares {
            session = session.sharing(match shares {
                Shares::Measured => Sharing::Measured,
                Shares::Equal => Sharing::Equal,
            });
        }
        Ok(match self.stragglers.replace_stragglers.or(implied) {
            Some(per_hour) => session.replace_stragglers(per_hour),
            None => session,
        })
    }
}

/// What a user may say about stragglers.
#[derive(Debug, Clone, Args)]
pub(crate) struct StragglerArguments {
    /// Replace workers that compute slower than the others for no known reason, where there are 3 or more: at most
    /// this many within an hour, 4 if no number is given. With 0 the journal tells of them, and they stay. --autoscale implies it
    #[arg(long, value_name = "PER_HOUR", num_args = 0..=1, require_equals = true, default_missing_value = "4",
          conflicts_with = "no_spawn")]
    replace_stragglers: Option<u32>,
}

/// What a user may say about the number of workers.
#[derive(Debug, Clone, Args)]
pub(crate) struct AutoscaleArguments {
    /// Let the job find its best number of workers within its range while it runs
    #[arg(long, value_name = "HEURISTIC[:OPTIONS]", value_parser = heuristic, long_help = heuristics(),
          conflicts_with_all = ["resize", "no_spawn"])]
    autoscale: Option<String>,
    /// What a worker costs: for the report, and for heuristics that weigh it against --utility
    #[arg(long, value_name = "$PRICE/h")]
    pub(super) price: Option<DollarsPerHour>,
    /// What it is worth that the job ends: linear:$10,2h falls evenly from $10 at once to nothing after 2 h; step:$10@1h,$4@2h
    /// is $10 for an end within 1 h and falls to $4 at 2 h
    #[arg(long, value_name = "UTILITY", requires_all = ["autoscale", "price"])]
    utility: Option<Utility>,
    /// Workers that heuristics add or take away at a time
    #[arg(long, value_name = "N", default_value_t = 1, requires = "autoscale",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    increment: u32,
    /// Workers at the start [default: as without --autoscale]
    #[arg(long, value_name = "N", requires = "autoscale")]
    pub(super) start_workers: Option<u32>,
}

fn heuristic(text: &str) -> Result<String, InputError> {
    autoscale::named(text).map(|_| text.to_owned())
}

/// The help of the option, with all heuristics.
fn heuristics() -> String {
    let line = |entry: &autoscale::Entry| {
        let economy = match entry.economy {
            Use::Needed => "; needs --price and --utility",
            Use::Weighed => "; weighs --price and --utility if given",
            Use::Ignored => "",
        };
        let options: String = entry
            .options
            .iter()
            .map(|(name, value, what)| format!("\n      {name}={value}: {what}"))
            .collect();
        format!("\n  {}: {}{economy}{options}", entry.name, entry.about)
    };
    let lines: String = autoscale::CATALOGUE.iter().map(line).collect();
    format!("Let the job find its best number of workers within its range while it runs:{lines}")
}

impl AutoscaleArguments {
    /// Finds out whether a job with this range of workers can be scaled as the user says.
    ///
    /// # Errors
    ///
    /// A range of one number, a start outside it, money that is missing or useless.
    pub(super) fn check(&self, range: WorkerRange) -> Result<(), InputError> {
        let Some(name) = &self.autoscale else { return Ok(()) };
        if range.min == range.max {
            let what = format!("the job has {} workers, no more and no fewer", range.min);
            let hint = "give a range: workers = \"1..8\" in the job file, or --workers 1..8";
            return Err(InputError::new(format!("--autoscale {name}"), what).hint(hint));
        }
        if let Some(start) = self.start_workers.filter(|start| !(range.min..=range.max).contains(start)) {
            let what = format!("{start} workers are outside the job's {range}");
            let hint = format!("choose from {} to {}, or another range with --workers", range.min, range.max);
            return Err(InputError::new("--start-workers", what).hint(hint));
        }
        self.economy(name).map(|_| ())
    }

    /// What the user said about money, if the heuristic has a use for it.
    fn economy(&self, name: &str) -> Result<Option<Economy>, InputError> {
        let place = format!("--autoscale {name}");
        if self.price.is_some() && self.utility.is_none() {
            let hint = "say what the end of the job is worth, for example --utility 'linear:$10,2h'";
            return Err(InputError::new(place, "a price alone cannot be weighed").hint(hint));
        }
        let economy = self
            .price
            .zip(self.utility.clone())
            .map(|(price, utility)| Economy { utility, price_per_worker_s: price.get() / 3600.0 });
        match (autoscale::entry(name)?.economy, &economy) {
            (Use::Needed, None) => {
                let hint = "give both, for example --price '$0.35/h' --utility 'linear:$10,2h'; or choose `fitted`, which \
                            can do without";
                Err(InputError::new(place, "it weighs money, and neither price nor utility is known")
                    .hint(hint))
            }
            (Use::Ignored, Some(_)) => {
                let hint =
                    "leave --price and --utility out, or choose `fitted` or `cost-benefit`, which weigh them";
                Err(InputError::new(place, "it never looks at price and utility").hint(hint))
            }
            _ => Ok(economy),
        }
    }

    /// What the run is to be told, if the user asked for it.
    ///
    /// # Errors
    ///
    /// What [`AutoscaleArguments::check`] finds.
    fn asked(&self) -> Result<Option<Autoscale>, InputError> {
        let Some(heuristic) = self.autoscale.clone() else { return Ok(None) };
        let economy = self.economy(&heuristic)?;
        Ok(Some(Autoscale { heuristic, increment: self.increment, economy }))
    }
}
