//! `bellwether run --revocations`: the law by which servers of this machine vanish.

use std::path::Path;
use std::str::FromStr;

use bellwether_core::units::Seconds;
use bellwether_core::{InputError, ParseError};
use bellwether_model::transient::{self, Law, LawSpec};
use bellwether_session::Vanishing;
use clap::Args;

use crate::failure::Failure;

/// Flags of servers that vanish.
#[derive(Debug, Args)]
pub(crate) struct RevocationArguments {
    /// Take the workers' servers away as a law says: exponential:15h, k80:us-west1, samples:FILE, … (see docs/transient.md);
    /// time-scale=3600 lets an hour of the law pass in a second
    #[arg(long, value_name = "LAW[,seed=N][,time-scale=X]", conflicts_with = "no_spawn")]
    revocations: Option<RevocationSpec>,
    /// Time on the law's clock between a provider's notice and the end of the server; 0s takes it away without
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "revocations")]
    notice: Seconds,
}

/// The law as the user named it, and how it is to be played.
#[derive(Debug, Clone, PartialEq)]
struct RevocationSpec {
    words: String,
    law: LawSpec,
    seed: u64,
    time_scale: f64,
}

impl FromStr for RevocationSpec {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<RevocationSpec, ParseError> {
        let (mut words, mut seed, mut time_scale) = (text, 0, 1.0);
        // The laws have commas of their own.
        while let Some((rest, last)) = words.rsplit_once(',') {
            match last.split_once('=') {
                Some(("seed", number)) => {
                    seed = number.parse().map_err(|_| ParseError::new("seed", number, "a whole number"))?
                }
                Some(("time-scale", number)) => {
                    let scale: f64 = number
                        .parse()
                        .map_err(|_| ParseError::new("time scale", number, "a number above 0"))?;
                    if !(scale.is_finite() && scale > 0.0) {
                        return Err(ParseError::out_of_range("time scale", number, "a number above 0"));
                    }
                    time_scale = scale;
                }
                _ => break,
            }
            words = rest;
        }
        Ok(RevocationSpec { words: words.into(), law: words.parse()?, seed, time_scale })
    }
}

impl RevocationArguments {
    /// The law that was asked for.
    ///
    /// # Errors
    ///
    /// A file of lifetimes that cannot be read.
    pub(super) fn vanishing(&self) -> Result<Option<Vanishing>, Failure> {
        let Some(asked) = &self.revocations else { return Ok(None) };
        let law = match &asked.law {
            LawSpec::Law(law) => law.clone(),
            LawSpec::Samples(file) => lifetimes(Path::new(file))?,
        };
        let RevocationSpec { words, seed, time_scale, .. } = asked.clone();
        Ok(Some(Vanishing { words, law, seed, time_scale, notice_s: self.notice.get() }))
    }
}

fn lifetimes(path: &Path) -> Result<Law, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the lifetimes cannot be read: {e}"))
            .hint("samples:FILE names a file with one lifetime on each line, for example 5h30min")
    })?;
    Ok(transient::samples(&text, &place)?)
}
