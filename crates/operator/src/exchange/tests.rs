//! The client and the server over a loopback connection, and strangers at the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_runtime::run_dir::{RunDir, RunFile};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const UID: &str = "0f2e-1";

/// An operator with one job.
struct Operator {
    folder: TempDir,
    address: SocketAddr,
    desk: Desk,
    /// The pod that leads the run.
    leads: Arc<Mutex<String>>,
    news: Receiver<(String, News)>,
}

struct OneJob {
    run: RunDir,
    leads: Arc<Mutex<String>>,
}

impl Exchange for OneJob {
    fn lookup(&self, uid: &str) -> Option<JobSide> {
        let coordinator = Some(self.leads.lock().unwrap().clone());
        (uid == UID).then(|| JobSide { token: token_of(&[1; 32], UID), run: self.run.clone(), coordinator })
    }
}

impl Operator {
    fn new() -> Operator {
        let folder = tempfile::tempdir().unwrap();
        let leads = Arc::new(Mutex::new("pod-0".to_string()));
        let job = OneJob { run: RunDir::at(folder.path().join("run")), leads: leads.clone() };
        let (tell, news) = channel();
        let desk = Desk::new(move |uid, news| drop(tell.send((uid.into(), news))));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let routes = routes(Arc::new(job), desk.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // It ends with the tests.
        std::thread::spawn(move || {
            let listener = {
                let _entered = runtime.enter();
                tokio::net::TcpListener::from_std(listener).unwrap()
            };
            runtime.block_on(serve(listener, routes))
        });
        Operator { folder, address, desk, leads, news }
    }

    fn client(&self, pod: &str) -> Client {
        Client::new(&format!("http://{}", self.address), UID, pod, &token_of(&[1; 32], UID)).unwrap()
    }

    fn copy(&self, file: RunFile) -> Vec<u8> {
        std::fs::read(RunDir::at(self.folder.path().join("run")).file(file)).unwrap_or_default()
    }

    /// Sends bytes as they are, and nothing more if `ends`. Returns the first line of what is answered.
    fn raw(&self, bytes: &[u8], ends: bool) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // The server may have had enough before the end.
        let _ = stream.write_all(bytes);
        if ends {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    }
}

#[test]
fn files_are_copied_and_given_back() {
    let operator = Operator::new();
    let client = operator.client("pod-0");
    assert_eq!(client.send(RunFile::Journal, 0, b""), Ok(Sent::Here(0)));
    assert_eq!(client.send(RunFile::Journal, 0, b"one\n"), Ok(Sent::Here(4)));
    assert_eq!(client.send(RunFile::Journal, 9, b"two\n"), Ok(Sent::Elsewhere(4)));
    assert_eq!(client.send(RunFile::Journal, 0, b"One\n"), Ok(Sent::Differs));
    let long = [vec![b'x'; CHUNK_BYTES - 1], b"\n".to_vec()].concat();
    assert_eq!(client.send(RunFile::Metrics, 0, &long), Ok(Sent::Here(CHUNK_BYTES as u64)));
    assert_eq!(
        client.send(RunFile::Metrics, CHUNK_BYTES as u64, b"y\n"),
        Ok(Sent::Here(CHUNK_BYTES as u64 + 2))
    );
    assert_eq!(client.fetch(RunFile::Metrics, 0), Ok(long.clone()));
    assert_eq!(client.fetch(RunFile::Metrics, CHUNK_BYTES as u64), Ok(b"y\n".to_vec()));
    assert_eq!(client.fetch(RunFile::Log, 7), Ok(Vec::new()));
    assert!(matches!(client.send(RunFile::Journal, 4, b"torn"), Err(ClientError::Refused(_))));
    // One that sends too much is cut off before it has sent all.
    let too_long = client.send(RunFile::Metrics, 0, &[long, b"z\n".to_vec()].concat());
    assert!(matches!(too_long, Err(ClientError::Unreachable(_))), "{too_long:?}");
    assert_eq!(operator.copy(RunFile::Journal), b"one\n");
    let grew: Vec<(String, News)> = operator.news.try_iter().collect();
    let news = |file| (UID.to_string(), News::Grew(file));
    assert_eq!(grew, [news(RunFile::Journal), news(RunFile::Metrics), news(RunFile::Metrics)]);
    let counts = operator.desk.counts();
    assert_eq!(
        (counts.copied_bytes, counts.misplaced, counts.restored),
        (4 + (1 << 20) + 2, 2, 3),
        "{counts:?}"
    );
}

#[test]
fn only_the_pod_that_leads_sends_files() {
    let operator = Operator::new();
    let (old, new) = (operator.client("pod-0"), operator.client("pod-1"));
    assert_eq!(old.send(RunFile::Journal, 0, b"one\n"), Ok(Sent::Here(4)));
    assert_eq!(new.send(RunFile::Journal, 4, b"two\n"), Err(ClientError::Replaced));
    *operator.leads.lock().unwrap() = "pod-1".into();
    assert_eq!(old.send(RunFile::Journal, 4, b"two\n"), Err(ClientError::Replaced));
    assert_eq!(old.fetch(RunFile::Journal, 0), Err(ClientError::Replaced));
    assert_eq!(new.fetch(RunFile::Journal, 0), Ok(b"one\n".to_vec()));
    assert_eq!(operator.desk.counts().replaced, 3);
}

#[test]
fn others_are_not_believed() {
    let operator = Operator::new();
    let url = format!("http://{}", operator.address);
    let client = |uid: &str, token| Client::new(&url, uid, "pod-0", &token).unwrap();
    let unsigned = |said: Result<Sent, ClientError>, status: &str| match said {
        Err(ClientError::Unreachable(why)) => assert!(why.contains(status), "{why}"),
        other => panic!("{other:?}"),
    };
    unsigned(client(UID, token_of(&[2; 32], UID)).send(RunFile::Journal, 0, b"x\n"), "status 403");
    unsigned(client(UID, token_of(&[1; 32], "other")).send(RunFile::Journal, 0, b"x\n"), "status 403");
    unsigned(client("other", token_of(&[1; 32], "other")).send(RunFile::Journal, 0, b"x\n"), "status 404");
    assert!(Client::new(&url, "../x", "pod", &token_of(&[1; 32], "x")).is_err());
    assert!(Client::new(&url, "x", "a pod", &token_of(&[1; 32], "x")).is_err());
    assert_eq!((operator.desk.counts().unsigned, operator.desk.counts().unknown), (2, 1));
    assert_eq!(operator.copy(RunFile::Journal), b"");
}

#[test]
fn an_answer_of_another_than_the_operator_is_not_believed() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let signature = "0".repeat(64);
            let answer = format!(
                "HTTP/1.1 410 Gone\r\nx-bellwether-signature: {signature}\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let client = Client::new(&format!("http://{address}"), UID, "pod-0", &token_of(&[1; 32], UID)).unwrap();
    let said = client.send(RunFile::Journal, 0, b"x\n");
    assert!(matches!(&said, Err(ClientError::Unreachable(why)) if why.contains("410")), "{said:?}");
}

#[test]
fn wishes_arrive_when_they_are_made() {
    let operator = Operator::new();
    let version = operator.desk.set_wish(UID, Wish::default());
    let client = operator.client("worker-3");
    assert_eq!(client.wish(0).unwrap().map(|wish| wish.version), Some(version));
    let desk = operator.desk.clone();
    let member = Member { rank: 0, address: "10.0.0.1".parse().unwrap() };
    let wish = Wish { stop: true, members: vec![member], ..Wish::default() };
    let later = wish.clone();
    let began = Instant::now();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        desk.set_wish(UID, later);
    });
    let heard = client.wish(version).unwrap().unwrap();
    assert_eq!(heard, Wish { version: heard.version, ..wish });
    assert!((100..5000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    let desk = operator.desk.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        desk.remove(UID);
    });
    assert_eq!(client.wish(heard.version), Ok(None));
}

#[test]
fn reports_arrive_if_they_make_sense() {
    let operator = Operator::new();
    let client = operator.client("group-0");
    let report = Report { step: Some(3), samples_per_second: Some(1.5), ..Report::default() };
    client.report(&report).unwrap();
    assert_eq!(operator.news.try_iter().collect::<Vec<_>>(), [(UID.to_string(), News::Reported(report))]);
    let infinite = Report { loss: Some(f64::INFINITY), ..Report::default() };
    for wrong in [Report::default(), infinite, Report { samples_per_second: Some(-1.0), ..Report::default() }]
    {
        assert!(matches!(client.report(&wrong), Err(ClientError::Refused(_))), "{wrong:?}");
    }
    assert_eq!(operator.news.try_iter().count(), 0);
}

#[test]
fn strangers_are_sent_away() {
    let operator = Operator::new();
    let files = format!("/v1/jobs/{UID}/files/journal");
    let head = "host: x\r\nx-bellwether-pod: pod-0\r\nx-bellwether-signature:";
    let zeros = "0".repeat(64);
    for (request, status) in [
        (format!("GET {files}?offset=0 HTTP/1.1\r\nhost: x\r\n\r\n"), "403"),
        (format!("GET {files}?offset=0 HTTP/1.1\r\n{head} {zeros}\r\n\r\n"), "403"),
        (format!("GET {files}?offset=0 HTTP/1.1\r\n{head} é\r\n\r\n"), "403"),
        (
            format!(
                "POST {files}?offset=0 HTTP/1.1\r\n{head} {zeros}\r\ncontent-length: 99999999999\r\n\r\n"
            ),
            "413",
        ),
        (
            format!("POST {files}?offset=0 HTTP/1.1\r\n{head} {zeros}\r\ncontent-length: 9\r\n\r\nshort"),
            "400",
        ),
        (format!("DELETE {files} HTTP/1.1\r\nhost: x\r\n\r\n"), "405"),
        (format!("GET /v1/jobs/{UID}/files/token HTTP/1.1\r\nhost: x\r\n\r\n"), "404"),
        (format!("GET /v1/jobs/{UID}/files/..%2ftoken HTTP/1.1\r\nhost: x\r\n\r\n"), "404"),
        ("GET /v1/jobs/..%2f..%2fetc/files/journal HTTP/1.1\r\nhost: x\r\n\r\n".into(), "404"),
        ("GET /v1/jobs/x/wish HTTP/1.1\r\nhost: x\r\n\r\n".into(), "404"),
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\n".into(), "404"),
        ("nonsense\r\n\r\n".into(), "400"),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(1 << 20)), "4"),
    ] {
        let line = operator.raw(request.as_bytes(), request.ends_with("short"));
        let shown: String = request.chars().take(120).collect();
        assert!(
            // A client that goes on sending may lose the answer.
            line.starts_with(&format!("HTTP/1.1 {status}")) || line.is_empty() && request.len() > 1000,
            "{shown}: {line}"
        );
    }
    // A body without an end takes no more memory than one that is too long.
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, "x".repeat(1 << 16));
    let endless =
        format!("POST {files}?offset=0 HTTP/1.1\r\n{head} {zeros}\r\ntransfer-encoding: chunked\r\n\r\n");
    let line = operator.raw(&[endless.as_bytes(), chunk.repeat(20).as_bytes()].concat(), false);
    assert!(line.starts_with("HTTP/1.1 413") || line.is_empty(), "{line}");
    assert_eq!(operator.client("pod-0").send(RunFile::Journal, 0, b"still\n"), Ok(Sent::Here(6)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nothing that strangers send is taken, and the server lives on.
    #[test]
    fn whatever_bytes_come_nothing_is_taken(
        method in prop_oneof![Just("GET"), Just("POST"), Just("PUT"), Just("\0")],
        path in prop_oneof![
            Just("/v1/jobs/0f2e-1/files/journal?offset=0".to_string()),
            Just("/v1/jobs/0f2e-1/report".to_string()),
            Just("/v1/jobs/0f2e-1/wish?known=0".to_string()),
            "/[ -~]{0,60}",
        ],
        signature in prop_oneof!["[0-9a-f]{64}", "[ -~]{0,80}"],
        more in proptest::collection::vec(any::<u8>(), 0..300),
        cut in any::<prop::sample::Index>(),
    ) {
        let operator = operator();
        let length = more.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nx-bellwether-pod: pod-0\r\nx-bellwether-signature: {signature}\r\n\
             content-length: {length}\r\n\r\n"
        );
        let request = [head.as_bytes(), &more].concat();
        let line = operator.raw(&request[..cut.index(request.len() + 1)], true);
        prop_assert!(!line.starts_with("HTTP/1.1 2"), "{}", line);
        prop_assert!(operator.copy(RunFile::Journal).is_empty());
    }
}

/// One for all cases, which leave nothing behind.
fn operator() -> std::sync::MutexGuard<'static, Operator> {
    static OPERATOR: std::sync::OnceLock<Mutex<Operator>> = std::sync::OnceLock::new();
    OPERATOR
        .get_or_init(|| Mutex::new(Operator::new()))
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
