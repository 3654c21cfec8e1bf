//! Jobs that exchange over shared links: by hand, and against a simulation of every exchange.

use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, JobDescription, Link, PredictError, Prediction, StepModel,
    Validity,
};
use bellwether_des::{MaxMinFair, Queue, Stream, Streams};
use bellwether_model::shared_links::{Exchange, FEW, Flow, kept};

/// The part of its speed that each job keeps: the part of its step that is exchange, and its links.
fn kept_in_turn(jobs: &[(f64, &[u32])]) -> Vec<f64> {
    let exchanges: Vec<Exchange> = jobs.iter().map(|(part, _)| Exchange::in_turn(*part)).collect();
    let flow = |((_, links), exchange): (&(f64, &[u32]), _)| Flow { links: links.to_vec(), exchange };
    kept(&jobs.iter().zip(&exchanges).map(flow).collect::<Vec<_>>())
}

fn assert_kept(jobs: &[(f64, &[u32])], expected: &[f64]) {
    let kept = kept_in_turn(jobs);
    let near = kept.iter().zip(expected).all(|(kept, expected)| (kept - expected).abs() < 1e-5);
    assert!(near && kept.len() == expected.len(), "{jobs:?}: {kept:?}, and not {expected:?}");
}

#[test]
fn cases_by_hand() {
    assert_kept(&[(1.0, &[0, 1])], &[1.0]);
    assert_kept(&[(1.0, &[0, 1]), (1.0, &[2, 3])], &[1.0, 1.0]);
    assert_kept(&[(1.0, &[0, 1]), (1.0, &[1, 2])], &[0.5, 0.5]);
    assert_kept(&[(0.0, &[0, 1]), (1.0, &[1, 2])], &[1.0, 1.0]);
    // Mean-value analysis of two: the other one, alone, exchanges for half of the time.
    assert_kept(&[(0.5, &[0, 1]), (0.5, &[0, 1])], &[1.0 / 1.25, 1.0 / 1.25]);
    assert_kept(&[(0.5, &[0, 1]), (0.2, &[1, 2])], &[1.0 / 1.1, 1.0 / 1.1]);
    // Max-min fair: what the first job cannot use of its second link is left to the last one.
    let crowd: [(f64, &[u32]); 4] = [(1.0, &[0, 1]), (1.0, &[0]), (1.0, &[0]), (1.0, &[1])];
    assert_kept(&crowd, &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0]);
    // More than go through all sets of jobs: on one link, and each with a link in common with the next.
    let many = FEW + 2;
    assert_kept(&vec![(1.0, &[7][..]); many], &vec![1.0 / many as f64; many]);
    let links: Vec<[u32; 2]> = (0..many as u32).map(|job| [job, job + 1]).collect();
    let line: Vec<(f64, &[u32])> = links.iter().map(|links| (1.0, &links[..])).collect();
    let mut expected = vec![1.0 / 2.0; many];
    assert_kept(&line, &expected);
    // A job that is connected with none of them changes nothing.
    expected.push(1.0);
    assert_kept(&[&line[..], &[(1.0, &[77, 78])]].concat(), &expected);
}

/// A step of 1 s alone, of which `hidden` of the exchange passes beside computing.
struct Overlapping {
    exchange_s: f64,
    hidden: bool,
}

impl StepModel for Overlapping {
    fn predict(&self, _: &JobDescription, on: &Configuration) -> Result<Prediction, PredictError> {
        let exchange_s = self.exchange_s / on.link.bandwidth_bytes_per_s;
        let step_s = if self.hidden { exchange_s.max(1.0) } else { 1.0 - self.exchange_s + exchange_s };
        let (rate, validity) = (1.0 / step_s, Validity::Interpolated);
        let bottleneck = Bottleneck::Link;
        Ok(Prediction { examples_per_s: rate, low: rate, high: rate, step_s, bottleneck, validity })
    }
}

impl Overlapping {
    fn exchange(&self) -> Exchange {
        let job = JobDescription { name: "j".into(), model: "m".into(), batch: 1, devices: 2 };
        let devices = [0, 1].map(|node| DeviceGroup { node, device: "d".into(), count: 1 }).to_vec();
        let link = Link { bandwidth_bytes_per_s: 1.0, latency_s: 0.0 };
        let configuration = Configuration::synchronous(devices, 1, link);
        Exchange::of(self, &job, &configuration).expect("a model that answers all")
    }
}

#[test]
fn a_model_says_what_is_exchange_and_what_hides_it() {
    let asked = Overlapping { exchange_s: 0.3, hidden: false }.exchange();
    for stretch in [1.0, 1.2, 2.0, 5.0, 9.0, 2000.0] {
        let (known, by_hand) = (asked.step(stretch), Exchange::in_turn(0.3).step(stretch));
        assert!((known / by_hand - 1.0).abs() < 1e-6, "{known} {by_hand}");
    }
    assert!(!Overlapping { exchange_s: 0.0, hidden: false }.exchange().waits_for_links());
    // Hidden at first: it slows the other one down all the same.
    let hidden = Overlapping { exchange_s: 0.5, hidden: true }.exchange();
    assert!(hidden.waits_for_links() && hidden.step(2.0) == 1.0 && hidden.step(4.0) == 2.0);
    let plain = Exchange::in_turn(0.5);
    let flows = [&hidden, &plain].map(|exchange| Flow { links: vec![0], exchange });
    let kept = kept(&flows);
    assert_eq!(kept[0], 1.0);
    assert!((0.7..0.85).contains(&kept[1]), "{kept:?}");
}

/// How computing and exchanges vary from step to step.
#[derive(Debug, Clone, Copy)]
enum Law {
    Exponential,
    /// Within half of the mean, up and down.
    Uniform,
    Constant,
}

impl Law {
    fn draw(self, mean: f64, stream: &mut Stream) -> f64 {
        match self {
            Law::Exponential => stream.exponential(mean),
            Law::Uniform => mean * stream.uniform_in(0.5, 1.5),
            Law::Constant => mean,
        }
    }
}

/// A job of the simulation: seconds of computing, seconds of exchange alone, links, and whether both begin together.
#[derive(Debug, Clone, Copy)]
struct Job(f64, f64, &'static [u32], bool);

/// Steps per second of each job in a simulation of `horizon_s` seconds.
fn simulated(jobs: &[Job], law: Law, horizon_s: f64) -> Vec<f64> {
    let mut links = MaxMinFair::new();
    let ids: Vec<_> = (0..32).map(|_| links.add_link(1.0)).collect();
    let streams = Streams::new(11);
    let mut draws: Vec<Stream> = (0..jobs.len()).map(|job| streams.stream("job", job as u64)).collect();
    let mut computed = Queue::new();
    // What each job waits for before its next step.
    let mut waits = vec![1_u32; jobs.len()];
    let mut steps = vec![0.0; jobs.len()];
    for job in 0..jobs.len() {
        // Steps do not begin together.
        computed.schedule(draws[job].uniform() * (jobs[job].0 + jobs[job].1), (job, true));
    }
    loop {
        let exchanged_s = links.next_time().unwrap_or(f64::INFINITY);
        let now_s = computed.next_time().unwrap_or(f64::INFINITY).min(exchanged_s);
        if now_s > horizon_s {
            return steps.into_iter().map(|steps| steps / horizon_s).collect();
        }
        let job = if exchanged_s <= now_s {
            let (_, flow) = links.finish().expect("it is the next");
            let job = *links.customer(flow);
            links.stop(now_s, flow);
            job
        } else {
            let (_, (job, is_first)) = computed.pop().expect("it is the next");
            let Job(_, exchange_s, own, together) = jobs[job];
            if !together || is_first {
                let path: Vec<_> = own.iter().map(|link| ids[*link as usize]).collect();
                links.start(now_s, &path, law.draw(exchange_s, &mut draws[job]), job);
                if !together {
                    continue;
                }
                waits[job] = 2;
                computed.schedule(now_s + law.draw(jobs[job].0, &mut draws[job]), (job, false));
                continue;
            }
            job
        };
        waits[job] -= 1;
        if waits[job] > 0 {
            continue;
        }
        steps[job] += 1.0;
        waits[job] = 1;
        let Job(compute_s, _, _, together) = jobs[job];
        let pause_s = if together { 0.0 } else { law.draw(compute_s, &mut draws[job]) };
        computed.schedule(now_s + pause_s, (job, true));
    }
}

/// The largest error of a job's step, relative.
fn worst(jobs: &[Job], law: Law) -> f64 {
    let alone_s = |job: &Job| if job.3 { job.0.max(job.1) } else { job.0 + job.1 };
    let exchanges: Vec<Exchange> = jobs
        .iter()
        .map(|job| Overlapping { exchange_s: job.1 / alone_s(job), hidden: job.3 }.exchange())
        .collect();
    let flow = |(job, exchange): (&Job, _)| Flow { links: job.2.to_vec(), exchange };
    let kept = kept(&jobs.iter().zip(&exchanges).map(flow).collect::<Vec<_>>());
    let seen = simulated(jobs, law, 100_000.0);
    let errors =
        kept.iter().zip(&seen).zip(jobs).map(|((kept, seen), job)| (seen * alone_s(job) / kept - 1.0).abs());
    errors.fold(0.0, f64::max)
}

/// Jobs that compute and exchange in turn.
const IN_TURN: &[&[Job]] = &[
    &[Job(1.0, 1.0, &[0, 1], false), Job(1.37, 0.81, &[1, 2], false)],
    &[Job(0.3, 1.7, &[0, 1], false), Job(2.9, 0.4, &[0, 1], false)],
    &[Job(1.0, 1.0, &[0], false), Job(1.7, 0.6, &[0], false), Job(0.4, 0.7, &[0], false)],
    // One over the links of two others; a ring of three; a line of five.
    &[Job(1.0, 1.0, &[0, 1], false), Job(0.6, 0.9, &[0, 2], false), Job(0.7, 1.1, &[1, 3], false)],
    &[Job(0.5, 1.0, &[0, 1], false), Job(0.6, 0.9, &[1, 2], false), Job(0.7, 1.1, &[2, 0], false)],
    &[
        Job(0.9, 0.5, &[0, 1], false),
        Job(1.0, 0.9, &[1, 2], false),
        Job(0.6, 0.7, &[2, 3], false),
        Job(1.1, 1.0, &[3, 4], false),
        Job(1.3, 0.4, &[4, 5], false),
    ],
    // Eight on one link; nine in a line.
    &[
        Job(3.1, 0.3, &[0], false),
        Job(2.7, 0.4, &[0], false),
        Job(5.3, 0.9, &[0], false),
        Job(4.1, 0.2, &[0], false),
        Job(1.9, 0.3, &[0], false),
        Job(3.7, 0.5, &[0], false),
        Job(2.3, 0.1, &[0], false),
        Job(6.1, 1.3, &[0], false),
    ],
    &[
        Job(1.0, 0.5, &[0, 1, 20], false),
        Job(1.3, 0.9, &[1, 2], false),
        Job(0.8, 0.7, &[2, 3], false),
        Job(1.1, 1.0, &[3, 4], false),
        Job(1.7, 0.4, &[4, 5, 20], false),
        Job(0.9, 0.3, &[5, 6], false),
        Job(1.2, 0.8, &[6, 7], false),
        Job(1.4, 0.5, &[7, 8], false),
        Job(0.7, 0.4, &[8, 9], false),
    ],
];

/// Jobs whose exchange passes beside their computing.
const TOGETHER: &[&[Job]] = &[
    &[Job(1.0, 0.9, &[0, 1], true), Job(1.3, 1.2, &[1, 2], true)],
    &[Job(1.0, 0.5, &[0, 1], true), Job(1.3, 0.7, &[1, 2], false)],
    &[Job(1.0, 0.6, &[0], true), Job(1.7, 0.6, &[0], true), Job(0.4, 0.3, &[0], false)],
];

#[test]
fn steps_are_those_of_a_simulation_of_every_exchange() {
    let (few, many) = IN_TURN.split_at(6);
    assert!(few.iter().all(|jobs| jobs.len() <= FEW) && many.iter().all(|jobs| jobs.len() > FEW));
    for (cases, law, most) in [
        (few, Law::Exponential, 0.006),
        (few, Law::Uniform, 0.015),
        (few, Law::Constant, 0.03),
        (many, Law::Exponential, 0.03),
        (many, Law::Uniform, 0.03),
        (many, Law::Constant, 0.04),
        (TOGETHER, Law::Constant, 0.04),
    ] {
        for jobs in cases {
            let worst = worst(jobs, law);
            println!("{} jobs, {law:?}: {:.2} %", jobs.len(), 100.0 * worst);
            assert!(worst < most, "{jobs:?}, {law:?}: {worst}");
        }
    }
}
