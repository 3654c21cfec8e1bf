//! Tests of who is let in.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::{Input, Server};
use crate::channel::Token;
use crate::control::client::{ClientError, Control, open_session};

fn token(digits: &str) -> Token {
    Token::parse(&digits.repeat(32)).expect("64 digits")
}

fn server() -> (Server, Receiver<Input>) {
    let (inputs, heard) = channel();
    let inputs = Arc::new(move |input| inputs.send(input).is_ok());
    let (_, status) =
        tokio::sync::watch::channel(super::wire::Status { run: "here".into(), ..Default::default() });
    (Server::start(([127, 0, 0, 1], 0).into(), token("01"), inputs, status).expect("a free port"), heard)
}

fn refusal(heard: &Receiver<Input>) -> String {
    match heard.recv_timeout(Duration::from_secs(20)) {
        Ok(Input::Refused { reason, .. }) => reason,
        other => panic!("the coordinator was told {other:?}"),
    }
}

#[test]
fn only_the_token_is_let_in_and_http_is_not_spoken_before() {
    let (server, heard) = server();
    let address = server.address().to_string();
    let mut control = Control::connect(&address, &token("01")).expect("it holds the token");
    assert_eq!(control.status().expect("it is answered").run, "here");
    let error = Control::connect(&address, &token("02")).err().expect("another token is refused");
    assert!(matches!(&error, ClientError::Stranger { why, .. } if why.contains("--token-file")), "{error}");
    assert!(refusal(&heard).contains("its token is not this run's"));
    let mut stranger = TcpStream::connect(server.address()).expect("it listens");
    stranger.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it hears");
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty(), "who says nothing of ours is told nothing");
    assert!(refusal(&heard).contains("another protocol"));
}

#[test]
fn a_coordinator_that_takes_a_call_and_says_nothing_is_not_waited_for_without_end() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound").to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let opened = runtime.block_on(async {
        let token = token("01");
        let opening = open_session(&address, &token, Default::default(), Duration::from_millis(200));
        tokio::time::timeout(Duration::from_secs(20), opening).await
    });
    let error = opened.expect("it comes to an end").err().expect("no server let it in");
    assert!(
        matches!(&error, ClientError::Unreachable { why, .. } if why.contains("within 200ms")),
        "{error}"
    );
}
