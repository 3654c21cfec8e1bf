//! A headless Chromium, driven over the WebDriver protocol.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The key that opens what is selected.
pub(crate) const ENTER: &str = "\u{E007}";
/// The key that closes.
pub(crate) const ESCAPE: &str = "\u{E00C}";
/// The key that goes to the next control.
pub(crate) const TAB: &str = "\u{E004}";
/// The arrow keys.
pub(crate) const LEFT: &str = "\u{E012}";
pub(crate) const DOWN: &str = "\u{E015}";

/// Set where the browser must be there, as on the machine that checks every change.
const REQUIRED: &str = "BELLWETHER_REQUIRE_BROWSER";

/// Where screenshots are to be put, if anywhere.
const SCREENSHOTS: &str = "BELLWETHER_SCREENSHOTS";

/// How long the page may take for anything.
const PATIENCE: Duration = Duration::from_secs(15);

/// Runs the driver, and when the other end of its input is closed, for whatever reason, ends it, the browser, which is
/// in the same group of processes, and their files.
const KEEPER: &str = r#"
    TMPDIR=$(mktemp -d); export TMPDIR; trap '' TERM
    (trap - TERM; exec chromedriver --port=0 --log-level=SEVERE) </dev/null 2>/dev/null &
    cat; kill -- -$$; wait; rm -rf "$TMPDIR" || { sleep 1; rm -rf "$TMPDIR"; }
"#;

/// One browser for all tests, one test at a time: to start it takes longest, and times are measured.
static SHARED: Mutex<Option<Arc<Browser>>> = Mutex::new(None);

/// A browser with one page.
pub(crate) struct Browser {
    _keeper: Child,
    agent: ureq::Agent,
    /// Address of the session; that of the driver until there is one.
    address: String,
}

/// The browser, for one test.
pub(crate) struct Turn {
    browser: Arc<Browser>,
    _alone: MutexGuard<'static, Option<Arc<Browser>>>,
}

impl std::ops::Deref for Turn {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        &self.browser
    }
}

impl Browser {
    /// The browser, as if it had just been started; `None`, with a word about it, where there is none.
    pub(crate) fn start() -> Option<Turn> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if Command::new("chromedriver").arg("--version").output().is_err() {
            assert!(
                std::env::var_os(REQUIRED).is_none(),
                "chromedriver does not start, and {REQUIRED} is set"
            );
            eprintln!(
                "skipped: no chromedriver here; `cargo xtask test` says how to get a browser \
                 (Debian: apt-get install chromium chromium-driver)"
            );
            return None;
        }
        let browser = shared.get_or_insert_with(|| Arc::new(Browser::launch())).clone();
        browser.view(1280, 800, false);
        // The page of the test before would complain that its daemon is gone.
        browser.visit("about:blank");
        browser.complaints();
        Some(Turn { browser, _alone: shared })
    }

    fn launch() -> Browser {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(keeper.stdout.take().expect("it is piped")).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(4 * PATIENCE));
        let address = format!("http://127.0.0.1:{}", port.expect("chromedriver says its port"));
        let mut browser = Browser { _keeper: keeper, agent: config.build().into(), address };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
        ];
        let session = browser.post(
            "/session",
            &json!({ "capabilities": { "alwaysMatch": {
                "goog:loggingPrefs": { "browser": "ALL" },
                "goog:chromeOptions": { "args": arguments },
            } } }),
        );
        browser.address +=
            &format!("/session/{}", session["sessionId"].as_str().expect("a session has a number"));
        browser
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        let sent = self
            .agent
            .post(format!("{}{path}", self.address))
            .header("Content-Type", "application/json")
            .send(body.to_string());
        let mut answer = sent.unwrap_or_else(|error| panic!("{path}: {error}"));
        let text = answer.body_mut().read_to_string().unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(answer.status().is_success(), "{path}: {}", value["value"]["message"]);
        value["value"].clone()
    }

    /// Opens an address; one that differs in its fragment only is opened afresh too.
    pub(crate) fn visit(&self, address: &str) {
        self.post("/url", &json!({ "url": "about:blank" }));
        self.post("/url", &json!({ "url": address }));
    }

    /// The value of an expression of the page's language.
    #[track_caller]
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.run(&format!("return ({expression});"))
    }

    /// Runs a script in the page, and returns what it returns.
    #[track_caller]
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The text of the first element that a selector names, as it is seen; empty where there is none.
    #[track_caller]
    pub(crate) fn text(&self, selector: &str) -> String {
        let value = self.value(&format!("document.querySelector({selector:?})?.innerText ?? ''"));
        // What keeps a number and its sign on one line is of no matter here.
        value.as_str().expect("a text").replace('\u{a0}', " ")
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(crate) fn until(&self, expression: &str) {
        let start = Instant::now();
        while self.value(&format!("Boolean({expression})")) != true {
            if start.elapsed() > PATIENCE {
                panic!("never came true: {expression}\nthe page: {}", self.value("document.body.innerText"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses keys one after the other, wherever the focus is.
    #[track_caller]
    pub(crate) fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
            })
            .collect();
        self.post("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Clicks the first element that a selector names, as a pointer would.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        self.post(&format!("/element/{}/click", id.expect("an element has a name")), &json!({}));
    }

    fn command(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Shows the page on a screen of this size, in light or dark colours.
    pub(crate) fn view(&self, width: u32, height: u32, dark: bool) {
        let mobile = width < 600;
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.command("Emulation.setDeviceMetricsOverride", screen);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", features);
    }

    /// Takes a picture if one is asked for.
    pub(crate) fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os(SCREENSHOTS) else { return };
        let picture = self.command("Page.captureScreenshot", json!({ "format": "png" }));
        let text = picture["data"].as_str().expect("a picture is text in base 64");
        let path = std::path::Path::new(&folder).join(format!("{name}.png"));
        std::fs::write(path, base64(text)).unwrap();
    }

    /// What the browser complained of since it was last asked: faults of scripts, what it did not load or allow.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let lines = log.as_array().into_iter().flatten();
        lines.map(|line| format!("{}: {}", line["level"], line["message"])).collect()
    }
}

/// The bytes of a text in base 64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').collect();
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0u32, |bits, letter| bits << 6 | u32::from(digit(*letter)));
        let bits = bits << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    };
    letters.chunks(4).flat_map(group).collect()
}
