//! What `predict` is asked, in the words of the command.

use bellwether_answers::predict::device;

#[test]
fn a_device_has_a_speed_or_a_profile() {
    let spec = |text: &str| device(text).map(|spec| (spec.name, spec.speed.to_string(), spec.count));
    assert_eq!(spec("p100=2.5"), Ok(("p100".into(), "2.5".into(), None)));
    assert_eq!(spec("p100=2.5:4"), Ok(("p100".into(), "2.5".into(), Some(4))));
    assert_eq!(spec("p100=a/p.json"), Ok(("p100".into(), "a/p.json".into(), None)));
    assert_eq!(spec("p100=a:b=c.json:4"), Ok(("p100".into(), "a:b=c.json".into(), Some(4))));
    for wrong in ["p100", "=2", "p100=0", "p100=fast", "p100=p.json:many", "p100=p.toml", "p100=2:100001"] {
        assert!(spec(wrong).is_err_and(|error| error.to_string().contains("PROFILE.json")), "{wrong}");
    }
}
