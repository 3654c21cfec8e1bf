//! What protection costs: messages and all-reduces of two workers over TCP on one machine, as they are and encrypted,
//! in turns, beside the cipher alone.
//!
//! `cargo run --release -p bellwether-runtime --example channel_speed [ROUNDS]`; a calm machine with two cores.
//!
//! A worker sends, receives, seals and opens with one thread, so what TCP and the cipher allow together is the sum of
//! the times that each takes alone: `rate = 1 / (1 / TCP + 1 / cipher)`. The two workers have a core each.

#![allow(clippy::print_stdout, reason = "a measurement is printed")]

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_runtime::channel::{Cipher, ConnectionKind, Hello, Listener, Stream, Token, dial};
use bellwether_runtime::collective::{Collective, CollectivePlan, Member, Stamp, wake_pair};
use bellwether_runtime::mesh::Mesh;
use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Bytes of a message or vector, and how many make a turn.
const SIZES: [(usize, u32); 3] = [(4, 2000), (1 << 20, 60), (64 << 20, 1)];

/// Bytes in the longest record.
const RECORD: usize = 65_518;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(21);
    let cipher = Cipher::fastest();
    println!("{}, {rounds} turns each; load {}", cipher.name(), load());
    let ways = [Cipher::Unencrypted, cipher].map(Pair::connect);
    for (bytes, count) in SIZES {
        // A message is sealed at one end and opened at the other at the same time; an all-reduce does both at both.
        let half = || alone(cipher, bytes, count).map(|seconds| seconds / 2.0);
        compare(&format!("message of {bytes} B"), rounds, &ways, |way| way.messages(bytes, count), half);
        let whole = || alone(cipher, bytes, count);
        compare(
            &format!("all-reduce of {bytes} B"),
            rounds,
            &ways,
            |way| way.all_reduce(bytes, count),
            whole,
        );
    }
    println!("load {}", load());
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// Measures in turns and prints what was found, in three ways: the median of the times that passed, the least of them
/// (what others on the machine disturb least), and the median of the processor's time, which others do not add to.
fn compare(
    what: &str,
    rounds: u32,
    [plain, sealed]: &[Pair; 2],
    way: impl Fn(&Pair) -> Spent,
    cipher: impl Fn() -> Spent,
) {
    let mut turns = [const { Vec::new() }; 6];
    for _ in 0..rounds {
        let turn = [way(plain), way(sealed), cipher()];
        for (times, spent) in turns.chunks_exact_mut(2).zip(turn) {
            times.iter_mut().zip(spent).for_each(|(times, seconds)| times.push(seconds));
        }
    }
    turns.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let median = |place: usize| turns[place][turns[place].len() / 2];
    show(what, "median", [0, 2, 4].map(median));
    show(what, "least", [0, 2, 4].map(|place| turns[place][0]));
    show(what, "processor", [1, 3, 5].map(median));
}

/// Seconds that passed, and seconds for which this process had a processor.
type Spent = [f64; 2];

/// The clocks of [`Spent`], since a moment.
struct Clocks(Instant, f64);

impl Clocks {
    fn start() -> Clocks {
        Clocks(Instant::now(), processor_s())
    }

    /// What each of this many took.
    fn each(&self, count: u32) -> Spent {
        [self.0.elapsed().as_secs_f64(), processor_s() - self.1].map(|seconds| seconds / f64::from(count))
    }
}

fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn show(what: &str, how: &str, seconds: [f64; 3]) {
    let [plain, sealed, cipher] = seconds.map(|seconds| seconds * 1e6);
    println!(
        "{what:26} {how:9}: TCP {plain:11.2} us, cipher {cipher:10.2} us, encrypted {sealed:11.2} us: {:+11.2} us, {:.2} of what \
         both allow",
        sealed - plain,
        (plain + cipher) / sealed
    );
}

/// Two workers, connected twice.
struct Pair {
    streams: [Stream; 2],
    meshes: [Mutex<Mesh>; 2],
}

impl Pair {
    fn connect(cipher: Cipher) -> Pair {
        let token = Token::random().expect("randomness").with_cipher(cipher);
        let place = ([127, 0, 0, 1], 0).into();
        let listener = Listener::bind_remote(place, &token, Arc::new(|_| ())).expect("a port");
        let soon = Instant::now() + Duration::from_secs(10);
        let pair = |kind| {
            let hello = Hello { kind, worker: 1, epoch: 1, to: None };
            let here = dial(listener.local_addr(), &hello, &token, soon).expect("it listens");
            [here, listener.inbox().take(kind, 1, 1, soon).expect("it is admitted")]
        };
        let [left, right] = pair(ConnectionKind::Mesh);
        let (mut one, mut other) = (Mesh::new(), Mesh::new());
        one.insert(1, left).expect("a socket");
        other.insert(0, right).expect("a socket");
        Pair { streams: pair(ConnectionKind::State), meshes: [one.into(), other.into()] }
    }

    /// What one message costs, there or back.
    fn messages(&self, bytes: usize, count: u32) -> Spent {
        let bounce = |mut stream: &Stream, first: bool| {
            let mut bytes = vec![7; bytes];
            for _ in 0..count {
                if first {
                    stream.write_all(&bytes).expect("it is there");
                }
                stream.read_exact(&mut bytes).expect("it is there");
                if !first {
                    stream.write_all(&bytes).expect("it is there");
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| bounce(&self.streams[1], false));
            let clocks = Clocks::start();
            bounce(&self.streams[0], true);
            clocks.each(2 * count)
        })
    }

    /// What one all-reduce costs.
    fn all_reduce(&self, bytes: usize, count: u32) -> Spent {
        let length = bytes / 4;
        let reduce = |me: u32| {
            let members = (0..2).map(|i| Member { worker: u64::from(i), nodes: i..i + 1 }).collect();
            let plan = CollectivePlan::new(2, members, Vec::new(), me.into(), length).expect("a plan");
            let mut collective = Collective::new(plan);
            let mut mesh = self.meshes[me as usize].lock().expect("no holder panics");
            let (_waker, wake) = wake_pair().expect("a pair");
            let (partial, mut out) = (vec![1.0_f32; length], vec![1.0; length]);
            let mut run = |step| {
                let stamp = Stamp { job: 1, epoch: 1, step };
                collective.run(&mut mesh, stamp, b"", &[&partial], &mut out, &wake).expect("it sums");
            };
            run(0);
            let clocks = Clocks::start();
            (1..=u64::from(count)).for_each(run);
            clocks.each(count)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| reduce(1));
            reduce(0)
        })
    }
}

/// What it costs that a worker seals and opens this many bytes, by the cipher alone and from its cache, while another
/// does the same on the other core.
fn alone(cipher: Cipher, bytes: usize, count: u32) -> Spent {
    let work = || {
        let algorithm = if cipher == Cipher::Aes256Gcm { &AES_256_GCM } else { &CHACHA20_POLY1305 };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, &[1; 32]).expect("a key"));
        let nonce = || Nonce::assume_unique_for_key([0; 12]);
        let length = bytes.min(RECORD);
        let mut record = vec![1; length + algorithm.tag_len()];
        let records = count as usize * bytes.div_ceil(RECORD);
        let clocks = Clocks::start();
        for _ in 0..records {
            let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), &mut record[..length]);
            record[length..].copy_from_slice(tag.expect("it is short").as_ref());
            key.open_in_place(nonce(), Aad::empty(), &mut record).expect("it was just sealed");
        }
        clocks.each(count)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let here = work();
        let other = other.join().expect("it does not panic");
        [here[0].max(other[0]), here[1].max(other[1])]
    })
}
