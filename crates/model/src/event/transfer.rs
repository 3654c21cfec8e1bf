//! Parts on their way: connections, links, latency and parsing.

use bellwether_core::prediction::Protocol;
use bellwether_core::profile::OperationKind;
use bellwether_des::fair::LinkId;

use super::connection::{Change, Job, Stream};
use super::engine::{Engine, Event};
use super::trace::Place;
use super::{LinkSharing, Resource, Sizes, StepEnd};

impl Engine<'_> {
    fn is_upload(&self, job: Job) -> bool {
        matches!(self.graph.tasks[job.operation as usize].kind, OperationKind::Upload(_))
    }

    /// The number of the connection that carries a job's part.
    fn connection(&self, job: Job) -> usize {
        let server = self.graph.tasks[job.operation as usize].server as usize;
        let (workers, servers) = (self.setting.workers as usize, self.setting.servers as usize);
        let direction = usize::from(self.is_upload(job));
        match self.setting.link_sharing {
            LinkSharing::MaxMin => (direction * workers + job.worker as usize) * servers + server,
            LinkSharing::OneAtATime => direction * servers + server,
        }
    }

    /// The links of a job's part: the server's and the worker's, in its direction.
    fn path(&self, job: Job) -> [LinkId; 2] {
        let server = self.graph.tasks[job.operation as usize].server as usize;
        let (workers, servers) = (self.setting.workers as usize, self.setting.servers as usize);
        let direction = usize::from(self.is_upload(job));
        let worker = 2 * servers + direction * workers + job.worker as usize;
        [self.link_ids[direction * servers + server], self.link_ids[worker]]
    }

    /// A part waits for its connection.
    pub(super) fn enqueue(&mut self, job: Job) {
        let task = &self.graph.tasks[job.operation as usize];
        let bytes = match self.setting.sizes {
            Sizes::Fixed => task.bytes,
            Sizes::Exponential => self.workers[job.worker as usize].sizes.exponential(task.bytes),
        };
        let number = self.connection(job);
        let connection = &mut self.connections[number];
        let left = connection.flow.map_or(0.0, |flow| self.links.left(self.now_s, flow));
        let stream = Stream { job, bytes, left: bytes, begin_s: -1.0 };
        let change = connection.add(stream, task.level, left, self.now_s);
        match (change, connection.flow) {
            (Change::None, _) => {}
            (Change::Wake, _) => self.idle.push(number as u32),
            (Change::Send(work), Some(flow)) => self.links.set_work(self.now_s, flow, work),
            (Change::Send(_), None) => unreachable!("only what flows can change its work"),
        }
    }

    /// Lets idle connections begin to send.
    pub(super) fn start_idle(&mut self) {
        for number in std::mem::take(&mut self.idle) {
            let connection = &mut self.connections[number as usize];
            let Some(work) = connection.next(self.now_s) else { continue };
            let job = connection.job().expect("something is sent");
            let flow = self.links.start(self.now_s, &self.path(job), work, number);
            self.connections[number as usize].flow = Some(flow);
        }
    }

    /// The next flow has sent what it was given.
    pub(super) fn end_turn(&mut self) {
        let Some((time_s, flow)) = self.links.finish() else { return };
        self.transfers += 1;
        self.now_s = self.now_s.max(time_s);
        let number = *self.links.customer(flow);
        let connection = &mut self.connections[number as usize];
        let before = connection.job().map(|job| job.worker);
        let sent = connection.end_turn();
        match connection.next(self.now_s) {
            Some(work) if before == connection.job().map(|job| job.worker) => self.links.extend(flow, work),
            Some(work) => {
                // Another worker's turn on a server's link: its own link takes part now.
                self.links.stop(self.now_s, flow);
                let job = connection.job().expect("something is sent");
                let path = self.path(job);
                let flow = self.links.start(self.now_s, &path, work, number);
                self.connections[number as usize].flow = Some(flow);
            }
            None => {
                connection.flow = None;
                self.links.stop(self.now_s, flow);
            }
        }
        if let Some(stream) = sent {
            self.sent(stream);
        }
    }

    /// The last byte of a part has left.
    fn sent(&mut self, stream: Stream) {
        let job = stream.job;
        let (upload, server) = (self.is_upload(job), self.graph.tasks[job.operation as usize].server);
        let (at_server, at_worker) = match upload {
            true => (Resource::ServerUplink(server), Resource::WorkerUplink(job.worker)),
            false => (Resource::ServerDownlink(server), Resource::WorkerDownlink(job.worker)),
        };
        self.measure.work(at_server, stream.bytes / self.setting.server_link_bytes_per_s);
        self.measure.work(at_worker, stream.bytes / self.setting.worker_link_bytes_per_s);
        let place = if upload { Place::Upload(server) } else { Place::Download(server) };
        self.record(job, place, stream.begin_s, self.now_s);
        if upload && self.setting.step_end == StepEnd::Sent {
            self.complete(job.worker, job.operation);
        }
        self.later(self.setting.latency_s, Event::Arrived(job));
    }

    /// The last byte of a part has arrived: it is parsed after those that came before it.
    pub(super) fn arrived(&mut self, job: Job) {
        let task = &self.graph.tasks[job.operation as usize];
        if task.parse_s == 0.0 {
            return self.parsed(job);
        }
        let (process, resource) = match self.is_upload(job) {
            true => (self.setting.workers + task.server, Resource::ServerParser(task.server)),
            false => (job.worker, Resource::WorkerParser(job.worker)),
        };
        let free_s = &mut self.parser_free_s[process as usize];
        let begin_s = free_s.max(self.now_s);
        *free_s = begin_s + task.parse_s;
        let end_s = *free_s;
        self.measure.work(resource, task.parse_s);
        self.record(job, Place::Parse(self.is_upload(job).then_some(task.server)), begin_s, end_s);
        self.later(end_s - self.now_s, Event::Parsed(job));
    }

    pub(super) fn parsed(&mut self, job: Job) {
        let sent_is_done = self.setting.step_end == StepEnd::Sent && self.setting.protocol != Protocol::Bsp;
        if !self.is_upload(job) {
            return self.complete(job.worker, job.operation);
        }
        if !sent_is_done {
            // A gradient that nothing follows counts as applied now, and the worker must hear of it.
            if self.graph.followers(job.operation).is_empty() {
                self.applied(job);
                return self.later(self.setting.latency_s, Event::Known(job));
            }
            return self.complete(job.worker, job.operation);
        }
        // The worker has gone on; the server still has to apply the gradient.
        let graph = self.graph;
        let part = graph.tasks[job.operation as usize].part;
        for follower in graph.followers(job.operation) {
            if graph.tasks[*follower as usize].kind == OperationKind::Update(part) {
                self.update(Job { operation: *follower, ..job });
            }
        }
    }
}
