//! Trees of queues: what they guarantee while nodes come and go, and how they are written.

use bellwether_core::queue::{QueueTree, QueuesFile};

fn tree(text: &str) -> QueueTree {
    QueueTree::parse(text, "queues.toml").expect("it is a tree")
}

/// Guarantees of the named queues, of this many devices that are up.
fn guarantees<const N: usize>(tree: &QueueTree, device_type: &str, up: u32, names: [&str; N]) -> [u32; N] {
    let all = tree.guarantees(device_type, up);
    names.map(|name| all[tree.find(name).expect("it is there")])
}

#[test]
fn guarantees_shrink_with_the_cluster() {
    let tree = tree(
        r#"queues = [
            { name = "a/x", guarantee = 6 },
            { name = "a", guarantee = "60%" },
            { name = "a/y", guarantee = { v100 = 3, p100 = "50%" } },
            { name = "b", guarantee = "40%", limit = "50%" },
        ]"#,
    );
    let names = ["a", "a/x", "a/y", "b", "default"];
    assert_eq!(guarantees(&tree, "v100", 15, names), [9, 6, 3, 6, 0]);
    // 7 of 11 are not 60 %, and 6 and 3 of these 6 devices become two thirds of them.
    assert_eq!(guarantees(&tree, "v100", 11, names), [6, 4, 2, 4, 0]);
    assert_eq!(guarantees(&tree, "p100", 20, names), [12, 6, 6, 8, 0]);
    assert_eq!(guarantees(&tree, "v100", 0, names), [0; 5]);
    let limits = tree.limits("v100", 15);
    assert_eq!(limits[tree.find("b").expect("it is there")], 7);
}

#[test]
fn a_file_reads_back() {
    let text = "half_life = \"2h\"\n[[queues]]\nname = \"a\"\nguarantee = \"12.5%\"\nlimit = 9\nweight = 0.5\n\
                [[queues]]\nname = \"b\"\n[queues.guarantee]\nv100 = 3\n";
    let file: QueuesFile = bellwether_core::parse::document(text, "queues.toml").expect("it is a file");
    let written = toml::to_string(&file).expect("it can be written");
    let again: QueuesFile = bellwether_core::parse::document(&written, "queues.toml").expect("as before");
    assert_eq!(again, file);
    let json = serde_json::to_string(&tree(text)).expect("it can be written");
    assert_eq!(serde_json::from_str::<QueueTree>(&json).expect("as before"), tree(text));
}

#[test]
fn contradictions_are_named() {
    let refused = |text: &str| QueueTree::parse(text, "queues.toml").expect_err("it is none").to_string();
    let cases = [
        ("queues = [{ name = \"a\" }, { name = \"a\" }]", "there is a queue of this name already"),
        ("queues = [{ name = \"a b\" }]", "this cannot name a queue"),
        ("queues = [{ name = \"a\", weight = 0 }]", "a number above 0"),
        (
            "queues = [{ name = \"a\", guarantee = \"70%\" }, { name = \"b\", guarantee = \"40%\" }]",
            "110 % of it",
        ),
        ("queues = [{ name = \"default\" }, { name = \"default/a\" }]", "it has queues below it"),
        ("half_life = \"0s\"\nqueues = []", "`half_life` takes no time"),
        ("queues = [{ name = \"a\", guarantee = \"101%\" }]", "0% to 100%"),
    ];
    for (text, expected) in cases {
        let error = refused(text);
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
}
