//! Files of data that a job names: one, or several that follow each other.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Files that hold the samples of a job, one after the other: a path, or a list of paths. The last part of each may be
/// a pattern, in which `*` stands for any letters and `?` for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shards(Vec<PathBuf>);

impl Shards {
    /// The paths and patterns, as the job names them.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// The same, to be changed.
    pub fn paths_mut(&mut self) -> &mut [PathBuf] {
        &mut self.0
    }

    /// Whether the name at the end of a path is a pattern.
    ///
    /// ```
    /// use bellwether_core::job::Shards;
    /// use std::path::Path;
    /// assert!(Shards::is_pattern(Path::new("a/train-*.csv")) && !Shards::is_pattern(Path::new("a*/train.csv")));
    /// ```
    pub fn is_pattern(path: &Path) -> bool {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(['*', '?']))
    }

    /// Whether a pattern describes a whole name.
    ///
    /// ```
    /// use bellwether_core::job::Shards;
    /// assert!(Shards::matches("train-*.csv", "train-007.csv") && Shards::matches("?.b*", "a.bin"));
    /// assert!(!Shards::matches("train-*.csv", "train-7.csv.gz") && !Shards::matches("?", ""));
    /// ```
    pub fn matches(pattern: &str, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
        let (mut at, mut place) = (0, 0);
        // The last `*` and the letters that it has taken so far: only that one ever has to take more.
        let mut star: Option<(usize, usize)> = None;
        while place < name.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at, place));
                    at += 1;
                }
                Some(letter) if *letter == '?' || *letter == name[place] => {
                    at += 1;
                    place += 1;
                }
                _ => {
                    let Some((star_at, taken)) = &mut star else { return false };
                    *taken += 1;
                    (at, place) = (*star_at + 1, *taken);
                }
            }
        }
        pattern[at..].iter().all(|letter| *letter == '*')
    }
}

impl From<Vec<PathBuf>> for Shards {
    fn from(paths: Vec<PathBuf>) -> Shards {
        Shards(paths)
    }
}

impl From<PathBuf> for Shards {
    fn from(path: PathBuf) -> Shards {
        Shards(vec![path])
    }
}

impl From<&str> for Shards {
    fn from(path: &str) -> Shards {
        Shards(vec![path.into()])
    }
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [] => f.write_str("no file"),
            [only] => only.display().fmt(f),
            [first, others @ ..] => write!(f, "{} and {} more", first.display(), others.len()),
        }
    }
}

impl Serialize for Shards {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // One file is written as every release wrote it: digests of jobs are made of this text.
        match &self.0[..] {
            [only] => only.serialize(serializer),
            paths => paths.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Shards {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShardsVisitor;
        impl<'de> Visitor<'de> for ShardsVisitor {
            type Value = Shards;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a path, or a list of paths, whose last part may be a pattern such as \"train-*.csv\"",
                )
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Shards, E> {
                Ok(Shards::from(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Shards, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = sequence.next_element::<PathBuf>()? {
                    paths.push(path);
                }
                Ok(Shards(paths))
            }
        }
        deserializer.deserialize_any(ShardsVisitor)
    }
}

impl JsonSchema for Shards {
    fn schema_name() -> Cow<'static, str> {
        "Shards".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_a_text_and_several_are_a_list() {
        for text in [r#""a.csv""#, r#"["a.csv","b-*.csv"]"#, "[]"] {
            let shards: Shards = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&shards).unwrap(), text);
        }
        assert!(
            serde_json::from_str::<Shards>("[5]").is_err() && serde_json::from_str::<Shards>("5").is_err()
        );
        assert_eq!(Shards::from(vec!["a".into(), "b".into()]).to_string(), "a and 1 more");
    }
}
