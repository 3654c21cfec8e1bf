//! Notices of the provider: this server will be taken away, and how a worker hears of it in time.
//!
//! Each provider has a way of its own, and all of them are a [`Notices`]: [`gce`] and [`ec2`] ask the metadata
//! server of the cloud, `sigterm` waits for the signal with which Kubernetes and systemd end a process.
//! [`watch`] asks on a thread of its own; what it hears is handed over once, and the thread ends. A metadata
//! server that is not there, or that talks nonsense, is said in one line, and asked again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use bellwether_core::ParseError;

pub mod ec2;
pub mod gce;
mod http;
mod sigterm;

/// The default time between two questions: what EC2 recommends.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// A source that fails is not asked less often than this (or than the interval, if that is longer): it may be
/// back, with a notice of which half a minute is left.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The provider will take this server away.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// Time until the server is gone in seconds, as far as the provider says.
    pub within_s: Option<f64>,
    /// What the provider said, in words.
    pub what: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.within_s.map_or(Ok(()), |seconds| write!(f, " within {seconds:.0} s"))
    }
}

/// A source of notices could not be asked, or its answer is none.
#[derive(Debug, thiserror::Error)]
pub enum NoticeError {
    /// No server answers in time, or it does not speak HTTP.
    #[error("{url} does not answer: {why}")]
    Unreachable {
        /// Who was asked.
        url: String,
        /// Why.
        why: String,
    },
    /// The answer is not what the provider documents.
    #[error("{url} answers with {what}")]
    Garbled {
        /// Who was asked.
        url: String,
        /// What is wrong with the answer.
        what: String,
    },
}

/// Says whether this server will be taken away.
///
/// # Laws
///
/// - `poll` returns in bounded time, a few seconds more than the interval that the source was opened with.
/// - A notice that was given once is given again: the provider does not take it back.
/// - Nothing that the source reads makes it panic, or take more memory than a few KiB.
pub trait Notices: Send {
    /// Asks once; waits for a notice if the source can be waited for, at most for the interval.
    ///
    /// # Errors
    ///
    /// Returns an error if the source cannot be asked now. It may be asked again.
    fn poll(&mut self) -> Result<Option<Notice>, NoticeError>;
}

/// Where notices come from, as a user names it: `gce`, `ec2`, `sigterm`, `gce=URL` or `ec2=URL`.
///
/// ```
/// use bellwether_runtime::notice::Source;
/// assert_eq!("ec2".parse(), Ok(Source::Ec2("http://169.254.169.254".into())));
/// assert_eq!("gce=http://10.0.0.7:8080/".parse(), Ok(Source::Gce("http://10.0.0.7:8080".into())));
/// assert!("ec2=https://10.0.0.7".parse::<Source>().is_err());
/// let source = Source::Gce("http://10.0.0.7:8080".into());
/// assert_eq!(source.word().parse(), Ok(source));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The metadata server of Google Compute Engine at this address.
    Gce(String),
    /// The instance metadata service of Amazon EC2 at this address.
    Ec2(String),
    /// SIGTERM, sent by the provider that takes the server away.
    Sigterm,
}

impl FromStr for Source {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Source, ParseError> {
        let (kind, url) = text.split_once('=').map_or((text, None), |(kind, url)| (kind, Some(url)));
        match (kind, url) {
            ("gce", None) => Ok(Source::Gce(gce::ADDRESS.into())),
            ("ec2", None) => Ok(Source::Ec2(ec2::ADDRESS.into())),
            ("gce", Some(url)) => http::base(url).map(Source::Gce),
            ("ec2", Some(url)) => http::base(url).map(Source::Ec2),
            ("sigterm", None) => Ok(Source::Sigterm),
            _ => Err(ParseError::new("source of notices", text, "gce, ec2, sigterm, gce=URL or ec2=URL")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Gce(base) | Source::Ec2(base) => f.write_str(base),
            Source::Sigterm => f.write_str("SIGTERM"),
        }
    }
}

impl Source {
    /// Its name as a user writes it, with its address.
    pub fn word(&self) -> String {
        match self {
            Source::Gce(base) => format!("gce={base}"),
            Source::Ec2(base) => format!("ec2={base}"),
            Source::Sigterm => "sigterm".into(),
        }
    }

    /// Opens it. A metadata server is first asked by [`Notices::poll`]; SIGTERM counts from now on.
    ///
    /// # Errors
    ///
    /// Returns an error if the system does not let us listen to SIGTERM.
    pub fn open(&self, interval: Duration) -> std::io::Result<Box<dyn Notices>> {
        Ok(match self {
            Source::Gce(base) => Box::new(gce::Gce::new(base.clone(), interval)),
            Source::Ec2(base) => Box::new(ec2::Ec2::new(base.clone())),
            Source::Sigterm => Box::new(sigterm::Sigterm::new(interval)?),
        })
    }
}

/// What a worker is told to listen to.
#[derive(Debug, Clone)]
pub struct Listening {
    /// The sources; empty if the provider gives no notices.
    pub sources: Vec<Source>,
    /// Time between two questions to one source.
    pub interval: Duration,
    /// Is told, once per outage, that a source does not answer, and that it does again; and of notices.
    pub log: fn(&str),
}

impl Default for Listening {
    fn default() -> Listening {
        Listening { sources: Vec::new(), interval: INTERVAL, log: |_| {} }
    }
}

/// Threads that wait for notices; they end when this value does, after the question in flight.
#[derive(Debug)]
pub struct Watch {
    _stop: Vec<mpsc::Sender<()>>,
}

/// Waits for notices, one thread per source, and hands over the first of each.
///
/// # Errors
///
/// Returns an error if the system gives no thread, or does not let us listen to SIGTERM.
pub fn watch(
    listening: &Listening,
    on_notice: impl Fn(Notice) + Send + Sync + 'static,
) -> std::io::Result<Watch> {
    let on_notice = Arc::new(on_notice);
    let mut stops = Vec::new();
    for source in &listening.sources {
        let (stop, stopped) = mpsc::channel();
        stops.push(stop);
        let mut notices = source.open(listening.interval)?;
        let Listening { interval, log, .. } = *listening;
        let (source, on_notice) = (source.clone(), Arc::clone(&on_notice));
        std::thread::Builder::new().name("notices".into()).spawn(move || {
            if let Some(notice) = wait(&source, &mut *notices, interval, &stopped, log) {
                log(&notice.to_string());
                on_notice(notice);
            }
        })?;
    }
    Ok(Watch { _stop: stops })
}

/// Asks until there is a notice; none when stopped.
fn wait(
    source: &Source,
    notices: &mut dyn Notices,
    interval: Duration,
    stopped: &mpsc::Receiver<()>,
    log: fn(&str),
) -> Option<Notice> {
    let mut failures = 0u32;
    loop {
        let asked = Instant::now();
        match notices.poll() {
            Ok(Some(notice)) => return Some(notice),
            Ok(None) if failures == 0 => {}
            Ok(None) => {
                failures = 0;
                log(&format!("notices of the provider: {source} answers again"));
            }
            Err(error) => {
                if failures == 0 {
                    log(&format!("no notices of the provider: {error}; asking again until it answers"));
                }
                failures = failures.saturating_add(1);
            }
        }
        let pause = pause(interval, failures).saturating_sub(asked.elapsed());
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return None;
        }
    }
}

/// Time between two questions after this many failures: twice as long each time, within reason.
fn pause(interval: Duration, failures: u32) -> Duration {
    interval.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE.max(interval))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_fails_is_asked_less_often_but_not_rarely() {
        let seconds = |interval_s: u64, failures| pause(Duration::from_secs(interval_s), failures).as_secs();
        assert_eq!([0, 1, 2, 3, u32::MAX].map(|failures| seconds(2, failures)), [2, 4, 8, 10, 10]);
        assert_eq!([seconds(30, 0), seconds(30, 9)], [30, 30]);
    }
}
