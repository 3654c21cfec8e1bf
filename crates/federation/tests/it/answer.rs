//! Questions that have no answer say why, and what can be settled is settled by few payments.

use bellwether_federation::answer::{
    self, EXACT_MEMBERS, Split, Unanswered, Valuation, Valuer, Wanted, affinity, posted, savings,
};
use bellwether_federation::description::{Description, NoFiles};

const HOW: Valuation = Valuation { simulate: false, precision: 0.05, most_states: 1_000_000, seed: 1 };
const WANTED: Wanted = Wanted { split: Split::All, stable: false };

fn queues(members: usize) -> Description {
    let mut text = String::from("[jobs]\nmean_time = \"1h\"\npublic_price = \"$1\"\n");
    for member in 0..members {
        let arrivals = if member % 2 == 0 { 1 } else { 5 };
        text += &format!("[[member]]\nname = \"m{member}\"\nservers = 3\narrivals_per_hour = {arrivals}\n");
    }
    Description::read(&text, "queues.toml", &NoFiles).unwrap()
}

fn market() -> Description {
    let text = r#"
        [[class]]
        name = "language"
        public_price = "$1/h"
        speeds = { a100 = 4.0, t4 = 1.0 }
        [[member]]
        name = "east"
        devices = { t4 = 8 }
        demand = { language = 12.0 }
        [[member]]
        name = "west"
        devices = { a100 = 4 }
        demand = { language = 4.0 }
    "#;
    Description::read(text, "market.toml", &NoFiles).unwrap()
}

#[test]
fn a_game_that_the_description_does_not_know_is_refused() {
    assert_eq!(Valuer::new(&market(), &HOW).map(|_| ()).unwrap_err(), Unanswered::NoJobs);
    assert_eq!(affinity(&queues(2), &HOW, WANTED).map(|_| ()).unwrap_err(), Unanswered::NoClasses);
    assert_eq!(posted(&queues(2)).map(|_| ()).unwrap_err(), Unanswered::NoClasses);
    let simulated = affinity(&market(), &Valuation { simulate: true, ..HOW }, WANTED);
    let class = "language".to_string();
    assert_eq!(simulated.map(|_| ()).unwrap_err(), Unanswered::NoJobLength { class });
}

#[test]
fn members_too_few_or_too_many_are_refused() {
    let one = queues(1);
    let valuer = Valuer::new(&one, &HOW).unwrap();
    assert_eq!(answer::prices(&valuer).map(|_| ()).unwrap_err(), Unanswered::OneMember);
    let members = EXACT_MEMBERS + 1;
    let many = queues(members);
    let valuer = Valuer::new(&many, &HOW).unwrap();
    let wanted = Wanted { split: Split::Core, stable: false };
    let refused = savings(&valuer, &valuer.shared(), &valuer.alone().unwrap(), wanted, &|_, _| ());
    assert_eq!(refused.map(|_| ()).unwrap_err(), Unanswered::OnlySampled { members });
}

#[test]
fn payments_settle_what_each_receives() {
    let three = queues(3);
    let valuer = Valuer::new(&three, &HOW).unwrap();
    let report = savings(&valuer, &valuer.shared(), &valuer.alone().unwrap(), WANTED, &|_, _| ()).unwrap();
    assert!(report.splits.len() > 3);
    for split in &report.splits {
        let payments = split.payments();
        assert!(payments.len() < 3, "{payments:?}");
        for (place, share) in split.members.iter().enumerate() {
            let received: f64 = payments
                .iter()
                .map(|payment| {
                    let sign =
                        f64::from(i8::from(payment.to == place)) - f64::from(i8::from(payment.from == place));
                    sign * payment.dollars_per_hour
                })
                .sum();
            assert!((received - share.receives_dollars_per_hour).abs() < 0.011, "{split:?}");
        }
    }
}
