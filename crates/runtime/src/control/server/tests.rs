//! Tests of who is let in.

use std::sync::mpsc::channel;

use tonic::{Code, Request};

use super::{Gate, Input};
use crate::control::{PROTOCOL, PROTOCOL_KEY, TOKEN_KEY, Token};

/// The code with which a call with this token and version is refused, and what the coordinator hears.
fn refusal(bearer: Option<&Token>, version: &str) -> Option<(Code, String)> {
    let (inputs, heard) = channel();
    let gate = Gate { token: Token::parse(&"01".repeat(32)).expect("64 digits"), inputs };
    let mut request = Request::new(());
    if let Some(token) = bearer {
        request.metadata_mut().insert(TOKEN_KEY, token.bearer().parse().expect("plain text"));
    }
    request.metadata_mut().insert(PROTOCOL_KEY, version.parse().expect("plain text"));
    let status = gate.admit(request).err()?;
    match heard.try_recv() {
        Ok(Input::Refused { reason, .. }) => Some((status.code(), reason)),
        other => panic!("the coordinator was told {other:?}"),
    }
}

#[test]
fn only_the_token_and_the_version_of_this_release_are_let_in() {
    let token = Token::parse(&"01".repeat(32)).expect("64 digits");
    let wrong = Token::parse(&"02".repeat(32)).expect("64 digits");
    let current = PROTOCOL.to_string();
    assert_eq!(refusal(Some(&token), &current), None);
    for version in [(PROTOCOL + 1).to_string(), "one".into(), "".into()] {
        let (code, reason) = refusal(Some(&token), &version).expect("another version is refused");
        assert_eq!(code, Code::FailedPrecondition);
        assert!(reason.contains("control protocol") && reason.contains("same release"), "{reason}");
    }
    assert_eq!(refusal(Some(&wrong), &current).expect("a wrong token is refused").0, Code::Unauthenticated);
    assert_eq!(refusal(None, &current).expect("no token is refused").0, Code::Unauthenticated);
}
