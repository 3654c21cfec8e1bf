//! What carries the exchanges between the workers of a run, pair by pair.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::record::LinkKind;
use bellwether_render::words::count;
use bellwether_runtime::control::WorkerStatus;
use serde_json::{Value, json};

/// Pairs that are named for each kind of link.
const NAMED: usize = 12;

/// Every way from a worker to a peer, with its kind.
fn ways(members: &[WorkerStatus]) -> impl Iterator<Item = (u64, u64, LinkKind)> + '_ {
    members.iter().flat_map(|member| {
        let by_kind = member.links.iter();
        by_kind.flat_map(|(kind, peers)| peers.iter().map(|peer| (member.worker, *peer, *kind)))
    })
}

/// All of them, as JSON.
pub(crate) fn json(members: &[WorkerStatus]) -> Value {
    ways(members).map(|(from, to, link)| json!({ "from": from, "to": to, "link": link })).collect()
}

/// The same for people: a fact for each kind of link.
pub(crate) fn rows(members: &[WorkerStatus]) -> impl Iterator<Item = (&'static str, String)> {
    sentences(members).into_iter().map(|sentence| ("exchange through", sentence))
}

/// The pairs by their kind of link; both kinds of a pair whose two ways differ.
fn sentences(members: &[WorkerStatus]) -> Vec<String> {
    let mut pairs = BTreeMap::<(u64, u64), BTreeSet<LinkKind>>::new();
    for (from, to, link) in ways(members) {
        pairs.entry((from.min(to), from.max(to))).or_default().insert(link);
    }
    let mut by_kinds = BTreeMap::<BTreeSet<LinkKind>, Vec<String>>::new();
    for ((one, other), kinds) in pairs {
        by_kinds.entry(kinds).or_default().push(format!("{one}–{other}"));
    }
    let sentence = |(kinds, pairs): (BTreeSet<LinkKind>, Vec<String>)| {
        let kinds: Vec<&str> = kinds.into_iter().map(LinkKind::words).collect();
        let (named, more) = pairs.split_at(pairs.len().min(NAMED));
        let more = match more.len() {
            0 => String::new(),
            others => format!(" and {}", count(others, "other pair")),
        };
        format!("{}: workers {}{more}", kinds.join(" and "), named.join(", "))
    };
    by_kinds.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(worker: u64, links: &[(LinkKind, &[u64])]) -> WorkerStatus {
        let links = links.iter().map(|(kind, peers)| (*kind, peers.to_vec())).collect();
        WorkerStatus { worker, links, ..WorkerStatus::default() }
    }

    #[test]
    fn pairs_are_named_by_what_carries_both_ways() {
        let members = [
            member(1, &[(LinkKind::Lent, &[2]), (LinkKind::EncryptedTcp, &[3])]),
            member(2, &[(LinkKind::SharedMemory, &[1]), (LinkKind::EncryptedTcp, &[3])]),
            member(3, &[(LinkKind::EncryptedTcp, &[1, 2])]),
            member(4, &[]),
        ];
        assert_eq!(
            sentences(&members),
            ["lent memory and shared memory: workers 1–2", "encrypted TCP: workers 1–3, 2–3"]
        );
        assert_eq!(json(&members)[1], json!({ "from": 1, "to": 3, "link": "encrypted_tcp" }));
        assert_eq!(json(&members).as_array().map(Vec::len), Some(6));
    }

    #[test]
    fn of_many_pairs_some_are_named() {
        let peers: Vec<u64> = (2..30).collect();
        let sentence = sentences(&[member(1, &[(LinkKind::UnixSocket, &peers)])]).remove(0);
        assert!(sentence.starts_with("Unix socket: workers 1–2, 1–3, "), "{sentence}");
        assert!(sentence.ends_with(", 1–13 and 16 other pairs"), "{sentence}");
    }
}
