//! Queues come to rest: cases in which one was left out, or held too much.

use std::cell::Cell;

use bellwether_core::cluster::Job;
use bellwether_core::queue::QueueTree;
use bellwether_sched::drive::drive;
use bellwether_sched::queues::most_known;
use bellwether_sched::registry::Registry;
use bellwether_sched::speed::Speeds;
use bellwether_sim::world::Scenario;

use super::common::{ByCount, cluster, elastic, rigid, run};
use super::live::{Belief, Event, Live};
use super::queues::{Lawful, always, notes, of, simulate, spread};

/// `q0/q1` is guaranteed half of all devices, and `q0` may hold this much.
fn siblings(limit: &str) -> QueueTree {
    let text = format!(
        r#"
        [[queues]]
        name = "q0"
        guarantee = "50%"
        limit = "{limit}"

        [[queues]]
        name = "q0/q1"
        guarantee = "100%"

        [[queues]]
        name = "q0/q2"
    "#
    );
    QueueTree::parse(&text, "test").expect("it is a tree")
}

/// `q0/q1` lacks more than `q0` may hold beside what it holds: it claims all of its sibling, and the rest from outside.
#[test]
fn a_limit_above_leaves_room_for_part_of_a_claim() {
    let entries = [
        of("q0/q2", rigid(0, 0.0, 3, 900.0)),
        of("default", rigid(1, 1.0, 1, 900.0)),
        of("default", rigid(2, 2.0, 4, 900.0)),
        of("q0/q1", rigid(3, 3.0, 4, 50.0)),
    ];
    let notes = notes("fifo_skip", &siblings("75%"), &entries, cluster(1, 8));
    assert_eq!(notes[3], (3.0, vec![0, 1, 0, 4], 4));
}

/// The job outside stops and gives more than it was to give: the sibling gives all the same, or `q0` held too much.
#[test]
fn a_sibling_makes_room_before_others_give() {
    let entries = [
        of("q0/q2", rigid(0, 0.0, 1, 900.0)),
        of("default", rigid(1, 1.0, 7, 900.0)),
        of("q0/q1", rigid(2, 2.0, 4, 50.0)),
    ];
    let notes = notes("fifo_skip", &siblings("50%"), &entries, cluster(1, 8));
    assert_eq!(notes[2], (2.0, vec![0, 0, 4], 4));
}

/// Who loses devices of one type wants those of the other, and the queue that has these then wants the first: four
/// times around, and the job of `q1` was left out.
#[test]
fn queues_do_not_push_each_other_from_type_to_type() {
    let mut entries = [
        elastic(0, 0.0, 6, 105.0),
        rigid(1, 0.0, 4, 49.0),
        elastic(2, 0.0, 6, 21.0),
        elastic(3, 0.0, 6, 7.0),
        rigid(4, 1.0, 4, 7.0),
        rigid(5, 1.0, 1, 7.0),
        elastic(6, 2.0, 3, 7.0),
    ];
    let tree = r#"
        half_life = "5min"
        queues = [
            { name = "q0", guarantee = "20%" },
            { name = "q1", guarantee = "20%", limit = "75%" },
            { name = "q2", guarantee = "20%", limit = "50%" },
            { name = "q2/q3", guarantee = "60%", weight = 2 },
        ]
    "#;
    let tree = QueueTree::parse(tree, "test").expect("it is a tree");
    spread(&mut entries, &tree, 8_309_477_424_726_082_952);
    let mut view = cluster(2, 8);
    view.device_types.push("other".into());
    view.nodes[1].device_type = 1;
    simulate("hell", &tree, &entries, &Scenario::new(view));
}

/// The job that was revised to need more than its queue may hold stops, and nothing else happens for which the policy
/// would be asked again: the job behind it gets its devices all the same.
#[test]
fn who_stops_and_is_too_wide_does_not_hold_up_others() {
    let tree = QueueTree::parse(r#"queues = [{ name = "a", limit = "50%" }]"#, "test").expect("it is a tree");
    let job = |devices| Job::clone(&of("a", rigid(0, 0.0, devices, 1.0)).job);
    let script = vec![
        (0.0, Event::Arrive(job(4), 900.0)),
        (1.0, Event::Arrive(job(3), 30.0)),
        (2.0, Event::Revise(0, job(8))),
    ];
    let belief = Belief { salt: Cell::new(0), law: always };
    let mut live = Live::new(cluster(1, 8), &belief, script, true);
    let mut lawful = Lawful::new("priority", &tree);
    drive(&mut lawful, &mut live, &belief).expect("no law is broken");
    let left: Vec<u32> = live.view.jobs.keys().map(|id| id.0).collect();
    assert_eq!(left, [0]);
}

/// A job that holds more of one type than its queue may hold of the other is moved to the other, and nothing else
/// happens afterwards: it asks for what the queue may hold there. It asked for what it had held, and waited for ever.
#[test]
fn who_is_moved_to_another_type_asks_for_what_its_queue_may_hold_there() {
    let tree = QueueTree::parse(r#"queues = [{ name = "a", limit = "50%" }]"#, "test").expect("it is a tree");
    let mut view = cluster(2, 8);
    view.device_types.push("other".into());
    (view.nodes[1].device_type, view.nodes[1].devices, view.nodes[1].free) = (1, 12, 12);
    let job = |types: &[u16]| Job {
        device_types: types.to_vec(),
        ..Job::clone(&of("a", elastic(0, 0.0, 6, 1.0)).job)
    };
    let script = vec![(0.0, Event::Arrive(job(&[1]), 600.0)), (10.0, Event::Revise(0, job(&[0])))];
    let belief = Belief { salt: Cell::new(0), law: always };
    let mut live = Live::new(view, &belief, script, true);
    let mut lawful = Lawful::new("priority", &tree);
    drive(&mut lawful, &mut live, &belief).expect("no law is broken");
    assert!(live.is_over(), "{:#?}", live.view.jobs);
}

/// Of a table of measurements only some numbers of devices are known.
fn table(known: &'static [u32]) -> ByCount<impl Fn(u32, u32) -> Option<f64>> {
    ByCount(move |devices, _| known.contains(&devices).then_some(f64::from(devices)))
}

/// Within its queue's limit of 6 devices, a job that may have 8 asks for the most of which its speed is known. It asked
/// for 6 otherwise: a gang waited for ever, and another policy started it where its speed is not known.
#[test]
fn who_is_wider_than_the_queue_asks_for_what_the_model_knows() {
    let tree = QueueTree::parse(r#"queues = [{ name = "a", limit = "75%" }]"#, "test").expect("it is a tree");
    let entries = [of("a", elastic(0, 0.0, 8, 900.0))];
    let model = table(&[1, 2, 4, 8]);
    for about in Registry::built_in().iter() {
        let mut policy = Registry::built_in().parse_with_queues(about.name, &tree).expect("it is there").1;
        let recording = run(&mut policy, &entries, &Scenario::new(cluster(1, 8)), &model)
            .unwrap_or_else(|fault| panic!("{}: {fault}", about.name));
        assert!(recording.jobs[0].end_s.is_some(), "{}: it never ran", about.name);
        if about.gangs {
            assert_eq!(recording.jobs[0].end_s, Some(225.0), "{}: on 4 devices", about.name);
        }
    }
    let job = &entries[0].job;
    let view = cluster(1, 8);
    let most = |known| most_known(&mut Speeds::new(), (&table(known), &view), job, &[6]);
    assert_eq!((most(&[1, 5, 7]), most(&[7, 8])), (Some(5), None));
}
