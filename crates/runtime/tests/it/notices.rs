//! Notices of the provider: heard from servers that behave, survived from servers that do not.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bellwether_runtime::notice::ec2::{Ec2, action};
use bellwether_runtime::notice::gce::{Gce, preempted};
use bellwether_runtime::notice::{Listening, Notice, NoticeError, Notices, Source, watch};
use bellwether_testkit::metadata_server::{HOSTILE, Play, StandIn};
use proptest::prelude::*;

/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

const TERMINATE: &str = r#"{"action": "terminate", "time": "2017-09-18T08:22:00Z"}"#;

fn gce(server: &StandIn) -> Gce {
    Gce::new(server.url(), Duration::from_secs(1))
}

#[track_caller]
fn heard(notices: &mut dyn Notices) -> Option<Notice> {
    notices.poll().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn ec2_says_nothing_until_it_announces() {
    let server = StandIn::start(Play::Ec2);
    let mut notices = Ec2::new(server.url());
    assert_eq!((heard(&mut notices), heard(&mut notices)), (None, None));
    assert_eq!(server.tokens(), 1, "one token serves many questions");
    server.announce(TERMINATE);
    let notice = heard(&mut notices).expect("a notice");
    // That time has passed long ago.
    assert_eq!((notice.within_s, notice.what.as_str()), (Some(0.0), "EC2 will terminate this server"));
    assert_eq!(heard(&mut notices), Some(notice), "a notice stays");
}

#[test]
fn a_token_that_expired_is_renewed_at_once() {
    let server = StandIn::start(Play::Ec2);
    let mut notices = Ec2::new(server.url());
    assert_eq!(heard(&mut notices), None);
    server.expire();
    server.announce(TERMINATE);
    assert!(heard(&mut notices).is_some());
    assert_eq!(server.tokens(), 2);
}

#[test]
fn compute_engine_is_asked_to_answer_when_the_flag_changes() {
    let server = StandIn::start(Play::Gce);
    let mut notices = Gce::new(server.url(), Duration::from_secs(20));
    assert_eq!(heard(&mut notices), None, "the first question does not wait");
    std::thread::scope(|threads| {
        let waiting = threads.spawn(move || (heard(&mut notices), Instant::now()));
        let begun = Instant::now();
        while server.requests().len() < 2 {
            assert!(begun.elapsed() < PATIENCE, "no second question");
            std::thread::sleep(Duration::from_millis(1));
        }
        let announced = Instant::now();
        server.announce("TRUE");
        let (notice, at) = waiting.join().expect("no panic");
        assert_eq!(
            notice.map(|n| n.to_string()).as_deref(),
            Some("Compute Engine preempts this server within 30 s")
        );
        assert!(at - announced < Duration::from_secs(10), "it did not wait for the next question");
    });
    let query = "?wait_for_change=true&timeout_sec=20&last_etag=0000000000000007 ";
    assert!(server.requests()[1].contains(query), "{:?}", server.requests());
}

#[test]
fn a_flag_that_does_not_change_is_asked_for_again() {
    let server = StandIn::start(Play::Gce);
    let mut notices = gce(&server);
    assert_eq!([heard(&mut notices), heard(&mut notices), heard(&mut notices)], [None, None, None]);
    server.announce("TRUE");
    assert!(heard(&mut notices).is_some());
}

/// An error, soon, no matter which source is asked.
#[test]
fn hostile_servers_cost_a_few_seconds_and_an_error() {
    std::thread::scope(|threads| {
        for play in HOSTILE {
            for provider in [Play::Gce, Play::Ec2] {
                threads.spawn(move || {
                    let server = StandIn::start(play);
                    let mut notices: Box<dyn Notices> = match provider {
                        Play::Gce => Box::new(gce(&server)),
                        _ => Box::new(Ec2::new(server.url())),
                    };
                    let begun = Instant::now();
                    let result = notices.poll();
                    assert!(result.is_err(), "{play:?} to {provider:?}: {result:?}");
                    // Two seconds, and what a busy machine adds.
                    assert!(begun.elapsed() < Duration::from_secs(10), "{play:?} to {provider:?}");
                    // More than the sockets hold is not taken, and no redirect is followed.
                    assert!(
                        server.poured() < 32 << 20,
                        "{play:?} to {provider:?}: {} bytes",
                        server.poured()
                    );
                    assert_eq!(server.requests().len(), 1, "{play:?} to {provider:?}");
                    // The same client gets an answer once the server works again.
                    server.play(provider);
                    server.announce(if provider == Play::Gce { "TRUE" } else { TERMINATE });
                    assert!(heard(&mut *notices).is_some(), "{play:?} to {provider:?}");
                });
            }
        }
    });
}

#[test]
fn one_provider_is_not_taken_for_the_other() {
    let server = StandIn::start(Play::Gce);
    server.announce("TRUE");
    let error = Ec2::new(server.url()).poll().expect_err("Compute Engine refuses");
    assert!(
        matches!(&error, NoticeError::Garbled { what, .. } if what == "status 403 instead of a token"),
        "{error}"
    );
    let server = StandIn::start(Play::Ec2);
    server.announce(TERMINATE);
    let error = gce(&server).poll().expect_err("EC2 refuses");
    assert!(matches!(&error, NoticeError::Garbled { what, .. } if what == "status 401"), "{error}");
}

/// What [`watch`] said in `it_says_once_that_no_server_answers`.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn it_says_once_that_no_server_answers() {
    let server = StandIn::start(Play::Close);
    let listening = Listening {
        sources: vec![Source::Ec2(server.url())],
        interval: Duration::from_millis(5),
        log: |line| SAID.lock().expect("no holder of this lock panics").push(line.into()),
    };
    let (notices, heard) = mpsc::channel();
    let _watch = watch(&listening, move |notice| notices.send(notice).unwrap_or_default()).unwrap();
    let begun = Instant::now();
    while server.requests().len() < 4 {
        assert!(begun.elapsed() < PATIENCE, "it does not ask again");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.play(Play::Ec2);
    let said = || SAID.lock().expect("no holder of this lock panics").clone();
    while said().len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it does not say that it is answered: {:?}", said());
        std::thread::sleep(Duration::from_millis(1));
    }
    server.announce(TERMINATE);
    assert_eq!(heard.recv_timeout(PATIENCE).expect("a notice").what, "EC2 will terminate this server");
    let said = said();
    assert_eq!(said.len(), 3, "{said:?}");
    for (line, words) in said.iter().zip(["does not answer", "answers again", "terminate this server"]) {
        assert!(line.contains(words), "{said:?}");
    }
}

#[test]
fn the_time_that_is_left_is_what_ec2_says() {
    let now = UNIX_EPOCH + Duration::from_secs(1_505_722_920);
    let left = |text: &str, now: SystemTime| action(text.as_bytes()).expect("an action").notice(now).within_s;
    assert_eq!(left(TERMINATE, now - Duration::from_secs(119)), Some(119.0));
    assert_eq!(left(TERMINATE, now + Duration::from_secs(119)), Some(0.0));
    for time in [r#""soon""#, "12", "null", r#""2017-02-30T08:22:00Z""#] {
        assert_eq!(left(&format!(r#"{{"action": "stop", "time": {time}}}"#), now), None, "{time}");
    }
    assert_eq!(left(r#"{"action":"hibernate"}"#, now), None);
}

#[test]
fn what_is_no_action_is_no_notice() {
    let others =
        [r#"{"action": "none"}"#, r#"{"action": "Terminate"}"#, r#"{"time": "2017-09-18T08:22:00Z"}"#];
    for body in others.into_iter().chain(["terminate", "[]", "null", ""]) {
        assert!(action(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn addresses_may_be_of_the_sixth_version_or_have_a_path() {
    for url in ["http://[fd00:ec2::254]", "http://metadata:80", "http://10.0.0.7:8080/node/12"] {
        assert_eq!(format!("ec2={url}").parse(), Ok(Source::Ec2(url.into())));
        assert_eq!(format!("gce={url}/").parse(), Ok(Source::Gce(url.into())));
    }
}

#[test]
fn addresses_that_cannot_be_asked_are_refused_in_words() {
    for (text, words) in [
        ("azure", "expected gce, ec2, sigterm"),
        ("sigterm=http://10.0.0.7", "expected gce, ec2, sigterm"),
        ("ec2=https://10.0.0.7", "TLS"),
        ("ec2=10.0.0.7", "expected http://HOST:PORT"),
        ("gce=http://", "expected http://HOST:PORT"),
        ("gce=http://user@host", "expected http://HOST:PORT"),
        ("gce=http://host/?a=b", "expected http://HOST:PORT"),
        ("", "expected gce"),
    ] {
        let error = text.parse::<Source>().expect_err(text).to_string();
        assert!(error.contains(words), "`{text}`: {error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>, text: String) {
        let _ = (preempted(&bytes), action(&bytes), action(text.as_bytes()), text.parse::<Source>());
    }

    /// Damaged items are read as before or refused; a time never makes it panic.
    #[test]
    fn a_damaged_item_is_refused_or_read(at in 0..TERMINATE.len(), byte: u8, time in "[-+0-9TZ:. é]{0,30}") {
        let mut bytes = TERMINATE.as_bytes().to_vec();
        bytes[at] = byte;
        let read = action(&bytes);
        prop_assert!(read.as_ref().map_or(true, |read| read.verb == "terminate"), "{read:?}");
        let item = serde_json::json!({"action": "stop", "time": time, "more": {"a": [1]}});
        prop_assert_eq!(action(item.to_string().as_bytes()).map(|read| read.verb), Ok("stop"));
    }

    #[test]
    fn only_two_words_are_a_flag(text in "(TRUE|FALSE|true|1|.{0,8})[ \r\n]{0,2}") {
        let expected = match text.trim_matches([' ', '\r', '\n', '\t', '\x0c']) {
            "TRUE" => Some(true),
            "FALSE" => Some(false),
            _ => None,
        };
        prop_assert_eq!(preempted(text.as_bytes()).ok(), expected);
    }
}
