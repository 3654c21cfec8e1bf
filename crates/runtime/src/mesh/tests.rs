//! What a mesh keeps of its connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::*;
use crate::channel::patience::PATIENCE;
use crate::channel::{ConnectionKind, Hello, Listener, Token, dial};

/// Both ends of a connection over TCP.
fn connect(worker: u64) -> (Stream, Stream) {
    let token = Token::parse(&"9".repeat(64)).unwrap();
    let listener = Listener::bind_remote(([127, 0, 0, 1], 0).into(), &token, Arc::new(|_| ())).unwrap();
    let hello = Hello { kind: ConnectionKind::Mesh, worker, epoch: 4, to: None };
    let soon = Instant::now() + Duration::from_secs(20);
    let ours = dial(listener.local_addr(), &hello, &token, soon).unwrap();
    (ours, listener.inbox().take(ConnectionKind::Mesh, 4, worker, soon).unwrap())
}

#[test]
fn both_ends_of_a_connection_notice_silence_and_workers_wait_as_long_as_steps_take() {
    let (ours, theirs) = connect(5);
    let patience = |stream: &Stream| SockRef::from(stream).tcp_user_timeout().unwrap().unwrap();
    for stream in [&ours, &theirs] {
        assert!(SockRef::from(stream).keepalive().unwrap());
        assert_eq!(patience(stream), PATIENCE);
    }
    let mut mesh = Mesh::new();
    mesh.insert(5, theirs).unwrap();
    let of_mesh = |mesh: &Mesh| patience(mesh.get(5).unwrap());
    let unknown = of_mesh(&mesh);
    assert!(unknown >= 10 * PATIENCE, "a first step may take long: {unknown:?}");
    mesh.expect_step(Duration::from_millis(20));
    assert_eq!(of_mesh(&mesh), 2 * PATIENCE);
    mesh.expect_step(Duration::from_secs(100));
    assert!(of_mesh(&mesh) >= Duration::from_secs(1000));
    mesh.expect_step(Duration::from_millis(20));
    assert!(of_mesh(&mesh) >= Duration::from_secs(1000), "the longest counts");
}

#[test]
fn a_mesh_keeps_connections_by_worker() {
    let mut mesh = Mesh::new();
    for worker in [8, 3] {
        mesh.insert(worker, connect(worker).0).unwrap();
    }
    assert_eq!(mesh.workers().collect::<Vec<_>>(), [3, 8]);
    assert!(SockRef::from(mesh.get(3).unwrap()).tcp_nodelay().unwrap());
    assert!(mesh.remove(3).is_some() && mesh.get(3).is_none() && mesh.len() == 1);
    mesh.clear();
    assert!(mesh.is_empty());
}
