//! Queues that clients choose, and what a job's queue allows.

use bellwether_core::InputError;
use bellwether_core::policy::Fault;
use bellwether_core::queue::{DEFAULT_QUEUE, QueueTree, QueuesFile};

use super::requests::{Answered, refused};
use super::{Accepted, Engine};
use crate::clock::Clock;
use crate::ledger::Entry;
use crate::request::RefusalKind;
use crate::runner::JobRunner;
use crate::state::Record;

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Other queues divide the slots from now on.
    pub(super) fn divide(&mut self, queues: Option<QueuesFile>, by: String) -> Answered {
        if let Err(error) = self.check_queues(queues.as_ref()) {
            return Ok(Err(refused(RefusalKind::Invalid, error)));
        }
        if queues.as_ref() != self.state.queues_file().map(|file| &**file) {
            self.write(Entry::QueuesChosen { queues, by })?;
            // Clients see of each job in which queue it is, and the queues themselves.
            self.state.touched.extend(self.state.jobs.keys());
        }
        Ok::<_, Fault>(Ok(Accepted::Queues))
    }

    /// Whether these queues can be: the slots are those of this daemon, and every job that has not ended has a place in
    /// which it can run.
    pub(super) fn check_queues(&self, queues: Option<&QueuesFile>) -> Result<(), InputError> {
        let Some(file) = queues else { return Ok(()) };
        let tree = QueueTree::new(file, "queues")?;
        tree.check_cluster(&self.state.view, "queues")?;
        let open = self.state.jobs.values().filter(|record| record.end.is_none() && !record.cancelled);
        // On machines of its own a job takes no queue's slots.
        for record in open.filter(|record| record.submitted.provision.is_none()) {
            let submitted = &record.submitted;
            let of_job = tree.of_job(submitted.queue.as_deref());
            let queue = of_job.map_err(|error| {
                let what = format!("job `{}` has not ended, and {}", submitted.name, error.what);
                let hint = "keep the queue until its jobs have ended, or cancel them";
                InputError::new("queues", what).hint(hint)
            })?;
            let most = self.most(&tree, queue, &submitted.device_types);
            let needs = self.needs(record);
            if needs > most {
                let name = &tree.queues()[queue].name;
                let what = format!(
                    "job `{}` has not ended and needs {needs} slots, and its queue `{name}` may hold {most} of one type",
                    submitted.name
                );
                return Err(
                    InputError::new("queues", what).hint("raise the queue's `limit`, or cancel the job")
                );
            }
        }
        Ok(())
    }

    /// The fewest slots with which a job runs.
    fn needs(&self, record: &Record) -> u32 {
        let seen = record.unseen().or_else(|| self.state.view.jobs.get(&record.submitted.id));
        let workers = seen.map_or(record.submitted.workers, |seen| record.workers(seen));
        workers.min.saturating_add(record.fewest_servers())
    }

    /// The most slots of one type that a queue may hold.
    fn most(&self, tree: &QueueTree, queue: usize, device_types: &[u16]) -> u32 {
        let view = &self.state.view;
        let named = |kind: &u16| device_types.is_empty() || device_types.contains(kind);
        let kinds = (0..view.device_types.len() as u16).filter(named);
        kinds.map(|kind| tree.most(view, queue, kind)).max().unwrap_or(0)
    }

    /// Whether a job may name this queue.
    pub(super) fn check_queue(&self, queue: Option<&str>) -> Result<(), InputError> {
        match (&self.state.queues, queue) {
            (Some(queues), queue) => queues.tree.of_job(queue).map(drop),
            (None, None | Some(DEFAULT_QUEUE)) => Ok(()),
            (None, Some(name)) => {
                let what = format!("there is no queue `{name}`: nothing divides the slots of this daemon");
                Err(InputError::new("queue", what)
                    .hint("leave the queue out, or divide the slots: `bellwether queues QUEUES.toml`"))
            }
        }
    }

    /// A job that needs more than its queue may ever hold would wait for ever.
    pub(super) fn check_limit(
        &self,
        needs: u32,
        device_types: &[u16],
        queue: Option<&str>,
    ) -> Result<(), InputError> {
        let Some(queues) = &self.state.queues else { return Ok(()) };
        // A queue that is gone is another mistake.
        let Ok(at) = queues.tree.of_job(queue) else { return Ok(()) };
        let most = self.most(&queues.tree, at, device_types);
        if needs <= most {
            return Ok(());
        }
        let name = &queues.tree.queues()[at].name;
        let what = format!("it needs {needs} slots, and its queue `{name}` may hold {most} of one type");
        Err(InputError::new("workers", what)
            .hint("ask for fewer workers, or let an operator raise the limit"))
    }
}
