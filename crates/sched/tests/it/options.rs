//! The registry of policies, and options after the colon of a name: by place, by name, repeated, and wrong.

use bellwether_core::policy::Promises;
use bellwether_sched::policy::{About, fifo};
use bellwether_sched::registry::Registry;

fn complaint(text: &str) -> String {
    Registry::built_in().parse(text).err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn thresholds_are_as_many_as_are_given() {
    for text in
        ["las2d", "las2d:3250,7200", "las:10", "las:1,2,3,4,5", "las:1,promote=2,3", "gittins2d:quantum=9"]
    {
        assert_eq!(complaint(text), "", "{text}");
    }
}

#[test]
fn wrong_values_are_named() {
    for (text, word) in [
        ("las2d:7200,3250", "above the threshold before"),
        ("las:0", "above 0"),
        ("las:x", "invalid value \"x\": expected a number"),
        ("las:inf", "expected a finite number"),
        ("las:promote=-1", "-1"),
        ("las:factor=2", "invalid option \"factor\": expected one of threshold..., promote"),
        ("gittins2d:quantum=0", "above 0"),
        ("srtf:1", "invalid option \"1\": expected none"),
    ] {
        assert!(complaint(text).contains(word), "{text}: {}", complaint(text));
    }
}

#[test]
fn a_policy_that_was_registered_is_named_like_any_other() {
    let about = About {
        name: "mine",
        idea: "an idea",
        options: &[("patience", 60.0, "seconds")],
        bad_when: "never",
        promises: Promises { work_conserving: false, starvation_free: false },
        make: |options| match options.get("patience") {
            patience if patience > 0.0 => (fifo::STRICT.make)(options),
            _ => Err(options.out_of_range("patience", "a number above 0")),
        },
        ..fifo::STRICT
    };
    let mut registry = Registry::built_in();
    let built_in = registry.iter().count();
    assert!(registry.parse("mine").is_err());
    registry.register(about).unwrap();
    assert_eq!(registry.iter().last().map(|about| about.name), Some("mine"));
    assert_eq!((registry.iter().count(), registry.parse("mine:5").unwrap().0.name), (built_in + 1, "mine"));
    let complaint =
        |text: &str| registry.parse(text).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(complaint("mine:0").contains("invalid option patience \"0\": expected a number above 0"));
    assert!(complaint("mine:1,2").contains("patience=60 (seconds)"));
    assert!(complaint("mime").contains("did you mean `mine`?"));
    for name in ["mine", "fifo", "", "1st", "two words", "a:b", "a,b", "Mine"] {
        assert!(registry.register(About { name, ..about }).is_err(), "{name:?}");
    }
}
