//! A network of cells: which operations its edges hold, and how a space of such networks is split.
//!
//! # Model
//!
//! ```text
//! node 0 is the cell's input; node j = Σ_{i<j} o_ij(node i); the last node is its output
//! edge number of i → j: j (j - 1) / 2 + i
//! architecture: one operation for each edge; supernet: a list of operations for each edge
//! ```
//!
//! # Source
//!
//! X. Dong and Y. Yang, NAS-Bench-201, ICLR 2020 (the cell, the operations, the text of an architecture); Y. Zhao et
//! al., Few-shot Neural Architecture Search, ICML 2021 (the split of edges).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::{InputError, ParseError};
use crate::spelling::did_you_mean;

/// Most nodes of a cell: 28 edges.
const NODES_MAX: usize = 8;

/// What an edge of a cell does with the maps of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CellOperation {
    /// Nothing comes through.
    #[serde(rename = "none")]
    None,
    /// The maps as they are.
    #[serde(rename = "skip", alias = "skip_connect")]
    Skip,
    /// ReLU, a 1×1 convolution, batch normalisation.
    #[serde(rename = "conv1x1", alias = "nor_conv_1x1")]
    Conv1x1,
    /// ReLU, a 3×3 convolution, batch normalisation.
    #[serde(rename = "conv3x3", alias = "nor_conv_3x3")]
    Conv3x3,
    /// The mean over 3×3 pixels, those beyond the border not counted.
    #[serde(rename = "avgpool3x3", alias = "avg_pool_3x3")]
    AvgPool3x3,
}

impl CellOperation {
    /// All of them, in the order of NAS-Bench-201.
    pub const ALL: [CellOperation; 5] = [
        CellOperation::None,
        CellOperation::Skip,
        CellOperation::Conv1x1,
        CellOperation::Conv3x3,
        CellOperation::AvgPool3x3,
    ];

    /// Its word in a job file.
    pub fn name(self) -> &'static str {
        match self {
            CellOperation::None => "none",
            CellOperation::Skip => "skip",
            CellOperation::Conv1x1 => "conv1x1",
            CellOperation::Conv3x3 => "conv3x3",
            CellOperation::AvgPool3x3 => "avgpool3x3",
        }
    }

    /// Its word in NAS-Bench-201.
    fn benchmark_name(self) -> &'static str {
        match self {
            CellOperation::None => "none",
            CellOperation::Skip => "skip_connect",
            CellOperation::Conv1x1 => "nor_conv_1x1",
            CellOperation::Conv3x3 => "nor_conv_3x3",
            CellOperation::AvgPool3x3 => "avg_pool_3x3",
        }
    }

    /// Width of the square kernel whose weights it trains; `None` where it trains nothing.
    pub fn kernel(self) -> Option<usize> {
        match self {
            CellOperation::Conv1x1 => Some(1),
            CellOperation::Conv3x3 => Some(3),
            _ => None,
        }
    }
}

impl FromStr for CellOperation {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let is_it =
            |operation: &CellOperation| [operation.name(), operation.benchmark_name()].contains(&text);
        let found = CellOperation::ALL.into_iter().find(is_it);
        found
            .ok_or_else(|| ParseError::one_of("operation", text, CellOperation::ALL.map(CellOperation::name)))
    }
}

/// The operations of each edge, in the order of the edges. Empty: every edge may hold every operation of the cell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellEdges(pub Vec<Vec<CellOperation>>);

/// A network of equal cells: one architecture where each edge holds one operation, else a supernet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Channels of the first stage; each further stage doubles them and halves the image.
    #[serde(default = "channels")]
    pub channels: usize,
    /// Cells per stage.
    #[serde(default = "one")]
    pub cells: usize,
    /// Stages, with a residual block between two of them.
    #[serde(default = "one")]
    pub stages: usize,
    /// Nodes of a cell, its input and its output among them: 4 nodes have 6 edges.
    #[serde(default = "nodes")]
    pub nodes: usize,
    /// The operations that an edge may hold.
    #[serde(default = "operations")]
    pub operations: Vec<CellOperation>,
    /// One operation for each edge, or a list of them for a supernet: `["conv3x3", ["none", "skip"], …]`, or the text
    /// of NAS-Bench-201 (`"|conv3x3~0|+|none~0|skip~1|+…"`). Without it every edge holds all `operations`.
    #[serde(default, skip_serializing_if = "CellEdges::is_free")]
    pub architecture: CellEdges,
}

fn channels() -> usize {
    16
}
fn one() -> usize {
    1
}
fn nodes() -> usize {
    4
}
fn operations() -> Vec<CellOperation> {
    CellOperation::ALL.to_vec()
}

/// Source and target of an edge.
pub fn edge_ends(edge: usize) -> (usize, usize) {
    let mut target = 1;
    while target * (target + 1) / 2 <= edge {
        target += 1;
    }
    (edge - target * (target - 1) / 2, target)
}

/// Which edges decide what comes out of a cell with this architecture: neither they nor all ways to them, or from them
/// to the output, hold nothing. The others are not computed.
///
/// ```
/// use bellwether_core::job::{CellOperation::{None, Skip}, live_edges};
/// // 0→1 goes nowhere; 0→2 and 2→3 are what is left.
/// assert_eq!(live_edges(&[Skip, Skip, None, None, None, Skip]), [false, true, false, false, false, true]);
/// ```
pub fn live_edges(architecture: &[CellOperation]) -> Vec<bool> {
    let is_there = |edge: usize| architecture[edge] != CellOperation::None;
    let nodes = architecture.len().checked_sub(1).map_or(1, |last| edge_ends(last).1 + 1);
    let mut reached = vec![false; nodes];
    reached[0] = true;
    for edge in (0..architecture.len()).filter(|edge| is_there(*edge)) {
        let (source, target) = edge_ends(edge);
        reached[target] |= reached[source];
    }
    let mut leads = vec![false; nodes];
    leads[nodes - 1] = true;
    for edge in (0..architecture.len()).rev().filter(|edge| is_there(*edge)) {
        let (source, target) = edge_ends(edge);
        leads[source] |= leads[target];
    }
    let is_live = |edge: usize| {
        let (source, target) = edge_ends(edge);
        is_there(edge) && reached[source] && leads[target]
    };
    (0..architecture.len()).map(is_live).collect()
}

/// The text of NAS-Bench-201 for an architecture.
///
/// ```
/// use bellwether_core::job::{CellOperation::{Conv3x3, None, Skip}, architecture_text};
/// assert_eq!(architecture_text(&[Conv3x3, None, Skip]), "|nor_conv_3x3~0|+|none~0|skip_connect~1|");
/// ```
pub fn architecture_text(architecture: &[CellOperation]) -> String {
    let mut text = String::new();
    for (edge, operation) in architecture.iter().enumerate() {
        let (source, target) = edge_ends(edge);
        text.push_str(match (source, target) {
            (0, 1) => "|",
            (0, _) => "+|",
            _ => "",
        });
        text.push_str(&format!("{}~{source}|", operation.benchmark_name()));
    }
    text
}

impl Cell {
    /// Edges of a cell.
    pub fn edge_count(&self) -> usize {
        self.nodes * (self.nodes - 1) / 2
    }

    /// The operations of each edge.
    pub fn edges(&self) -> Vec<Vec<CellOperation>> {
        match self.architecture.is_free() {
            true => vec![self.operations.clone(); self.edge_count()],
            false => self.architecture.0.clone(),
        }
    }

    /// The one architecture that it is; `None` of a supernet.
    pub fn fixed(&self) -> Option<Vec<CellOperation>> {
        self.edges().into_iter().map(|edge| (edge.len() == 1).then(|| edge[0])).collect()
    }

    /// The same network with these operations on its edges.
    #[must_use]
    pub fn with_edges(&self, edges: Vec<Vec<CellOperation>>) -> Cell {
        Cell { architecture: CellEdges(edges), ..self.clone() }
    }

    /// The same network with one operation on each edge.
    #[must_use]
    pub fn with_architecture(&self, architecture: &[CellOperation]) -> Cell {
        self.with_edges(architecture.iter().map(|operation| vec![*operation]).collect())
    }

    /// Architectures in the space.
    pub fn count(&self) -> f64 {
        self.edges().iter().map(|edge| edge.len() as f64).product()
    }

    /// Whether the architecture is in the space.
    pub fn contains(&self, architecture: &[CellOperation]) -> bool {
        let edges = self.edges();
        edges.len() == architecture.len()
            && edges.iter().zip(architecture).all(|(edge, operation)| edge.contains(operation))
    }

    /// The sub-spaces in which these edges hold one operation each: one for each choice, the first edge slowest. They
    /// are disjoint and cover the space.
    #[must_use]
    pub fn split(&self, edges: &[usize]) -> Vec<Cell> {
        let mut parts = vec![self.edges()];
        for edge in edges {
            let part = |part: Vec<Vec<CellOperation>>| {
                let choices = part[*edge].clone();
                choices.into_iter().map(move |choice| {
                    let mut part = part.clone();
                    part[*edge] = vec![choice];
                    part
                })
            };
            parts = parts.into_iter().flat_map(part).collect();
        }
        parts.into_iter().map(|edges| self.with_edges(edges)).collect()
    }

    /// Checks what the types cannot.
    pub(super) fn check(&self) -> Result<(), InputError> {
        let wrong = |key: &str, what: String| InputError::new(format!("model.{key}"), what);
        let within =
            |key: &str, value: usize, least: usize, most: usize| match (least..=most).contains(&value) {
                true => Ok(()),
                false => Err(wrong(key, format!("{value} is not in {least}…{most}"))),
            };
        within("channels", self.channels, 1, 1 << 12)?;
        within("cells", self.cells, 1, 100)?;
        within("stages", self.stages, 1, 8)?;
        within("nodes", self.nodes, 2, NODES_MAX)?;
        let distinct = |key: &str, operations: &[CellOperation]| {
            let twice = operations.iter().enumerate().find(|(place, one)| operations[..*place].contains(one));
            match twice {
                _ if operations.is_empty() => Err(wrong(key, "there is no operation to choose from".into())
                    .hint(format!("name one or more of {}", names(&CellOperation::ALL)))),
                Some((_, one)) => Err(wrong(key, format!("`{}` is there twice", one.name()))),
                None => Ok(()),
            }
        };
        distinct("operations", &self.operations)?;
        if self.architecture.is_free() {
            return Ok(());
        }
        let (edges, wanted) = (&self.architecture.0, self.edge_count());
        if edges.len() != wanted {
            let what =
                format!("{} edges are given, and a cell of {} nodes has {wanted}", edges.len(), self.nodes);
            return Err(wrong("architecture", what).hint(
                "name them in the order 0→1, 0→2, 1→2, 0→3 …: all edges into a node before those into the next",
            ));
        }
        for (number, edge) in edges.iter().enumerate() {
            let (source, target) = edge_ends(number);
            let key = format!("architecture[{number}] ({source}→{target})");
            distinct(&key, edge)?;
            if let Some(other) = edge.iter().find(|operation| !self.operations.contains(operation)) {
                let what = format!("`{}` is not among model.operations", other.name());
                return Err(wrong(&key, what).hint(format!("those are {}", names(&self.operations))));
            }
        }
        Ok(())
    }
}

fn names(operations: &[CellOperation]) -> String {
    operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ")
}

impl CellEdges {
    /// Whether every edge may hold every operation.
    pub fn is_free(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for CellEdges {
    type Err = String;

    /// Reads the text of NAS-Bench-201: for each node but the first the operations from all nodes before it.
    fn from_str(text: &str) -> Result<CellEdges, String> {
        let mut edges = Vec::new();
        for (node, part) in text.trim().split('+').enumerate() {
            let inner = part.trim().strip_prefix('|').and_then(|part| part.strip_suffix('|'));
            let inner = inner.ok_or_else(|| format!("`{part}` does not stand between two bars"))?;
            let words: Vec<&str> = inner.split('|').collect();
            if words.len() != node + 1 {
                return Err(format!("node {} has {} inputs instead of {}", node + 1, words.len(), node + 1));
            }
            for (source, word) in words.into_iter().enumerate() {
                let (name, from) =
                    word.rsplit_once('~').ok_or_else(|| format!("`{word}` names no source"))?;
                if from != source.to_string() {
                    return Err(format!("`{word}` stands where the edge from node {source} is"));
                }
                let operation = name.parse::<CellOperation>().map_err(|_| {
                    let hint = did_you_mean(name, &CellOperation::ALL.map(CellOperation::name));
                    format!("no operation is called `{name}`; {hint}")
                })?;
                edges.push(vec![operation]);
            }
        }
        Ok(CellEdges(edges))
    }
}

impl Serialize for CellEdges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Edge<'a> {
            One(CellOperation),
            Many(&'a [CellOperation]),
        }
        serializer.collect_seq(self.0.iter().map(|edge| match edge[..] {
            [one] => Edge::One(one),
            _ => Edge::Many(edge),
        }))
    }
}

impl<'de> Deserialize<'de> for CellEdges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Edges;
        impl<'de> Visitor<'de> for Edges {
            type Value = CellEdges;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one operation, or a list of them, for each edge")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<CellEdges, E> {
                text.parse().map_err(|why| E::custom(format!("`{text}` names no architecture: {why}")))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<CellEdges, A::Error> {
                let mut edges = Vec::new();
                while let Some(Edge(edge)) = sequence.next_element()? {
                    edges.push(edge);
                    if edges.len() > NODES_MAX * NODES_MAX {
                        return Err(de::Error::custom(format!(
                            "there are more than {} edges",
                            edges.len() - 1
                        )));
                    }
                }
                match edges.is_empty() {
                    true => Err(de::Error::custom("the list of edges is empty")),
                    false => Ok(CellEdges(edges)),
                }
            }
        }
        deserializer.deserialize_any(Edges)
    }
}

/// The operations of one edge, as they are read.
struct Edge(Vec<CellOperation>);

impl<'de> Deserialize<'de> for Edge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Operations;
        impl<'de> Visitor<'de> for Operations {
            type Value = Edge;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an operation, or a list of operations")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Edge, E> {
                CellOperation::deserialize(de::value::StrDeserializer::new(text)).map(|one| Edge(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<Edge, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(sequence)).map(Edge)
            }
        }
        deserializer.deserialize_any(Operations)
    }
}

impl JsonSchema for CellEdges {
    fn schema_name() -> Cow<'static, str> {
        "CellEdges".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let operation = generator.subschema_for::<CellOperation>();
        json_schema!({
            "anyOf": [
                { "type": "string", "pattern": "^\\|.*\\|$" },
                {
                    "type": "array",
                    "items": { "anyOf": [operation.clone(), { "type": "array", "items": operation }] }
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::CellOperation::{AvgPool3x3, Conv1x1, Conv3x3, None, Skip};
    use super::*;

    fn cell(text: &str) -> Result<Cell, String> {
        let cell: Cell = toml::from_str(text).map_err(|error| error.message().to_string())?;
        cell.check().map(|()| cell).map_err(|error| error.to_string())
    }

    #[test]
    fn edges_are_numbered_by_their_targets() {
        let ends: Vec<_> = (0..6).map(edge_ends).collect();
        assert_eq!(ends, [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]);
    }

    #[test]
    fn an_architecture_has_three_spellings() {
        let text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|none~2|";
        let read = cell(&format!("architecture = {text:?}")).unwrap();
        let fixed = [Conv3x3, None, Skip, AvgPool3x3, Conv1x1, None];
        assert_eq!(read.fixed().as_deref(), Some(&fixed[..]));
        let list =
            "architecture = [\"conv3x3\", \"none\", [\"skip\"], \"avgpool3x3\", \"conv1x1\", \"none\"]";
        assert_eq!(cell(list).unwrap(), read);
        let own =
            text.replace("nor_conv_", "conv").replace("skip_connect", "skip").replace("avg_pool_", "avgpool");
        assert_eq!(cell(&format!("architecture = {own:?}")).unwrap(), read);
        assert_eq!(architecture_text(&fixed), text);
        let written = toml::to_string(&read).unwrap();
        assert_eq!(cell(&written).unwrap(), read);
    }

    #[test]
    fn impossible_spaces_are_named() {
        let refused = |text: &str, with: &str| {
            let error = cell(text).unwrap_err();
            assert!(error.contains(with), "{error}");
        };
        refused("architecture = [\"skip\", \"skip\"]", "2 edges are given, and a cell of 4 nodes has 6");
        refused("nodes = 2\narchitecture = [[]]", "model.architecture[0] (0→1): there is no operation");
        refused("nodes = 2\narchitecture = [\"conv5x5\"]", "unknown variant `conv5x5`");
        refused("nodes = 2\narchitecture = \"|conv5x5~0|\"", "did you mean `conv1x1`?");
        refused(
            "nodes = 2\noperations = [\"skip\"]\narchitecture = [\"none\"]",
            "not among model.operations",
        );
        refused("operations = []", "no operation to choose from");
        refused("operations = [\"skip\", \"skip\"]", "`skip` is there twice");
        refused("nodes = 1", "1 is not in 2…8");
        refused("chanels = 3", "unknown field `chanels`");
    }
}
