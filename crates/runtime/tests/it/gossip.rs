//! Workers that average over loopback: all at once, while they update, with peers that die, hang or talk nonsense.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use bellwether_runtime::channel::{ConnectionKind, Hello, Listener, Stream, dial};
use bellwether_runtime::control::Token;
use bellwether_runtime::gossip::{Gossip, Identity, Shared};
use bellwether_runtime::membership::WorkerId;
use bellwether_runtime::order::mix;

const EPOCH: u64 = 3;

/// Two chunks, the second one shorter.
const VALUES: usize = (1 << 16) + 5000;

fn token() -> Token {
    Token::parse(&"5c".repeat(32)).expect("64 digits")
}

fn listen() -> Listener {
    let token = token();
    Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), &token, Arc::new(|_| {}))
        .expect("loopback is there")
}

struct Node {
    gossip: Gossip,
    shared: Arc<Shared>,
    listener: Listener,
}

fn node(me: WorkerId, values: &[f32]) -> Node {
    let listener = listen();
    let shared = Arc::new(Shared::new(values));
    let identity = Identity { me, token: token(), epoch: EPOCH, seed: 11 };
    let gossip =
        Gossip::start(listener.inbox(), identity, Arc::clone(&shared)).expect("threads are to be had");
    Node { gossip, shared, listener }
}

/// Workers 1, 2, … that know each other, with values of their own.
fn crew(count: u64, len: usize) -> (Vec<Node>, BTreeMap<WorkerId, SocketAddr>) {
    let value = |me: u64, at: usize| (mix(me, at as u64) % 2001) as f32 / 1000.0 - 1.0;
    let values = |me| (0..len).map(|at| value(me, at)).collect::<Vec<f32>>();
    let nodes: Vec<Node> = (1..=count).map(|me| node(me, &values(me))).collect();
    let addresses = (1..).zip(nodes.iter().map(|node| node.listener.local_addr())).collect();
    nodes.iter().for_each(|node| node.gossip.set_peers(&addresses));
    (nodes, addresses)
}

fn read(node: &Node) -> Vec<f32> {
    let mut values = vec![0.0; node.shared.len()];
    node.shared.read(&mut values);
    values
}

/// The sum over the nodes of each value.
fn sums(nodes: &[Node]) -> Vec<f64> {
    let mut sums = vec![0.0; nodes[0].shared.len()];
    for node in nodes {
        sums.iter_mut().zip(read(node)).for_each(|(sum, value)| *sum += f64::from(value));
    }
    sums
}

/// The largest difference between two nodes in any value.
fn spread(nodes: &[Node]) -> f32 {
    let all: Vec<Vec<f32>> = nodes.iter().map(read).collect();
    let range = |at: usize| {
        let column = || all.iter().map(|values| values[at]);
        column().fold(f32::MIN, f32::max) - column().fold(f32::MAX, f32::min)
    };
    (0..all[0].len()).map(range).fold(0.0, f32::max)
}

/// Fails when `body` is not over in a minute: a thread waits for ever.
fn watched(body: impl FnOnce() + Send + 'static) {
    let (sender, over) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = sender.send(());
    });
    let outcome = over.recv_timeout(Duration::from_secs(60));
    assert_ne!(outcome, Err(mpsc::RecvTimeoutError::Timeout), "somebody waits for ever");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn all_at_once_keep_the_mean_lose_no_update_and_agree() {
    watched(|| {
        let (nodes, _) = crew(5, VALUES);
        let before = sums(&nodes);
        let begin = Barrier::new(nodes.len());
        std::thread::scope(|scope| {
            for node in &nodes {
                scope.spawn(|| {
                    for unit in 0..120 {
                        begin.wait();
                        let exchanged =
                            node.gossip.exchange(unit).expect("no peer dies").expect("there are peers");
                        assert_eq!(exchanged.chunks, 2);
                        if unit < 40 {
                            node.shared.update(|range, values| {
                                range.zip(values).for_each(|(at, value)| *value += (at % 7) as f32 / 64.0);
                            });
                        }
                    }
                });
            }
        });
        let updates = 5.0 * 40.0;
        for (at, (before, after)) in before.iter().zip(sums(&nodes)).enumerate() {
            let expected = before + updates * (at % 7) as f64 / 64.0;
            assert!((after - expected).abs() < 1e-3, "value {at}: {after} instead of {expected}");
        }
        assert!(spread(&nodes) < 1e-4, "{}", spread(&nodes));
    });
}

#[test]
fn who_dies_in_the_middle_costs_nothing_but_that_exchange() {
    watched(|| {
        let (mut nodes, mut addresses) = crew(5, VALUES);
        let (dying, victim) = (nodes.remove(1), 2);
        let died = std::thread::scope(|scope| {
            let at_work: Vec<_> = nodes
                .iter()
                .map(|node| {
                    scope.spawn(|| {
                        let skipped = (0..300).filter_map(|unit| node.gossip.exchange(unit).err());
                        skipped.map(|skipped| assert_eq!(skipped.peer, victim, "{skipped}")).count()
                    })
                })
                .collect();
            scope.spawn(move || {
                assert!((0..20).all(|unit| dying.gossip.exchange(unit).is_ok()), "the others live");
                drop(dying);
            });
            at_work.into_iter().map(|thread| thread.join().expect("it went on")).sum::<usize>()
        });
        assert!(died > 0, "it died before they were done");
        assert!(spread(&nodes) < 1e-4, "{}", spread(&nodes));
        assert!(read(&nodes[0]).iter().all(|value| value.abs() <= 1.001), "a mean of what there was");
        // When the membership says so, no peer asks for it any more.
        addresses.remove(&victim);
        nodes.iter().for_each(|node| node.gossip.set_peers(&addresses));
        assert!((0..50).all(|unit| nodes[0].gossip.exchange(unit).is_ok()));
    });
}

#[test]
fn a_newcomer_takes_what_the_others_have() {
    let (nodes, _) = crew(2, VALUES);
    let before = read(&nodes[0]);
    nodes[1].gossip.copy_from(1).expect("the other one lives");
    assert!(read(&nodes[1]) == before && read(&nodes[0]) == before);
    nodes[1].gossip.exchange_with(1).expect("the connection is as good as before");
    assert!(read(&nodes[0]) == before);
    assert_eq!(nodes[1].gossip.copy_from(7).map_err(|skipped| skipped.peer), Err(7));
}

fn call(node: &Node, worker: WorkerId, epoch: u64) -> Stream {
    let token = token();
    let hello = Hello { kind: ConnectionKind::Gossip, worker, epoch, to: None };
    let deadline = Instant::now() + Duration::from_secs(5);
    dial(node.listener.local_addr(), &hello, &token, deadline).expect("it listens")
}

fn assert_closed(mut stream: Stream) {
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time limit is set");
    let closed = stream.read(&mut [0; 1]);
    let reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(closed.as_ref().map_or_else(reset, |count| *count == 0), "{closed:?}");
}

/// Magic, chunk, values.
fn header(words: [u32; 3]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const MAGIC: u32 = 0x4257_676f;

#[test]
fn nonsense_and_strangers_change_nothing() {
    let (nodes, _) = crew(2, 1000);
    let before = read(&nodes[0]);
    assert_closed(call(&nodes[0], 7, EPOCH));
    assert_closed(call(&nodes[0], 2, EPOCH + 1));
    for words in [[1, 0, 1000], [MAGIC, 1, 1000], [MAGIC, 0, 999], [MAGIC, u32::MAX, u32::MAX], [MAGIC, 9, 0]]
    {
        let mut stream = call(&nodes[0], 2, EPOCH);
        stream.write_all(&header(words)).unwrap();
        assert_closed(stream);
    }
    // Half a chunk, then its sender dies.
    let mut stream = call(&nodes[0], 2, EPOCH);
    stream.write_all(&header([MAGIC, 0, 1000])).unwrap();
    stream.write_all(&[0x40; 2000]).unwrap();
    drop(stream);
    assert!(read(&nodes[0]) == before);
    // On a busy machine the sender's death may not be known yet, and a first exchange is skipped.
    let averages = |turn: u32| {
        std::thread::sleep(Duration::from_millis(20) * turn.min(1));
        nodes[1].gossip.exchange_with(1).is_ok()
    };
    assert!((0..100).any(averages));
    assert!(spread(&nodes) < 1e-6, "{}", spread(&nodes));
}

#[test]
fn a_peer_that_answers_nonsense_half_or_never_is_left_out() {
    let (nodes, mut addresses) = crew(2, 1000);
    let before = read(&nodes[0]);
    let fake = listen();
    addresses.insert(9, fake.local_addr());
    nodes[0].gossip.set_peers(&addresses);
    let half = [header([MAGIC, 0, 1000]), vec![0x40; 2000]].concat();
    let others = [header([MAGIC, 1, 1000]), header([MAGIC, 0, 10]), header([0, 0, 0]), half, Vec::new()];
    for answer in others {
        let hangs = answer.is_empty();
        std::thread::scope(|scope| {
            let exchange = scope.spawn(|| nodes[0].gossip.exchange_with(9));
            let deadline = Instant::now() + Duration::from_secs(5);
            let (_, mut stream) = fake.inbox().take_any(ConnectionKind::Gossip, deadline).unwrap();
            let mut chunk = vec![0; 12 + 4000];
            stream.read_exact(&mut chunk).unwrap();
            stream.write_all(&answer).unwrap();
            if !hangs {
                drop(stream);
                assert_eq!(exchange.join().unwrap().unwrap_err().peer, 9);
            } else {
                let begin = Instant::now();
                assert_eq!(exchange.join().unwrap().unwrap_err().peer, 9);
                assert!(begin.elapsed() < Duration::from_secs(4));
            }
        });
        assert!(read(&nodes[0]) == before);
    }
    // What was under way is so no more: the next average is whole.
    let exchanged = nodes[1].gossip.exchange_with(1).unwrap();
    assert_eq!((exchanged.averaged, exchanged.bytes), (1, 4012));
    assert!(spread(&nodes) < 1e-6, "{}", spread(&nodes));
}

#[test]
fn peers_come_and_go_while_others_average() {
    watched(|| {
        let (nodes, addresses) = crew(4, VALUES);
        let without = |worker: WorkerId| {
            let mut some = addresses.clone();
            some.remove(&worker);
            some
        };
        std::thread::scope(|scope| {
            for node in &nodes {
                // One that was just told to go, or not yet told of another, is left out now and then.
                scope.spawn(move || (0..150).filter(|unit| node.gossip.exchange(*unit).is_ok()).count());
            }
            for turn in 0..60 {
                let peers = if turn % 2 == 0 { without(1 + turn / 2 % 4) } else { addresses.clone() };
                nodes.iter().for_each(|node| node.gossip.set_peers(&peers));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        nodes.iter().for_each(|node| node.gossip.set_peers(&addresses));
        for unit in 0..40 {
            nodes.iter().for_each(|node| drop(node.gossip.exchange(unit)));
        }
        assert!(spread(&nodes) < 1e-4, "{}", spread(&nodes));
        assert!(nodes[0].gossip.exchange(0).is_ok());
    });
}

#[test]
fn peers_are_drawn_evenly_and_always_the_same() {
    let (nodes, addresses) = crew(4, 10);
    let mut drawn = BTreeMap::new();
    for unit in 0..3000 {
        let peer = nodes[1].gossip.peer_after(unit).unwrap();
        assert_eq!(nodes[1].gossip.peer_after(unit), Some(peer));
        *drawn.entry(peer).or_insert(0) += 1;
    }
    assert!(
        drawn.keys().eq(&[1, 3, 4]) && drawn.values().all(|count| (900..1100).contains(count)),
        "{drawn:?}"
    );
    nodes[1].gossip.set_peers(&addresses.into_iter().filter(|(worker, _)| *worker == 2).collect());
    assert_eq!(nodes[1].gossip.peer_after(0), None);
    assert!(nodes[1].gossip.exchange(0).unwrap().is_none());
}
