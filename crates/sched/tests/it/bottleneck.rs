//! The alarm about parameter servers, on simulated workers of one queue.

use bellwether_sched::bottleneck::{Alarm, News, ServerWatch, Unit};
use bellwether_testkit::Random;

const COMPUTE_S: f64 = 0.1;

/// Workers that compute for 0.1 s, give or take a tenth, and then are served one after another for `service_s`.
struct World {
    free_at_s: Vec<f64>,
    server_free_s: f64,
    service_s: f64,
    random: Random,
}

impl World {
    fn new(workers: usize, service_s: f64) -> World {
        // The first one comes first.
        let free_at_s = (0..workers).map(|worker| 0.5 * worker as f64).collect();
        World { free_at_s, server_free_s: 0.0, service_s, random: Random::new(7) }
    }

    /// The next unit, and when it is done.
    fn unit(&mut self) -> (f64, Unit) {
        let ready = |(worker, at): (usize, &f64)| (worker, *at);
        let (worker, begin_s) =
            self.free_at_s.iter().enumerate().map(ready).min_by(|a, b| a.1.total_cmp(&b.1)).expect("workers");
        let own_s = COMPUTE_S * self.random.between(0.9, 1.1);
        let end_s = (begin_s + own_s).max(self.server_free_s) + self.service_s;
        (self.server_free_s, self.free_at_s[worker]) = (end_s, end_s);
        (end_s, Unit { worker: worker as u64, duration_s: end_s - begin_s, own_s })
    }
}

/// What is told in `steps` steps of eight units.
fn told(watch: &mut ServerWatch, world: &mut World, servers: u32, steps: usize) -> Vec<News> {
    let mut last_s = 0.0;
    let mut news = Vec::new();
    for _ in 0..steps {
        let units: Vec<(f64, Unit)> = (0..8).map(|_| world.unit()).collect();
        let end_s = units.iter().map(|unit| unit.0).fold(last_s, f64::max);
        let units: Vec<Unit> = units.into_iter().map(|unit| unit.1).collect();
        news.extend(watch.observe(end_s - last_s, servers, &units));
        last_s = end_s;
    }
    news
}

#[test]
fn a_server_that_keeps_up_raises_no_alarm() {
    for (workers, service_s) in [(1, 0.05), (2, 0.005), (8, 0.001), (16, 1e-5)] {
        let news = told(&mut ServerWatch::default(), &mut World::new(workers, service_s), 1, 500);
        assert_eq!(news, [], "{workers} workers at {service_s} s");
    }
}

#[test]
fn a_server_that_holds_workers_up_is_named_once_with_what_would_help() {
    let mut watch = ServerWatch::default();
    let news = told(&mut watch, &mut World::new(8, 0.03), 1, 500);
    let [News::Alarm(alarm)] = &news[..] else { panic!("{news:?}") };
    // 1/0.03 units a second at most; eight that never wait do 8/0.13.
    assert!((alarm.measured_per_s * 0.03 - 1.0).abs() < 0.05, "{alarm:?}");
    assert!((alarm.own_per_s * 0.13 / 8.0 - 1.0).abs() < 0.05, "{alarm:?}");
    let another = alarm.with_another_server_per_s.expect("it would help");
    assert!((1.6..2.0).contains(&(another / alarm.measured_per_s)), "{alarm:?}");
    assert!((5..8).contains(&alarm.enough_workers), "{alarm:?}");
    let text = news[0].to_string();
    for words in [
        "1 parameter server holds 8 workers up",
        "% of the",
        "another server would give",
        "workers do as much",
    ] {
        assert!(text.contains(words), "{text}");
    }
    // With a second one it is over; and said once.
    watch.changed();
    let news = told(&mut watch, &mut World::new(8, 0.001), 2, 500);
    assert_eq!(news, [News::Over]);
}

#[test]
fn what_another_server_cannot_help_is_not_said() {
    let alarm = Alarm {
        measured_per_s: 10.0,
        own_per_s: 20.0,
        workers: 3,
        servers: 2,
        with_another_server_per_s: None,
        enough_workers: 3,
    };
    let text = alarm.to_string();
    assert!(
        text.contains("50 % of the 20.000")
            && !text.contains("another server")
            && !text.contains("do as much"),
        "{text}"
    );
}
