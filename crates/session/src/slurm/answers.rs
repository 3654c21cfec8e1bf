//! What Slurm's programs answer, read without trust: other versions, other plugins and broken networks print other
//! things than one expects.

use std::fmt;

/// The columns of `squeue` that are read. Free text comes last.
pub(super) const QUEUE_COLUMNS: &str =
    "JobID:|,State:|,TimeLeft:|,PreemptTime:|,NodeList:|,NumCPUs:|,Reason:|,Comment:|";

/// The columns of `sinfo` that are read, a line for each node and partition. Free text comes last.
pub(super) const NODE_COLUMNS: &str = "%N|%P|%T|%c|%m|%G|%C|%f|%E";

/// The oldest version whose programs print what is read here.
pub const OLDEST_VERSION: (u32, u32) = (20, 11);

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStage {
    /// It waits in the queue, or for its node to boot.
    Waits,
    /// Its processes run, or may go on.
    Runs,
    /// Its processes end.
    Leaves,
    /// It is over.
    Over,
}

/// A state of Slurm's, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobState(String);

impl JobState {
    /// The state of this name; `None` for one that is not known.
    ///
    /// ```
    /// use bellwether_session::slurm::{JobStage, JobState};
    /// assert_eq!(JobState::named("PENDING").map(|state| state.stage()), Some(JobStage::Waits));
    /// assert_eq!(JobState::named("NODE_FAIL").map(|state| state.to_string()), Some("its node failed".into()));
    /// assert_eq!(JobState::named("DANCING"), None);
    /// ```
    pub fn named(name: &str) -> Option<JobState> {
        // `CANCELLED by 1000`.
        let name = name.split_whitespace().next().unwrap_or_default().trim_end_matches('+');
        stage_of(name).map(|_| JobState(name.into()))
    }

    /// What a job of this state is doing.
    pub fn stage(&self) -> JobStage {
        stage_of(&self.0).expect("only known names are taken")
    }
}

fn stage_of(name: &str) -> Option<JobStage> {
    Some(match name {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD" | "RESV_DEL_HOLD"
        | "SPECIAL_EXIT" | "POWER_UP_NODE" => JobStage::Waits,
        "RUNNING" | "SUSPENDED" | "RESIZING" | "SIGNALING" | "STOPPED" | "LAUNCH_FAILED" | "UPDATE_DB" => {
            JobStage::Runs
        }
        "COMPLETING" | "STAGE_OUT" => JobStage::Leaves,
        "COMPLETED" | "CANCELLED" | "FAILED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED" | "BOOT_FAIL"
        | "DEADLINE" | "OUT_OF_MEMORY" | "REVOKED" | "RECONFIG_FAIL" | "EXPEDITING" => JobStage::Over,
        _ => return None,
    })
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.as_str() {
            "COMPLETED" => "it ended",
            "CANCELLED" => "it was cancelled",
            "FAILED" => "it failed",
            "TIMEOUT" => "its time limit came",
            "DEADLINE" => "its deadline came",
            "NODE_FAIL" => "its node failed",
            "BOOT_FAIL" => "its node did not boot",
            "PREEMPTED" => "a job of higher priority took its place",
            "OUT_OF_MEMORY" => "it needed more memory than it was given",
            other => return write!(f, "it is {other}"),
        })
    }
}

/// A line of the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedJob {
    /// Its number.
    pub job: u64,
    /// Its state.
    pub state: JobState,
    /// Seconds until its time limit; `None` where it has none.
    pub left_s: Option<f64>,
    /// Whether a job of higher priority has been given its place, so that it is about to be ended.
    pub is_preempted: bool,
    /// Its nodes; empty while it waits.
    pub nodes: String,
    /// Its processors.
    pub processors: u32,
    /// Why it waits, in a word of Slurm's.
    pub reason: String,
    /// What its submitter wrote.
    pub comment: String,
}

/// The jobs in the answer of `squeue` whose comments begin with `beginning`. Those of others may be of any kind.
///
/// # Errors
///
/// Says what is wrong with the answer. Nothing in it is to be believed then.
pub fn queue(text: &str, beginning: &str) -> Result<Vec<QueuedJob>, String> {
    let mut jobs = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let columns: Vec<&str> = line.splitn(8, '|').collect();
        let [job, state, left, preempted, nodes, processors, reason, comment] = columns[..] else {
            return Err(format!("8 columns were asked for, and a line is {}", shown(line)));
        };
        let Some(comment) = comment.trim_end().strip_suffix('|') else {
            return Err(format!("a line has no end: {}", shown(line)));
        };
        if !comment.starts_with(beginning) {
            continue;
        }
        let job = number(job).ok_or_else(|| format!("{} is not the number of a job", shown(job)))?;
        let state = JobState::named(state.trim())
            .ok_or_else(|| format!("{} is not a state that is known", shown(state)))?;
        let left_s =
            time(left.trim()).ok_or_else(|| format!("{} is not a time that is left", shown(left)))?;
        let processors = processors.trim().parse::<u32>();
        let processors =
            processors.map_err(|_| format!("the processors of a job are not a number in {}", shown(line)))?;
        // Jobs tell when they were preempted, in words; none of the others' words begins with a digit.
        let is_preempted = preempted.trim().starts_with(|first: char| first.is_ascii_digit());
        let (nodes, reason, comment) =
            (nodes.trim().to_owned(), reason.trim().to_owned(), comment.to_owned());
        jobs.push(QueuedJob { job, state, left_s, is_preempted, nodes, processors, reason, comment });
    }
    Ok(jobs)
}

/// The number of a job, without the name of its cluster.
fn number(text: &str) -> Option<u64> {
    text.trim().split(';').next()?.parse().ok().filter(|number| *number > 0)
}

/// The number of the job that `sbatch --parsable` has submitted.
///
/// # Errors
///
/// Says what is wrong with the answer.
pub fn submitted(text: &str) -> Result<u64, String> {
    // Plugins of a site may say something first.
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    number(last).ok_or_else(|| format!("{} is not the number of a job", shown(last)))
}

/// A time as Slurm writes it, in seconds: `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`; the inner `None` stands
/// for no limit.
///
/// ```
/// use bellwether_session::slurm::time;
/// assert_eq!(time("1-02:00:05"), Some(Some(93_605.0)));
/// assert_eq!(time("4:30"), Some(Some(270.0)));
/// assert_eq!(time("UNLIMITED"), Some(None));
/// assert_eq!(time("soon"), None);
/// ```
pub fn time(text: &str) -> Option<Option<f64>> {
    if matches!(text, "UNLIMITED" | "NOT_SET" | "INVALID" | "N/A" | "Partition_Limit" | "infinite") {
        return Some(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u32>().ok()?), rest),
        None => (None, text),
    };
    let parts: Vec<u32> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    // With days the first part is hours, and others may be missing at the end.
    let [hours, minutes, seconds] = match (days, &parts[..]) {
        (_, [hours, minutes, seconds]) => [*hours, *minutes, *seconds],
        (None, [minutes, seconds]) => [0, *minutes, *seconds],
        (Some(_), [hours, minutes]) => [*hours, *minutes, 0],
        (Some(_), [hours]) => [*hours, 0, 0],
        _ => return None,
    };
    let days_s = f64::from(days.unwrap_or(0)) * 86_400.0;
    Some(Some(days_s + f64::from(hours) * 3600.0 + f64::from(minutes) * 60.0 + f64::from(seconds)))
}

/// How a job stands that is not in the queue any more, by `scontrol show job`: its state, and its exit code.
///
/// # Errors
///
/// Says what is wrong with the answer.
pub fn record(text: &str) -> Result<(JobState, Option<String>), String> {
    let value = |key: &str| {
        text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    let state = value("JobState").ok_or_else(|| format!("no JobState is in {}", shown(text)))?;
    let state =
        JobState::named(&state).ok_or_else(|| format!("{} is not a state that is known", shown(&state)))?;
    Ok((state, value("ExitCode").filter(|code| code != "0:0")))
}

/// A node, as `sinfo` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmNode {
    /// Its name.
    pub name: String,
    /// Its partition.
    pub partition: String,
    /// Whether jobs that run may go on, and new ones begin.
    pub state: NodeState,
    /// Its processors.
    pub processors: u32,
    /// Those of them that jobs hold.
    pub held_processors: u32,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Its generic resources by type: `gpu:a100` and 4, for example.
    pub resources: Vec<(String, u32)>,
    /// Its features.
    pub features: Vec<String>,
    /// Why it is not used, where its operator said so.
    pub reason: String,
}

/// What a node may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Jobs run there, and others begin.
    Open,
    /// Jobs that run there go on, and no others begin.
    Drains,
    /// No job runs there.
    Down,
}

impl NodeState {
    fn named(text: &str) -> NodeState {
        // Flags follow the state: `idle*` does not answer, `mixed-` is planned for a job, `idle~` is powered off.
        let state = text.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        let flags = &text[state.len()..];
        match state {
            _ if flags.contains('*') => NodeState::Down,
            "allocated" | "idle" | "mixed" | "completing" | "planned" | "blocked" => NodeState::Open,
            "draining" | "drained" | "drain" | "reserved" | "maint" | "perfctrs" => NodeState::Drains,
            // `down`, `fail`, `error`, `unknown`, and what later versions may think of.
            _ => NodeState::Down,
        }
    }
}

/// The nodes in the answer of `sinfo`.
///
/// # Errors
///
/// Says what is wrong with the answer.
pub fn nodes(text: &str) -> Result<Vec<SlurmNode>, String> {
    let mut nodes: Vec<SlurmNode> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let columns: Vec<&str> = line.splitn(9, '|').map(str::trim).collect();
        let [name, partition, state, processors, memory, resources, held, features, reason] = columns[..]
        else {
            return Err(format!("9 columns were asked for, and a line is {}", shown(line)));
        };
        let count = |text: &str| text.trim_end_matches('+').parse::<u64>().ok();
        let processors = count(processors).and_then(|count| u32::try_from(count).ok());
        let (Some(processors), Some(memory_mib)) = (processors, count(memory)) else {
            return Err(format!("processors and memory are not numbers in {}", shown(line)));
        };
        // Allocated, idle, other, all.
        let held = held.split('/').next().and_then(|count| count.parse().ok());
        let held_processors =
            held.ok_or_else(|| format!("how many processors are held is not said in {}", shown(line)))?;
        if name.is_empty() {
            return Err(format!("a node has no name in {}", shown(line)));
        }
        let words = |text: &str| {
            let text = if text == "(null)" { "" } else { text };
            text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        nodes.push(SlurmNode {
            name: name.into(),
            partition: partition.trim_end_matches('*').into(),
            state: NodeState::named(state),
            processors,
            held_processors,
            memory_mib,
            resources: words(resources).iter().filter_map(|word| resource(word)).collect(),
            features: words(features),
            reason: if reason == "none" { String::new() } else { reason.into() },
        });
    }
    Ok(nodes)
}

/// `gpu:a100:4(S:0-1)` is 4 of `gpu:a100`; `gpu` is one.
fn resource(word: &str) -> Option<(String, u32)> {
    let word = word.split('(').next()?;
    match word.rsplit_once(':') {
        Some((kind, count)) if count.parse::<u32>().is_ok() => Some((kind.into(), count.parse().ok()?)),
        _ => Some((word.into(), 1)),
    }
}

/// The version in the answer of `sbatch --version`: `slurm 23.11.4`, `slurm-wlm 22.05.8`.
///
/// # Errors
///
/// Says what is wrong with the answer.
pub fn version(text: &str) -> Result<(u32, u32), String> {
    let word = text.split_whitespace().nth(1).unwrap_or_default();
    let mut numbers = word.split(['.', '-']).map(|part| part.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(format!("{} does not name a version", shown(text))),
    }
}

/// A text of others, short and in quotes.
fn shown(text: &str) -> String {
    let short: String = text.trim().chars().take(80).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: &str = "\
13|COMPLETING|364-23:59:25|N/A|n2|4|None|(null)|
17|RUNNING|UNLIMITED|2026-11-26T16:45:09|n1|2|None|bellwether 0a worker 1|
18_2|PENDING|1:00|N/A||1-4|Resources|(null)|
19|PENDING|59:59|N/A||1|Resources|bellwether 0a worker 2|
20|PENDING|59:59|N/A||1|Resources|a | b|
";

    #[test]
    fn only_our_own_jobs_are_read() {
        let jobs = queue(QUEUE, "bellwether 0a ").unwrap();
        assert_eq!(jobs.iter().map(|job| job.job).collect::<Vec<_>>(), [17, 19]);
        assert_eq!((jobs[0].is_preempted, jobs[0].left_s, jobs[0].nodes.as_str()), (true, None, "n1"));
        assert_eq!((jobs[1].is_preempted, jobs[1].left_s), (false, Some(3599.0)));
        assert_eq!((jobs[1].state.stage(), jobs[1].reason.as_str()), (JobStage::Waits, "Resources"));
    }

    #[test]
    fn an_answer_that_is_not_understood_is_none() {
        for garbage in [
            "<html>",
            "17|RUNNING|UNLIMITED|N/A|n1|2|None|bellwether 0a",
            "17|DANCING|1:00|N/A|n1|2|None|bellwether 0a |",
            "x|RUNNING|1:00|N/A|n1|2|None|bellwether 0a |",
            "17|RUNNING|soon|N/A|n1|2|None|bellwether 0a |",
            "17|RUNNING|1:00|N/A|n1|two|None|bellwether 0a |",
        ] {
            assert!(queue(garbage, "bellwether 0a").is_err(), "{garbage}");
        }
        assert_eq!(queue("", "bellwether").unwrap(), []);
        assert!(submitted("Submitted batch job 17").is_err() && submitted("").is_err());
        assert_eq!(submitted("lua: hello\n17;cluster\n"), Ok(17));
        assert!(record("slurm_load_jobs error: Invalid job id specified").is_err());
        assert!(version("a b.c").is_err() && nodes("n1|low").is_err());
        assert_eq!((version("slurm-wlm 22.05.8"), version("slurm 23.11.4-2")), (Ok((22, 5)), Ok((23, 11))));
    }

    #[test]
    fn ends_are_told_in_words() {
        let text = "JobId=1 JobName=a b JobState=FAILED Reason=NonZeroExitCode ExitCode=2:0 RunTime=0:01";
        let (state, code) = record(text).unwrap();
        assert_eq!(
            (state.stage(), state.to_string(), code),
            (JobStage::Over, "it failed".into(), Some("2:0".into()))
        );
    }

    #[test]
    fn nodes_are_read_with_their_devices() {
        let text = "\
n1|low*|draining|8|1000|gpu:a100:4(S:0-1),craynetwork:2|3/5/0/8|ib,fast|test drain
n2|low*|idle*|2|1000|(null)|0/0/2/2|(null)|none
n3|low*|mixed|2|1000+|gpu|1/1/0/2|(null)|none
";
        let nodes = nodes(text).unwrap();
        assert_eq!(nodes[0].resources, [("gpu:a100".into(), 4), ("craynetwork".into(), 2)]);
        assert_eq!((nodes[0].state, nodes[0].reason.as_str()), (NodeState::Drains, "test drain"));
        assert_eq!((nodes[0].held_processors, nodes[1].held_processors), (3, 0));
        assert_eq!((nodes[1].state, nodes[2].state), (NodeState::Down, NodeState::Open));
        assert_eq!(
            (nodes[2].resources[0].1, nodes[2].memory_mib, nodes[0].partition.as_str()),
            (1, 1000, "low")
        );
    }

    #[test]
    fn times_have_days_or_not() {
        assert_eq!(time("2-00"), Some(Some(172_800.0)));
        assert_eq!(time("1-02:03"), Some(Some(93_780.0)));
        assert_eq!(time("1:00:00"), Some(Some(3600.0)));
        assert_eq!((time("60"), time(""), time("1:2:3:4")), (None, None, None));
    }
}
