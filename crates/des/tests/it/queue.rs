//! The event queue against a sorted list, under random schedules, cancels and moves.

use bellwether_des::{Queue, Simulation, Ticket};
use proptest::prelude::*;

/// What the queue is compared with: a list that is searched from end to end.
#[derive(Default)]
struct Reference {
    /// Time, order of scheduling, name.
    waiting: Vec<(f64, u64, usize)>,
    scheduled: u64,
}

impl Reference {
    fn schedule(&mut self, time: f64, name: usize) {
        self.waiting.push((time, self.scheduled, name));
        self.scheduled += 1;
    }

    fn cancel(&mut self, name: usize) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|event| event.2 != name);
        before != self.waiting.len()
    }

    fn pop(&mut self) -> Option<(f64, usize)> {
        let order = |a: &&(f64, u64, usize), b: &&(f64, u64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let first = *self.waiting.iter().min_by(order)?;
        self.cancel(first.2);
        Some((first.0, first.2))
    }
}

#[derive(Debug, Clone)]
enum Deed {
    Schedule(i8),
    Cancel(usize),
    Move(usize, i8),
    Pop,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    // Few different times, so that ties are common.
    let deed = prop_oneof![
        4 => (-5i8..20).prop_map(Deed::Schedule),
        2 => any::<usize>().prop_map(Deed::Cancel),
        2 => (any::<usize>(), -5i8..20).prop_map(|(which, time)| Deed::Move(which, time)),
        3 => Just(Deed::Pop),
    ];
    prop::collection::vec(deed, 0..400)
}

proptest! {
    #[test]
    fn events_leave_in_the_order_of_a_sorted_list(deeds in deeds()) {
        let (mut queue, mut reference) = (Queue::new(), Reference::default());
        let mut tickets: Vec<Ticket> = Vec::new();
        for deed in deeds {
            match deed {
                Deed::Schedule(time) => {
                    reference.schedule(f64::from(time) / 4.0, tickets.len());
                    tickets.push(queue.schedule(f64::from(time) / 4.0, tickets.len()));
                }
                Deed::Cancel(which) if !tickets.is_empty() => {
                    let name = which % tickets.len();
                    prop_assert_eq!(queue.cancel(tickets[name]).is_some(), reference.cancel(name));
                }
                Deed::Move(which, time) if !tickets.is_empty() => {
                    let name = which % tickets.len();
                    let waits = reference.cancel(name);
                    if waits {
                        reference.schedule(f64::from(time), name);
                    }
                    prop_assert_eq!(queue.reschedule(tickets[name], f64::from(time)), waits);
                    prop_assert_eq!(queue.time(tickets[name]), waits.then_some(f64::from(time)));
                }
                Deed::Pop => {
                    let peeked = queue.peek().map(|(time, name)| (time, *name));
                    let popped = queue.pop();
                    prop_assert_eq!(peeked, popped);
                    prop_assert_eq!(popped, reference.pop());
                }
                Deed::Cancel(_) | Deed::Move(..) => {}
            }
            prop_assert_eq!(queue.len(), reference.waiting.len());
        }
        while let Some(event) = reference.pop() {
            prop_assert_eq!(queue.pop(), Some(event));
        }
        prop_assert!(queue.is_empty());
    }
}

#[test]
fn a_ticket_does_not_name_the_next_user_of_its_slot() {
    let mut queue = Queue::new();
    let old = queue.schedule(1.0, 'a');
    queue.pop();
    queue.schedule(1.0, 'b');
    assert_eq!(queue.cancel(old), None);
    assert!(!queue.reschedule(old, 5.0));
    assert_eq!(queue.pop(), Some((1.0, 'b')));
}

#[test]
fn the_two_zeros_are_one_time() {
    let mut queue = Queue::new();
    queue.schedule(0.0, 1);
    queue.schedule(-0.0, 2);
    assert_eq!((queue.pop(), queue.pop()), (Some((0.0, 1)), Some((0.0, 2))));
}

#[test]
#[should_panic(expected = "no place in the order")]
fn a_time_that_is_no_number_is_refused() {
    Queue::new().schedule(f64::NAN, ());
}

#[test]
#[should_panic(expected = "before the present")]
fn the_past_is_refused() {
    let mut simulation = Simulation::new();
    simulation.at(2.0, ());
    simulation.step();
    simulation.at(1.0, ());
}

#[test]
#[should_panic(expected = "has not happened")]
fn the_clock_does_not_pass_an_event() {
    let mut simulation = Simulation::new();
    simulation.at(2.0, ());
    simulation.advance(3.0);
}
