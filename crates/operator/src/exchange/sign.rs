//! Signatures of requests and answers.

use std::fmt;

use bellwether_runtime::channel::{Cipher, Token};
use ring::hmac;

/// The header with the signature.
pub(super) const SIGNATURE: &str = "x-bellwether-signature";

/// The header with the name of the pod that asks.
pub(super) const POD: &str = "x-bellwether-pod";

/// What a token's key for signatures is derived for.
const PURPOSE: &str = "bellwether operator: signatures of what pods say";

/// Bytes of a signature.
const BYTES: usize = 32;

/// The token of the job with this uid: it follows from the operator's key, and no other token follows from it.
///
/// Its cipher is the one that nodes have instructions for, and does not depend on the machine that asks: an operator
/// that moves derives the same.
pub fn token_of(master: &[u8; 32], uid: &str) -> Token {
    let key = hmac::Key::new(hmac::HMAC_SHA256, master);
    let tag = over(&key, "job token", &[uid.as_bytes()]);
    Token::of_secret(bytes_of(&tag), Cipher::Aes256Gcm)
}

/// Signs and checks what is said about one job.
#[derive(Clone)]
pub(super) struct Key(hmac::Key);

/// A signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature([u8; BYTES]);

/// A request, as far as it is signed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'r> {
    /// The method.
    pub(super) method: &'r str,
    /// The path with its query.
    pub(super) path: &'r str,
    /// The pod that asks.
    pub(super) pod: &'r str,
    /// The body.
    pub(super) body: &'r [u8],
}

impl Key {
    /// Of the job with this token.
    pub(super) fn of(token: &Token) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, &token.key_for(PURPOSE)))
    }

    /// The signature of a request.
    pub(super) fn request(&self, request: &Request<'_>) -> Signature {
        Signature(bytes_of(&over(&self.0, "request", &request.parts())))
    }

    /// The signature of the answer to a request with this signature.
    pub(super) fn answer(&self, status: u16, request: &Signature, body: &[u8]) -> Signature {
        Signature(bytes_of(&over(&self.0, "answer", &[&status.to_be_bytes(), &request.0, body])))
    }

    /// The request's signature, if it is this text.
    pub(super) fn accept(&self, request: &Request<'_>, text: &str) -> Option<Signature> {
        self.same(self.request(request), text)
    }

    /// Whether an answer has this signature.
    pub(super) fn accepts_answer(&self, status: u16, request: &Signature, body: &[u8], text: &str) -> bool {
        self.same(self.answer(status, request, body), text).is_some()
    }

    /// Compares tags of the two rather than themselves: how long that takes tells nothing.
    fn same(&self, right: Signature, text: &str) -> Option<Signature> {
        let said = Signature::parse(text)?;
        let tag = hmac::sign(&self.0, &right.0);
        hmac::verify(&self.0, &said.0, tag.as_ref()).ok().map(|()| right)
    }
}

impl Request<'_> {
    fn parts(&self) -> [&[u8]; 4] {
        [self.method.as_bytes(), self.path.as_bytes(), self.pod.as_bytes(), self.body]
    }
}

impl Signature {
    fn parse(text: &str) -> Option<Signature> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != BYTES || !rest.is_empty() {
            return None;
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [high, low] = pair.map(digit);
            *byte = high? << 4 | low?;
        }
        Some(Signature(bytes))
    }
}

/// Lower case only: a signature is written in one way.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The tag of parts that are told apart by their lengths, for one kind of message.
fn over(key: &hmac::Key, kind: &str, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in [kind.as_bytes()].iter().chain(parts) {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.sign()
}

fn bytes_of(tag: &hmac::Tag) -> [u8; BYTES] {
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> Key {
        Key::of(&token_of(&[7; 32], "a"))
    }

    #[test]
    fn tokens_follow_from_the_key_and_the_job() {
        let token = |master: u8, uid: &str| token_of(&[master; 32], uid).to_text();
        assert_eq!(token(1, "a"), token(1, "a"));
        assert_ne!(token(1, "a"), token(1, "b"));
        assert_ne!(token(1, "a"), token(2, "a"));
        assert!(Token::parse(&token(1, "a")).is_some());
    }

    #[test]
    fn what_is_signed_can_only_be_read_in_one_way() {
        let request = |path, pod| Request { method: "GET", path, pod, body: b"" };
        let key = key();
        assert_ne!(key.request(&request("/ab", "c")), key.request(&request("/a", "bc")));
        let signature = key.request(&request("/a", "b"));
        assert_ne!(key.answer(200, &signature, b""), key.answer(201, &signature, b""));
        assert_ne!(signature, key.answer(200, &signature, b""));
    }

    proptest! {
        #[test]
        fn one_changed_byte_anywhere_is_refused(
            path in "/[a-z0-9?=/]{1,40}",
            pod in "[a-z0-9-]{1,20}",
            body in proptest::collection::vec(any::<u8>(), 0..200),
            part in 0..4usize,
            at in any::<prop::sample::Index>(),
            bits in 1..=255u8,
        ) {
            let key = key();
            let (mut texts, mut body) = (["POST".to_string(), path, pod], body);
            let of = |texts: &[String; 3], body: &[u8]| {
                let [method, path, pod] = texts;
                key.request(&Request { method, path, pod, body })
            };
            let signature = of(&texts, &body);
            let text = signature.to_string();
            prop_assert_eq!(Signature::parse(&text), Some(signature));
            if part == 3 {
                if body.is_empty() {
                    body.push(bits);
                } else {
                    let at = at.index(body.len());
                    body[at] ^= bits;
                }
            } else {
                let mut bytes = texts[part].clone().into_bytes();
                let at = at.index(bytes.len());
                // Another letter, so that it stays text.
                bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
                texts[part] = String::from_utf8(bytes).unwrap();
            }
            prop_assert!(of(&texts, &body) != signature);
            let [method, path, pod] = &texts;
            let changed = Request { method, path, pod, body: &body };
            prop_assert!(key.accept(&changed, &text).is_none());
        }

        #[test]
        fn no_other_text_is_the_signature(text in "\\PC{0,80}", at in 0..64usize, digit in 0..16u32) {
            let request = Request { method: "GET", path: "/", pod: "p", body: b"" };
            let right = key().request(&request).to_string();
            prop_assert_eq!(key().accept(&request, &text).is_some(), text == right);
            let mut near: Vec<char> = right.chars().collect();
            near[at] = char::from_digit(digit, 16).unwrap();
            let near: String = near.into_iter().collect();
            prop_assert_eq!(key().accept(&request, &near).is_some(), near == right);
            prop_assert!(key().accept(&request, &right.to_uppercase()).is_none() || right == right.to_uppercase());
        }
    }
}
