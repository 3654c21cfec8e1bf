//! What a run that is taken up again was so far: its name, its data, and where its checkpoints are.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bellwether_core::job::CheckpointUrl;

use super::{CoordinatorError, Options, system};
use crate::channel::Cipher;
use crate::checkpoint::{Store, write_atomically};
use crate::journal::{RunHistory, Task};
use crate::membership::coordinator::Resumed;
use crate::membership::{WorkloadDescription, any_class, different_parts};
use crate::run_dir::RunDir;
use crate::slices::Shelf;
use crate::state::hex;

/// Bytes of a run's random name.
const NAME_BYTES: usize = 8;

/// The past of a run, from its folder.
#[derive(Debug)]
pub(super) struct Past {
    /// What the journal tells; nothing of a run that begins.
    pub(super) resumed: Option<Resumed>,
    /// The run's random name; none for runs of releases that gave none.
    pub(super) id: Option<String>,
    pub(super) store: Store,
    /// Checkpoints that the workers write themselves.
    pub(super) shelf: Option<Shelf>,
    /// Those of the run that this one goes on from.
    pub(super) origin: Option<Shelf>,
    /// Other data or kernels than before, which the user accepted: before and now.
    pub(super) accepted: Option<(String, String)>,
    /// Why connections between machines are not encrypted, where they are not.
    pub(super) plain_transport: Option<String>,
    /// The journal is gone, the checkpoints are not.
    pub(super) journal_lost: bool,
    /// Kernel classes that the run was trained with.
    classes: BTreeSet<String>,
    /// What it was trained with last.
    task: Option<Task>,
    /// Whether workers of any kernel class may go on.
    is_open: bool,
}

impl Past {
    /// Reads it, and refuses to go on with what would make the result that of another job.
    pub(super) fn read(options: &Options, history: &RunHistory) -> Result<Past, CoordinatorError> {
        let mut resumed = history.resumed();
        let id = identity(options, history, resumed.is_some())
            .map_err(system(format!("name the run in {}", options.folder.display())))?;
        let plain_transport = plain_transport(options, history)?;
        let job = &options.job;
        let store = Store::new(folder(options, id.as_deref()), job.checkpoint.keep, &job.identity())
            .of_run(id.as_deref().unwrap_or_default());
        let (shelf, origin) = shelves(options, id.as_deref())?;
        let has_slices =
            || shelf.as_ref().map_or(Ok(false), |shelf| shelf.steps().map(|steps| !steps.is_empty()));
        let journal_lost = resumed.is_none() && (!store.steps().is_empty() || has_slices()?);
        if journal_lost {
            resumed = Some(Resumed::of_lost_journal());
        }
        let classes = history.kernel_classes.clone();
        let task = history.task.clone();
        let mut past = Past {
            resumed,
            id,
            store,
            shelf,
            origin,
            accepted: None,
            plain_transport,
            journal_lost,
            classes,
            task,
            is_open: job.is_open_to_any_class(),
        };
        if let Some(workload) = options.workload.as_ref().filter(|known| !known.fingerprint.is_empty()) {
            past.accepted = past.accept(workload, options.accept_other_data)?;
        }
        Ok(past)
    }

    /// How data and kernels differ from those before, which the user accepts, or an error.
    pub(super) fn accept(
        &self,
        workload: &WorkloadDescription,
        accepts: bool,
    ) -> Result<Option<(String, String)>, CoordinatorError> {
        // A release that did not know of such runs wrote the whole class.
        let before = self.task.as_ref().map(|task| {
            let fingerprint = self.class_of(&task.fingerprint).into_owned();
            Task { fingerprint, ..task.clone() }
        });
        match before.and_then(|before| change(&before, workload)) {
            Some((before, now)) if !accepts => {
                let (before, now) = different_parts(&before, &now);
                Err(CoordinatorError::OtherData { what: "the run".into(), before, now })
            }
            change => Ok(change),
        }
    }

    /// What of a kernel class matters to this run.
    fn class_of<'c>(&self, class: &'c str) -> Cow<'c, str> {
        if self.is_open { any_class(class).into() } else { class.into() }
    }

    /// Refuses a checkpoint of kernels that the run was never trained with.
    pub(super) fn check_class(
        &self,
        path: &Path,
        class: &str,
        now: &str,
        accepts: bool,
    ) -> Result<(), CoordinatorError> {
        let class = &*self.class_of(class);
        // The journal's last kernels are those of now, or the change was accepted.
        if accepts || class.is_empty() || class == now || self.classes.contains(class) {
            return Ok(());
        }
        let what = format!("the checkpoint {}", path.display());
        let (before, now) = different_parts(class, now);
        Err(CoordinatorError::OtherData { what, before, now })
    }
}

/// Why nothing is encrypted between machines, as is said now or was before; nothing where it is.
fn plain_transport(options: &Options, history: &RunHistory) -> Result<Option<String>, CoordinatorError> {
    if options.token.cipher() != Cipher::Unencrypted {
        return Ok(None);
    }
    let before = history.plain_transport.clone();
    options.plain_transport.clone().or(before).map(Some).ok_or(CoordinatorError::NoReason)
}

/// A folder of the run's own, also where the job names one: no run prunes another's checkpoints.
fn folder(options: &Options, id: Option<&str>) -> PathBuf {
    match (&options.job.checkpoint.folder, id) {
        (Some(folder), Some(id)) => folder.join(format!("{}-{id}", options.run)),
        (Some(folder), None) => folder.join(&options.run),
        (None, _) => RunDir::at(&options.folder).checkpoints(),
    }
}

/// Where the workers write checkpoints, tried out, and where they may read others; none where the coordinator writes.
fn shelves(options: &Options, id: Option<&str>) -> Result<(Option<Shelf>, Option<Shelf>), CoordinatorError> {
    let Some(url) = &options.job.checkpoint.url else { return Ok((None, None)) };
    if !options.job.sync.waits_for_all()
        || options.synchronisation.reduce_at_servers
        || options.synchronisation.phases.iter().any(|(_, protocol)| !protocol.waits_for_all())
    {
        return Err(CoordinatorError::NoSlices);
    }
    let (identity, keep) = (options.job.identity(), options.job.checkpoint.keep);
    let name = id.map_or(options.run.clone(), |id| format!("{}-{id}", options.run));
    let shelf = Shelf::open(absolute(url.join(&name)), keep, &identity)?;
    shelf.try_out(id.unwrap_or_default(), &options.run)?;
    let dir = RunDir::at(&options.folder);
    let origin = dir.origin().map_err(|source| CoordinatorError::RunDir { verb: "read", source })?;
    let origin = origin.map(|url| Shelf::open(absolute(url), keep, &identity)).transpose()?;
    Ok((Some(shelf), origin))
}

/// Workers may have another working directory.
fn absolute(mut url: CheckpointUrl) -> CheckpointUrl {
    if let Some(folder) = url.folder_mut()
        && let Ok(absolute) = std::path::absolute(&*folder)
    {
        *folder = absolute;
    }
    url
}

/// The run's random name: from its file, or else its journal, or else its checkpoints; drawn for a run that begins.
fn identity(options: &Options, history: &RunHistory, has_journal: bool) -> io::Result<Option<String>> {
    let path = RunDir::at(&options.folder).identity_file();
    let is_name = |text: &str| text.len() == 2 * NAME_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
    let kept =
        fs::read_to_string(&path).map(|text| text.trim().to_string()).ok().filter(|text| is_name(text));
    if kept.is_some() {
        return Ok(kept);
    }
    let journaled = history.id.clone().filter(|id| is_name(id));
    if has_journal && journaled.is_none() {
        return Ok(None);
    }
    let own = || Store::new(folder(options, None), 1, "").newest_run().filter(|id| is_name(id));
    let id = match journaled {
        None if options.job.checkpoint.folder.is_none() => own(),
        journaled => journaled,
    };
    let id = match id {
        Some(id) => id,
        None => {
            let mut bytes = [0; NAME_BYTES];
            getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
            hex(&bytes)
        }
    };
    write_atomically(&path.with_extension("part"), &path, format!("{id}\n").as_bytes())?;
    Ok(Some(id))
}

/// How data and kernels differ from those that the run was trained with last: both in words.
fn change(before: &Task, workload: &WorkloadDescription) -> Option<(String, String)> {
    let words = |class: &str, training: u64, held_out: u64| {
        format!("{class}; {training} training samples, {held_out} held out")
    };
    let before = words(&before.fingerprint, before.training_samples, before.held_out_samples);
    let now = words(&workload.fingerprint, workload.training_samples, workload.held_out_samples);
    (before != now).then_some((before, now))
}
