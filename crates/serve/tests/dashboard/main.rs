//! The dashboard in a real browser, served by the true HTTP API over an engine that plays.
//!
//! In a process of its own: it measures how long the page takes for what it does.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod browser;
mod stage;

use bellwether_serve::request::Request;
use bellwether_serve::snapshot::{ActionState, DecisionState, Phase, QueueSlots, QueueState, Span};
use serde_json::json;
use std::sync::Arc;

use browser::{Browser, DOWN, ENTER, ESCAPE, LEFT, TAB};
use stage::{EVIL, Stage, now_s};

/// Opens the page and waits until it is live.
#[track_caller]
fn open(browser: &Browser, stage: &Stage) {
    browser.visit(&stage.url());
    browser.until("document.querySelector('#connection').dataset.state === 'live'");
    browser.until("document.querySelectorAll('#job-rows tr').length > 0");
}

/// Names of the jobs in the table, in its order.
fn names(browser: &Browser) -> Vec<String> {
    let names = browser.value("[...document.querySelectorAll('#job-rows tr')].map((row) => row.dataset.job)");
    serde_json::from_value(names).unwrap()
}

/// The text of a cell.
fn cell(browser: &Browser, job: &str, column: &str) -> String {
    browser.text(&format!("tr[data-job='{job}'] .column-{column}"))
}

/// No fault, nothing refused by the page's own policy, and nothing asked of any other server.
#[track_caller]
fn was_quiet(browser: &Browser, stage: &Stage) {
    // The driver's log may hold what another page of another test complained of.
    let own =
        |line: &String| !line.contains("http://") || line.contains(stage.bare_url().trim_end_matches('/'));
    let complaints: Vec<String> = browser.complaints().into_iter().filter(own).collect();
    assert_eq!(complaints, [""; 0]);
    let all = browser.value("performance.getEntriesByType('resource').map((entry) => entry.name)");
    let all: Vec<String> = serde_json::from_value(all).unwrap();
    assert!(all.len() > 5 && all.iter().all(|name| name.starts_with(&stage.bare_url())), "{all:?}");
}

#[test]
fn jobs_slots_and_decisions_are_shown() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    // The code is in no address that can be seen, kept or passed on.
    assert_eq!(browser.value("location.href"), stage.bare_url());
    assert_eq!(names(&browser), ["digits-wide", "transformer", "resnet-lr3", "convnet-small", "digits-1"]);
    assert_eq!(cell(&browser, "digits-wide", "state"), "running");
    assert_eq!(cell(&browser, "digits-wide", "workers"), "2\nof 1–4");
    assert_eq!(cell(&browser, "digits-wide", "progress"), "3,120 / 5,000\n62 %");
    assert_eq!(cell(&browser, "digits-wide", "rate"), "1,893 +4 %\n1,968 predicted");
    assert_eq!(cell(&browser, "digits-wide", "end"), "in 10 min\ndue in 25 min");
    assert_eq!(cell(&browser, "transformer", "workers"), "1 → 2\nof 1–4");
    assert_eq!(cell(&browser, "transformer", "end"), "in 24 min\nat risk");
    assert_eq!(cell(&browser, "convnet-small", "state"), "queued\nit needs 1 slot, and none is free");
    assert_eq!(cell(&browser, "convnet-small", "end"), "in 1 h\nstarts in 10 min");
    assert_eq!(cell(&browser, "digits-1", "end"), "3 min ago\n55 s late");
    assert_eq!(browser.text("#slots-used"), "4 of 4");
    assert_eq!(browser.value("document.title"), "3 active, 1 waiting · Bellwether");
    assert_eq!(browser.value("document.querySelector('#policy').value"), "wfs");
    assert!(browser.text("#utilization").ends_with(" %"));
    // What 4 slots did in 15 minutes: everything but some seconds and the minute before the last bars.
    let mean: f64 = browser.text("#utilization").trim_end_matches(" %").parse().unwrap();
    assert!((93.0..=100.0).contains(&mean), "{mean}");
    assert_eq!(browser.value("document.querySelectorAll('#gantt .track').length"), 4);
    assert_eq!(browser.value("document.querySelectorAll('#decision-list > li').length"), 4);
    let last = browser.text("#decision-list > li");
    assert!(
        last.contains("transformer is at risk") && last.contains("1 → 2") && last.contains("395/s expected"),
        "{last}"
    );
    assert!(last.contains("refused: it may have 1 worker at most"), "{last}");

    // One colour for a job, wherever it is.
    let colours = browser.run(
        "const of = (element) => [...element.classList].find((name) => name.startsWith('job-'));
         return [of(document.querySelector('tr[data-job=transformer] .swatch')),
                 of([...document.querySelectorAll('#gantt .bar')].find((bar) => bar.textContent === 'transformer')),
                 of(document.querySelector('#decision-list li li .swatch'))];",
    );
    assert!(
        colours.as_array().unwrap().iter().all(|colour| colour == &colours[0] && !colour.is_null()),
        "{colours}"
    );
    was_quiet(&browser, &stage);
}

#[test]
fn a_job_that_waits_says_until_when() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    browser.click("tr[data-job=convnet-small]");
    browser.until("document.querySelector('#detail').innerText.includes('Expected start')");
    let said = browser.text("#detail");
    for part in ["it needs 1 slot, and none is free", "it is next", "in 10 min (90 %: 9 min to 11 min)"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(said.contains("in 1 h (90 %: 50 min to 1 h)"), "{said}");
    browser.picture("waiting");
    was_quiet(&browser, &stage);
}

#[test]
fn changes_are_followed() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    stage.change("transformer", |job| (job.workers, job.step, job.examples_per_s) = (2, 500, Some(390.0)));
    stage.accept("late");
    stage.publish(|snapshot| {
        let span = Span { job: "late".into(), node: 0, slot: 3, start_s: now_s(), end_s: None };
        std::sync::Arc::make_mut(&mut snapshot.spans).push(span);
        let decisions = std::sync::Arc::make_mut(&mut snapshot.decisions);
        decisions[3].actions[0] = ActionState {
            measured_examples_per_s: Some(390.0),
            took_s: Some(1.5),
            ..decisions[3].actions[0].clone()
        };
        let reason = "late came".into();
        decisions.push(DecisionState { number: 5, time_s: now_s(), reason, ..decisions[3].clone() });
    });
    browser.until("document.querySelector('tr[data-job=late]')");
    assert_eq!(cell(&browser, "transformer", "workers"), "2\nof 1–4");
    assert_eq!(cell(&browser, "transformer", "rate"), "390 +1 %\n395 predicted");
    browser.until("document.querySelectorAll('#decision-list > li').length === 5");
    let known = browser.text("#decision-list > li:nth-child(2)");
    assert!(known.contains("390 measured (+1 %), after 1.5 s"), "{known}");
    browser.until("document.querySelectorAll('#gantt .bar').length === 8");
    // Someone who does not see it hears of it.
    stage.change("late", |job| job.state = Phase::Starting);
    browser.until("document.querySelector('#news').textContent === 'late is starting'");
    was_quiet(&browser, &stage);
}

#[test]
fn keys_lead_everywhere() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    let focus = || browser.value("document.activeElement.dataset.job ?? document.activeElement.id");
    // The first stop leads past the head of the page.
    browser.press(TAB);
    assert_eq!(browser.text(":focus"), "Skip to the jobs");
    browser.press("/");
    assert_eq!(focus(), "filter");
    browser.press("dig");
    assert_eq!(names(&browser), ["digits-wide", "digits-1"]);
    browser.press(ENTER);
    assert_eq!(focus(), "digits-wide");
    browser.press("/zz");
    assert_eq!(names(&browser), [""; 0]);
    assert!(browser.text("#jobs-empty").contains("Show all jobs"));
    browser.press(ESCAPE);
    assert_eq!(names(&browser).len(), 5);

    assert_eq!(focus(), "digits-wide");
    browser.press("jjk");
    browser.press(DOWN);
    browser.press("kk");
    assert_eq!(focus(), "digits-wide");
    browser.press("j");
    assert_eq!(focus(), "transformer");
    browser.press(ENTER);
    assert_eq!(focus(), "detail-title");
    assert_eq!(browser.text("#detail-title"), "transformer");
    browser.press(ESCAPE);
    assert_eq!(focus(), "transformer");
    assert!(browser.value("document.querySelector('#detail').hidden").as_bool().unwrap());
    browser.press("?");
    assert_eq!(browser.value("document.querySelector('#keys').open"), true);
    browser.press(ESCAPE);
    browser.run("document.querySelector('#gantt').focus()");
    browser.press(&format!("{LEFT}{LEFT}"));
    let said = browser.text("#news");
    assert!(said.starts_with("digits-wide on cpu 0, from "), "{said}");
    browser.press(ENTER);
    browser.until("document.activeElement.id === 'detail-title'");
    // Whatever takes the focus says what it is.
    let nameless = browser.run(
        "return [...document.querySelectorAll('button, input, select, [tabindex]')].filter((element) =>
             !(element.textContent.trim() || element.getAttribute('aria-label') || element.labels?.length))
             .map((element) => element.outerHTML);",
    );
    assert_eq!(nameless, json!([]));
    was_quiet(&browser, &stage);
}

#[test]
fn jobs_are_steered_with_keys() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    browser.press("jj");
    browser.press("s");
    browser.until("document.querySelector('tr[data-job=transformer]').dataset.state === 'suspended'");
    browser.press("r");
    browser.until("document.querySelector('tr[data-job=transformer]').dataset.state === 'queued'");
    // To cancel is asked for, and not to is easier.
    browser.press("c");
    assert_eq!(browser.text("#question-title"), "Cancel transformer?");
    browser.press(ESCAPE);
    browser.press("c");
    browser.press(ENTER);
    assert_eq!(browser.value("document.querySelector('#question').open"), false);
    let job = || "transformer".to_owned();
    assert_eq!(
        stage.wishes(),
        [Request::Suspend { job: job(), by: "its user".into() }, Request::Resume { job: job() }]
    );
    browser.press("c");
    browser.press(&format!("{TAB}{ENTER}"));
    browser.until("document.querySelector('tr[data-job=transformer]').dataset.state === 'cancelled'");
    assert_eq!(stage.wishes(), [Request::Cancel { job: job() }]);
    // What cannot be done is not asked for.
    browser.press("s");
    browser.until("document.querySelector('#news').textContent === 'transformer has ended'");
    was_quiet(&browser, &stage);
}

#[test]
fn a_job_is_opened_followed_and_limited() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    browser.click("tr[data-job='digits-wide']");
    browser.until("document.querySelectorAll('.plot .line').length === 4");
    browser.until("document.querySelector('.plot .predicted') && document.querySelector('.plot .interval')");
    let loss = browser.text(".chart h4");
    assert!(loss.contains(", held-out ") && loss.contains("(90 % right)"), "{loss}");
    assert_eq!(browser.value("document.querySelectorAll('.plot circle.held-out').length"), 6);
    assert!(
        browser.text(".facts").contains("1,968 (95 %: 1,791–2,145), off by +4 %"),
        "{}",
        browser.text(".facts")
    );
    browser.until("document.querySelector('.log').innerText.includes('checkpointed')");
    stage.log("digits-wide", "a <b>word</b> of a worker");
    browser.until("document.querySelector('.log').innerText.includes('a <b>word</b> of a worker')");
    stage.change("digits-wide", |job| job.step = 3333);
    browser.until("document.querySelector('.facts').innerText.includes('step 3,333 of 5,000')");

    // The job after it, with the pane open.
    browser.press("j");
    browser.until("document.querySelector('#detail-title').textContent === 'transformer'");
    browser.run("document.querySelector('#detail details').open = true");
    browser.run("document.querySelector('.limits input').value = 2");
    browser.click(".limits button");
    // The daemon's own words, with what to do.
    browser.until(
        "document.querySelector('#problem').textContent === 'it is wider than the machine — give 4 at most'",
    );
    let wishes = stage.wishes();
    let [Request::Limit { job, workers: Some(workers), weight: None }] = &wishes[..] else {
        panic!("{wishes:?}")
    };
    assert_eq!((job.as_str(), workers.min, workers.max), ("transformer", 2, 4));
    let said = browser.complaints();
    assert!(said.iter().all(|line| line.contains("422")), "{said:?}");

    // A job that has ended: its digest, and a journal that does not go on.
    browser.click("tr[data-job='digits-1']");
    browser.until("document.querySelector('.facts').innerText.includes('062db9dc2ab0')");
    assert!(browser.text(".standing").trim() == "finished", "{}", browser.text(".standing"));
    was_quiet(&browser, &stage);
}

#[test]
fn queues_and_hosts_that_take_no_jobs_are_shown() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    assert_eq!(browser.value("document.querySelector('#queues').hidden"), true);
    assert_eq!(browser.value("document.querySelector('#no-outlook').hidden"), true);
    stage.publish(|snapshot| {
        let cluster = std::sync::Arc::make_mut(&mut snapshot.cluster);
        cluster.no_outlook = Some("its speed is not known".into());
        let mut second = cluster.nodes[0].clone();
        (second.name, second.down) = ("n2".into(), Some("it is drained: new disk".into()));
        second.slots = vec![None; 2];
        Arc::make_mut(&mut cluster.nodes)[0].name = "n1".into();
        Arc::make_mut(&mut cluster.nodes).push(second);
        let slots =
            |guaranteed, limit, held| vec![QueueSlots { device_type: "cpu".into(), guaranteed, limit, held }];
        let queue = |name: &str, slots, running| QueueState {
            name: name.into(),
            weight: 1.0,
            slots,
            jobs: [(Phase::Running, running), (Phase::Queued, 1)].into(),
            recent_slot_s: 0.0,
        };
        cluster.queues =
            vec![queue("vision", slots(2, None, 3), 2), queue("speech", slots(2, Some(3), 1), 1)];
    });
    stage.change("transformer", |job| (job.queue, job.user) = (Some("vision".into()), Some("alice".into())));
    browser.until("document.querySelectorAll('#queue-rows tr').length === 2");
    assert_eq!(browser.text("#queue-rows tr"), "vision\t3 (1 borrowed)\t2\t–\t2\t1");
    assert_eq!(browser.text("#hosts"), "No jobs start on n2 (it is drained: new disk)");
    let no_outlook = "It is not foreseen when jobs start and end: its speed is not known";
    assert_eq!(browser.text("#no-outlook"), no_outlook);
    browser.until("document.querySelectorAll('#gantt .track.down').length === 2");
    assert!(browser.text("#gantt").contains("n1.0"), "{}", browser.text("#gantt"));
    assert!(cell(&browser, "transformer", "name").ends_with("· vision"));
    browser.picture("queues-light");
    browser.run(
        "const filter = document.querySelector('#filter'); filter.value = 'vision';
         filter.dispatchEvent(new Event('input'));",
    );
    assert_eq!(names(&browser), ["transformer"]);
    browser.click("tr[data-job='transformer']");
    browser.until("document.querySelector('#detail .facts').innerText.includes('alice')");
    was_quiet(&browser, &stage);
}

#[test]
fn a_job_s_configuration_is_shown_beside_another_one_s() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    browser.click("tr[data-job='digits-wide']");
    browser.until("document.querySelectorAll('.plot .line').length === 4");
    let ticks = || browser.value("document.querySelector('.plot').textContent");
    let linear = ticks();
    browser.click(".chart .axis");
    browser.until("document.querySelector('.chart .axis').getAttribute('aria-pressed') === 'true'");
    assert_ne!(ticks(), linear, "the ticks are others");
    browser.run("document.querySelectorAll('#detail details')[1].open = true");
    browser.until("document.querySelector('.configuration').innerText.includes('optimizer.learning_rate')");
    assert!(browser.text(".configuration").contains("0.1"));
    browser.until("document.querySelectorAll('.compare option').length === 5");
    browser.run(
        "const select = document.querySelector('.compare select'); select.value = 'digits-1';
         select.dispatchEvent(new Event('change'));",
    );
    browser.until("document.querySelectorAll('.configuration > div').length === 1");
    assert_eq!(browser.text(".configuration"), "optimizer.learning_rate\n0.1 here, 0.5 there");
    browser.until("document.querySelector('.plot .line-other')");
    assert!(browser.text(".chart h4").contains("dashed: digits-1"), "{}", browser.text(".chart h4"));
    browser.picture("comparison-light");
    // Another visit has the same axis.
    browser.click("tr[data-job='transformer']");
    browser.until("document.querySelector('.chart .axis')?.getAttribute('aria-pressed') === 'true'");
    browser.run("localStorage.clear()");
    was_quiet(&browser, &stage);
}

#[test]
fn a_policy_is_chosen_after_a_question() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    open(&browser, &stage);
    browser.until("document.querySelectorAll('#policy option').length > 10");
    let choose = "const select = document.querySelector('#policy'); select.value = 'srtf';
                  select.dispatchEvent(new Event('change'));";
    browser.run(choose);
    assert_eq!(browser.text("#question-title"), "Let srtf decide from now on?");
    browser.click("#question-no");
    browser.until("document.querySelector('#policy').value === 'wfs'");
    assert_eq!(stage.wishes(), []);
    browser.run(choose);
    browser.click("#question-yes");
    browser.until("!document.querySelector('#question').open");
    browser.until("document.querySelector('#policy').value === 'srtf'");
    // Another client chooses too.
    stage.publish(|snapshot| std::sync::Arc::make_mut(&mut snapshot.cluster).policy = "las:queues=2".into());
    browser.until("document.querySelector('#policy').value === 'las:queues=2'");
    assert_eq!(stage.wishes(), [Request::Choose { policy: "srtf".into(), by: "its user".into() }]);
    was_quiet(&browser, &stage);
}

#[test]
fn names_and_logs_are_never_markup() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    stage.accept(EVIL);
    stage.change(EVIL, |job| job.why = EVIL.into());
    stage.publish(|snapshot| {
        let decisions = std::sync::Arc::make_mut(&mut snapshot.decisions);
        decisions[3].reason = EVIL.into();
        decisions[3].actions[0].job = EVIL.into();
        let span = Span { job: EVIL.into(), node: 0, slot: 3, start_s: now_s() - 100.0, end_s: None };
        std::sync::Arc::make_mut(&mut snapshot.spans).push(span);
    });
    open(&browser, &stage);
    assert!(names(&browser).iter().any(|name| name == EVIL));
    browser.run(
        "[...document.querySelectorAll('#job-rows tr')].find((row) => row.dataset.job.includes('<')).click()",
    );
    browser.until(&format!("document.querySelector('#detail-title')?.textContent === {EVIL:?}"));
    assert_eq!(browser.value("document.images.length"), 1, "only our own sign is a picture");
    // Should markup ever slip in, the browser does not run it.
    browser.run(
        "document.body.insertAdjacentHTML('beforeend', '<b onclick=\"document.title = 1\" id=trap>x</b>')",
    );
    browser.run("document.querySelector('#trap').click()");
    assert_ne!(browser.value("document.title"), "1");
    let complaints = browser.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("Content Security Policy"), "{complaints:?}");
}

#[test]
fn an_address_opens_one_session_which_ends_with_the_daemon() {
    let Some(browser) = Browser::start() else { return };
    let mut stage = Stage::five();
    let shut = |why: &str| {
        browser.until(&format!("document.querySelector('#entry').innerText.includes({why:?})"));
        assert!(browser.text("#entry").contains("bellwether dashboard"));
        let complaints = browser.complaints();
        let known = |line: &String| line.contains("401") || line.contains("net::ERR_");
        assert!(complaints.iter().all(known), "{complaints:?}");
    };
    browser.visit(&stage.bare_url());
    shut("only a browser that its owner lets in");
    let address = stage.url();
    browser.visit(&address);
    browser.until("document.querySelectorAll('#job-rows tr').length === 5");
    // The code is in no address that can be seen, kept or passed on, and the session lasts until the window is closed.
    assert_eq!(browser.value("location.href"), stage.bare_url());
    browser.run("location.reload()");
    browser.until("document.querySelectorAll('#job-rows tr').length === 5");
    assert_eq!(browser.value("document.cookie"), "");
    was_quiet(&browser, &stage);
    browser.visit("about:blank");
    browser.visit(&address);
    shut("used before");
    browser.visit(&stage.url());
    browser.until("document.querySelectorAll('#job-rows tr').length === 5");
    stage.restart();
    browser.until("document.querySelector('#connection').dataset.state === 'closed'");
    shut("session has ended");
}

/// What a process that listens at the address hears of the page, until the page has brought its session.
fn overheard(address: std::net::SocketAddr) -> String {
    let port = std::net::TcpListener::bind(address).unwrap();
    loop {
        let (stream, _) = port.accept().unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        let mut heard = Vec::new();
        let _ = std::io::Read::read_to_end(&mut &stream, &mut heard);
        let heard = String::from_utf8_lossy(&heard).into_owned();
        if heard.contains("Bearer ") {
            return heard;
        }
    }
}

#[test]
fn a_process_that_takes_the_port_hears_nothing_of_use() {
    let Some(browser) = Browser::start() else { return };
    let mut stage = Stage::five();
    open(&browser, &stage);
    stage.stop();
    let heard = overheard(stage.address());
    assert!(!heard.contains(&"5a".repeat(32)), "{heard}");
    let session = heard.split("Bearer ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let ask = |stage: &Stage| {
        let request = ureq::get(format!("{}v1/jobs", stage.bare_url()))
            .header("Authorization", format!("Bearer {session}"));
        request.config().http_status_as_error(false).build().call().unwrap().status().as_u16()
    };
    // Against the process that made it, it would still be good; that one is dead.
    stage.serve();
    assert_eq!(ask(&stage), 200);
    stage.restart();
    assert_eq!(ask(&stage), 401);
    browser.complaints();
}

#[test]
fn it_goes_on_by_itself_after_the_daemon_was_away() {
    let Some(browser) = Browser::start() else { return };
    let mut stage = Stage::five();
    open(&browser, &stage);
    stage.stop();
    browser.until("document.querySelector('#connection').dataset.state === 'reconnecting'");
    assert!(browser.text("#connection").starts_with("reconnecting, as of "));
    assert_eq!(names(&browser).len(), 5, "what was known is still shown");
    browser.press("jjs");
    browser.until("document.querySelector('#problem').textContent.startsWith('the daemon does not answer')");
    // Meanwhile one was finished and another one came.
    stage.change("transformer", |job| (job.state, job.ended_s) = (Phase::Finished, Some(now_s())));
    stage.accept("meanwhile");
    stage.serve();
    browser.until("document.querySelector('#connection').dataset.state === 'live'");
    browser.until("document.querySelector('tr[data-job=meanwhile]')");
    assert_eq!(cell(&browser, "transformer", "state"), "finished");
    let complaints = browser.complaints();
    assert!(complaints.iter().all(|line| line.contains("net::ERR_")), "{complaints:?}");
}

#[test]
fn a_thousand_jobs_do_not_make_it_slow() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::with_more(995);
    open(&browser, &stage);
    assert_eq!(names(&browser).len(), 50, "one page of them");
    assert!(browser.text("#page-text").ends_with(" of 938"), "those that ended earlier are not loaded yet");
    browser.click("#older");
    browser.until("document.querySelector('#page-text').textContent === '1–50 of 1,000'");
    browser.run(
        "document.addEventListener('bellwether:rendered', ({ detail }) => {
                     if (detail.event) (window.times ??= []).push(detail.script_ms);
                 });",
    );
    let changed = ["digits-wide", "transformer", "resnet-lr3", "sweep-0001"];
    for round in 1..=12 {
        stage.publish(|snapshot| {
            for name in changed {
                let job = std::sync::Arc::make_mut(snapshot.jobs.get_mut(name).unwrap());
                (job.step, job.loss) = (job.step + 1, Some(1.0 / f64::from(round)));
            }
        });
        browser.until(&format!("window.times?.length >= {round}"));
    }
    let mut times: Vec<f64> = serde_json::from_value(browser.value("window.times")).unwrap();
    times.sort_by(f64::total_cmp);
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let filtering = browser.run(
        "const filter = document.querySelector('#filter');
         return ['s', 'sw', 'swe', 'sweep-09', ''].map((text) => {
             const start = performance.now();
             filter.value = text;
             filter.dispatchEvent(new Event('input'));
             return performance.now() - start;
         });",
    );
    let mut filtering: Vec<f64> = serde_json::from_value(filtering).unwrap();
    filtering.sort_by(f64::total_cmp);
    let filter = filtering[filtering.len() / 2];
    println!("script per event: median {median:.1} ms, worst {worst:.1} ms; filter: median {filter:.1} ms");
    assert!(median < 16.0, "a frame has 16 ms: {times:?}");
    assert!(filter < 50.0, "{filtering:?}");
    browser.run("scrollTo(0, 0)");
    browser.picture("thousand-light-1280");
    // The last of them, by keys.
    browser.press("j");
    browser.press("\u{E010}");
    assert_eq!(browser.text("#page-text"), "951–1,000 of 1,000");
    was_quiet(&browser, &stage);
}

#[test]
fn it_is_legible_on_every_screen() {
    let Some(browser) = Browser::start() else { return };
    let stage = Stage::five();
    stage.accept("translation-en-de-base-with-a-very-long-name-that-does-not-end-soon");
    for (dark, scheme) in [(false, "light"), (true, "dark")] {
        for (width, height) in [(1280, 800), (390, 844)] {
            browser.view(width, height, dark);
            open(&browser, &stage);
            let fits = |what: &str| {
                let needed = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
                assert!(needed <= u64::from(width), "{what}: {needed} > {width}");
                browser.picture(&format!("{what}-{scheme}-{width}"));
            };
            fits("five");
            browser.press(&format!("j{ENTER}"));
            browser.until("document.querySelectorAll('.plot .line').length === 4");
            browser.until("document.querySelector('.log').innerText.includes('checkpointed')");
            fits("detail");
        }
        let faint = browser.run(CONTRAST);
        assert_eq!(faint, json!([]), "{scheme}: pairs of colours with too little contrast");
    }
    let stage = Stage::empty();
    browser.view(390, 844, false);
    browser.visit(&stage.url());
    browser.until("document.querySelector('#jobs-empty').innerText.includes('bellwether submit JOB.toml')");
    browser.until("document.querySelector('#decisions-empty').innerText.includes('Nothing was decided yet')");
    was_quiet(&browser, &stage);
}

/// Pairs of colours whose contrast is less than WCAG's AA asks for: 4.5 for text, 3 for other elements.
const CONTRAST: &str = r##"
    const style = getComputedStyle(document.documentElement);
    const luminance = (name) => {
        const text = style.getPropertyValue(`--${name}`).trim();
        const [r, g, b] = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16) / 255)
            .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (a, b) => {
        const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
        return (high + 0.05) / (low + 0.05);
    };
    const pairs = [];
    for (const back of ["card", "raised", "selected"]) {
        for (const text of ["text", "muted", "accent", "good", "warn", "bad"]) pairs.push([text, back, 4.5]);
        pairs.push(["field", back, 3]);
    }
    pairs.push(["text", "back", 4.5], ["muted", "back", 4.5], ["on-accent", "accent", 4.5], ["accent", "track", 3]);
    for (let job = 0; job < 8; job += 1) pairs.push([`on-job-${job}`, `job-${job}`, 4.5]);
    return pairs.map(([a, b, least]) => [a, b, contrast(a, b), least]).filter(([, , found, least]) => !(found >= least));
"##;
