//! Submits jobs: each once, also where an answer is lost, and the waiting ones of an earlier coordinator first.

use std::ffi::OsString;
use std::time::Instant;

use bellwether_runtime::run_dir::Ticket;

use super::{Clerk, LONGEST_PAUSE, LOOK_EAGER};
use crate::programs::{Call, ProgramError};
use crate::slurm::answers;
use crate::slurm::board::{Post, Role, Stage, Wish};

impl Clerk {
    /// Gives tickets to those that were asked for.
    pub(super) fn take_up(&mut self) {
        if self.adopts {
            return;
        }
        let mut board = self.shared.lock();
        for (slot, post) in std::mem::take(&mut board.asked) {
            let ticket = self.tickets.next();
            *slot.lock().expect("no holder of this lock panics") = Some(ticket);
            board.posts.insert(ticket, post);
        }
    }

    /// Submits what is not submitted, each at its time.
    pub(super) fn submit(&mut self) {
        let now = Instant::now();
        let due: Vec<u64> = {
            let board = self.shared.lock();
            let is_due = |post: &Post| match post.stage {
                Stage::Unsubmitted { not_before, .. } => not_before.is_none_or(|at| at <= now),
                _ => false,
            };
            board.posts.iter().filter(|(_, post)| is_due(post)).map(|(ticket, _)| *ticket).collect()
        };
        for ticket in due {
            self.submit_one(ticket);
            if self.shared.lock().is_closing {
                return;
            }
        }
    }

    fn submit_one(&mut self, ticket: u64) {
        let Some((post, node)) = self.prepared(ticket) else { return };
        let told = Ticket { join: post.join.to_string(), number: post.number };
        if let Err(error) = self.tickets.write(ticket, &told) {
            return self.failed(ticket, &post, format!("its ticket cannot be written: {error}"), true);
        }
        if let Stage::Unsubmitted { is_uncertain: true, .. } = post.stage {
            // The answer was lost: it may be there all the same.
            match self.queue() {
                Ok(jobs) => {
                    let mark = self.comment(post.role, ticket);
                    if let Some(job) = jobs.iter().find(|job| job.comment == mark) {
                        return self.submitted(ticket, (job.job, mark), node);
                    }
                }
                Err(error) => return self.failed(ticket, &post, error.to_string(), true),
            }
        }
        if let Some(job) = self.adopted(&post, node.as_ref(), &told) {
            return self.submitted(ticket, job, node);
        }
        let mut arguments = vec![OsString::from("--parsable")];
        arguments.extend(self.script.options.iter().cloned());
        arguments.extend(node.iter().map(|node| format!("--nodelist={node}").into()));
        arguments.push(format!("--comment={}", self.comment(post.role, ticket)).into());
        let text = (self.script.text)(post.role, &post, &self.tickets.file(ticket));
        let call = Call::new("sbatch", arguments).reading(text).variables(self.script.environment.clone());
        let answer = call.answer().and_then(|answer| {
            answers::submitted(&answer).map_err(|what| ProgramError::Garbled { program: "sbatch", what })
        });
        match answer {
            Ok(job) => {
                self.answers();
                self.submitted(ticket, (job, self.comment(post.role, ticket)), node);
            }
            Err(error) => {
                let passing = error.is_passing();
                if passing {
                    self.lament(&error);
                }
                self.failed(ticket, &post, error.to_string(), passing);
            }
        }
    }

    /// The post with this ticket, and the node on which it has to run. One that should not run needs no job.
    fn prepared(&self, ticket: u64) -> Option<(Post, Option<String>)> {
        let mut board = self.shared.lock();
        let node = board.placement.as_ref().and_then(|placement| {
            let taken = |node: &String| {
                let there = |(other, post): &(&u64, &Post)| {
                    **other != ticket && post.node.as_ref() == Some(node) && !post.is_over()
                };
                board.posts.iter().filter(there).count() as u32
            };
            // The fullest that has room; where none has, the one that is least too full.
            let room = |(node, most): &(&String, &u32)| i64::from(**most) - i64::from(taken(node));
            let roomy = placement.iter().filter(|entry| room(entry) > 0).min_by_key(room);
            let any = || placement.iter().filter(|(_, most)| **most > 0).max_by_key(room);
            roomy.or_else(any).map(|(node, _)| node.clone())
        });
        let post = board.posts.get_mut(&ticket)?;
        let Stage::Unsubmitted { is_uncertain, .. } = post.stage else { return None };
        if post.wish != Wish::Stay && !is_uncertain {
            post.stage = Stage::Over { how: "it was not needed any more".into() };
            return None;
        }
        Some((post.clone(), node))
    }

    fn comment(&self, role: Role, ticket: u64) -> String {
        format!("{}{} {ticket}", self.mark, role.word())
    }

    /// A job of an earlier coordinator that waits, told what it is now.
    fn adopted(&mut self, post: &Post, node: Option<&String>, told: &Ticket) -> Option<(u64, String)> {
        // Which node such a job waits for is not known.
        let free = node.is_none();
        let (job, ticket) = self
            .spare
            .iter()
            .find(|(_, (role, _))| free && *role == post.role)
            .map(|(j, (_, t))| (*j, *t))?;
        self.spare.remove(&job);
        self.tickets.write(ticket, told).ok().map(|()| (job, self.comment(post.role, ticket)))
    }

    fn submitted(&mut self, ticket: u64, (job, mark): (u64, String), node: Option<String>) {
        let mut board = self.shared.lock();
        if let Some(post) = board.posts.get_mut(&ticket) {
            post.stage = Stage::Waits { job, reason: String::new() };
            (post.node, post.mark) = (node, mark);
        }
        self.queue_at = self.queue_at.min(Instant::now() + LOOK_EAGER / 2);
    }

    /// Slurm has not accepted the job, and may another time.
    fn failed(&mut self, ticket: u64, post: &Post, why: String, again: bool) {
        let Stage::Unsubmitted { failures, .. } = post.stage else { return };
        let stage = match again {
            false => Stage::Over { how: why },
            true => {
                let pause = LOOK_EAGER.saturating_mul(1 << failures.min(8)).min(LONGEST_PAUSE);
                let not_before = Some(Instant::now() + pause);
                Stage::Unsubmitted { is_uncertain: true, not_before, failures: failures + 1 }
            }
        };
        if let Some(post) = self.shared.lock().posts.get_mut(&ticket) {
            post.stage = stage;
        }
    }
}
