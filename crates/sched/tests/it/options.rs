//! Options after the colon of a policy's name: by place, by name, repeated, and wrong.

use bellwether_sched::policy;

fn complaint(text: &str) -> String {
    policy::parse(text).err().map(|error| error.to_string()).unwrap_or_default()
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
        ("las2d:7200,3250", "above the one before"),
        ("las:0", "above 0"),
        ("las:x", "`x` is no number"),
        ("las:inf", "no finite number"),
        ("las:promote=-1", "-1"),
        ("las:factor=2", "no option for `factor=2`"),
        ("gittins2d:quantum=0", "above 0"),
        ("srtf:1", "no option for `1`"),
    ] {
        assert!(complaint(text).contains(word), "{text}: {}", complaint(text));
    }
}
