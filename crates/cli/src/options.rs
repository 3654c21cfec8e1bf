//! Arguments that several verbs share.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use bellwether_core::ParseError;
pub(crate) use bellwether_core::parse::assignment;
use bellwether_session::machines::ProviderKind;
use clap::{Args, ValueEnum};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
}

/// How a result of many rows is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// For people.
    Table,
    /// For programs: one JSON value on stdout.
    Json,
    /// For spreadsheets.
    Csv,
}

/// Who gives machines.
///
/// # Errors
///
/// A name that no provider has.
pub(crate) fn provider(text: &str) -> Result<ProviderKind, ParseError> {
    ProviderKind::named(text)
}

/// A range as the reader of a `u32` takes it.
pub(crate) fn of_u32(range: RangeInclusive<u64>) -> RangeInclusive<i64> {
    *range.start() as i64..=*range.end() as i64
}

/// The file of a picture: it is written as SVG, whatever it is called.
///
/// # Errors
///
/// A name that says another format.
pub(crate) fn picture(text: &str) -> Result<PathBuf, ParseError> {
    match Path::new(text).extension() {
        Some(format) if !format.eq_ignore_ascii_case("svg") => {
            Err(ParseError::new("picture", text, "an SVG file, such as plot.svg"))
        }
        _ => Ok(text.into()),
    }
}

/// Where a coordinator listens: `HOST:PORT`.
///
/// # Errors
///
/// A text without a port.
pub(crate) fn host_and_port(text: &str) -> Result<String, ParseError> {
    let wrong = || ParseError::new("address", text, "HOST:PORT, such as 10.0.0.1:7000 or [::1]:7000");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if host.is_empty() || is_bare_ipv6 {
        return Err(wrong());
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(text.into()),
        _ => Err(wrong()),
    }
}

/// Where runs are kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct StateArguments {
    /// Folder of the runs [default: $BELLWETHER_STATE_DIR, $XDG_STATE_HOME/bellwether or ~/.local/state/bellwether]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How the result is printed
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
}
