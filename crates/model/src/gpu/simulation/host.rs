//! Launches of one process: a process that launches ahead of the device fills its queue, and holds up the others.

use std::collections::VecDeque;

use super::Simulation;

/// The host's side of a process.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Streams that want to launch and cannot, in the order in which they wanted to.
    waiting: VecDeque<usize>,
}

impl Simulation<'_> {
    /// Lets a stream launch, or wait for another of its process that holds the host.
    pub(super) fn launch(&mut self, stream: usize) {
        let host = self.streams[stream].host;
        if self.is_held(host, stream) {
            self.hosts[host].waiting.push_back(stream);
        } else {
            self.queue(stream);
        }
    }

    /// Notes that a launch of a stream has ended: its place in the queue is free, and if the stream held the host it
    /// lets go for one launch of another.
    pub(super) fn let_through(&mut self, stream: usize) {
        let host = self.streams[stream].host;
        self.streams[stream].left -= 1;
        if !self.streams[stream].stream.run_ahead {
            return;
        }
        while let Some(waiting) = self.hosts[host].waiting.pop_front() {
            self.queue(waiting);
            if self.is_held(host, waiting) {
                break;
            }
        }
    }

    /// Whether a stream other than this one has more to launch than the queue takes.
    fn is_held(&self, host: usize, except: usize) -> bool {
        let full = u64::from(self.workload.launch_queue);
        self.streams.iter().enumerate().any(|(number, state)| {
            number != except && state.host == host && state.stream.run_ahead && state.left > full
        })
    }
}
