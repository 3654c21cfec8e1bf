//! The objects on the documentation's pages can be created as they stand there.

use bellwether_operator::crd::{Queue, file, read};
use bellwether_operator::spec;
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The objects in a page's blocks of YAML.
fn objects(page: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{page}")).expect(page);
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(|block| serde_saphyr::from_str(block).expect(page)).collect()
}

#[test]
fn objects_on_the_pages_are_accepted() {
    let (mut jobs, mut queues) = (0, 0);
    for page in ["kubernetes.md", "kubernetes-tour.md"] {
        for object in objects(page) {
            if object["kind"] == "Queue" {
                let queue: Queue = serde_json::from_value(object).expect(page);
                assert!(file(&[queue]).is_ok(), "{page}");
                queues += 1;
            } else {
                let job = read(&object).expect(page);
                assert!(matches!(spec::of(&job), Ok(Some(_))), "{page}: {:?}", spec::of(&job).err());
                jobs += 1;
            }
        }
    }
    assert_eq!((jobs, queues), (3, 1));
}
