//! Signature version 4 of Amazon Web Services, which S3-like stores understand, for requests without a query that holds
//! the signature. Checked against Amazon's published examples.

use std::fmt;

use ring::{digest, hmac};

use crate::state::hex;

/// Who asks. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    /// `AWS_ACCESS_KEY_ID`.
    pub(super) key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub(super) secret: String,
    /// `AWS_SESSION_TOKEN`, for credentials that end.
    pub(super) token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// What is signed.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// The host, with its port where it is not the scheme's.
    pub(super) host: &'a str,
    /// Percent-encoded.
    pub(super) path: &'a str,
    /// Pairs, not encoded.
    pub(super) query: &'a [(&'a str, &'a str)],
    /// Other headers to be signed, by lower-case names.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body in hexadecimal digits.
    pub(super) body: &'a str,
    pub(super) region: &'a str,
    /// `20130524T000000Z`.
    pub(super) time: &'a str,
}

/// Lower-case hexadecimal digits of the SHA-256 of `bytes`.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Percent-encodes all but unreserved characters, and slashes if they are to stay.
pub(super) fn encode(text: &str, keeps_slashes: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            b'/' if keeps_slashes => encoded.push('/'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The query as it is sent and signed: sorted and encoded.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let mut encoded: Vec<String> =
        pairs.iter().map(|(key, value)| format!("{}={}", encode(key, false), encode(value, false))).collect();
    encoded.sort_unstable();
    encoded.join("&")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// The headers that a request needs beside its own: the time, the body's digest, the token, and the signature.
pub(super) fn sign(request: &Request<'_>, who: &Credentials) -> Vec<(&'static str, String)> {
    let Request { method, host, path, query: pairs, headers, body, region, time } = request;
    let mut signed: Vec<(&str, &str)> =
        vec![("host", host), ("x-amz-content-sha256", body), ("x-amz-date", time)];
    signed.extend(who.token.as_deref().map(|token| ("x-amz-security-token", token)));
    signed.extend_from_slice(headers);
    signed.sort_unstable();
    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!("{method}\n{path}\n{}\n{lines}\n{names}\n{body}", query(pairs));
    let day = time.get(..8).unwrap_or_default();
    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let key = ["s3", "aws4_request"]
        .iter()
        .fold(mac(&mac(format!("AWS4{}", who.secret).as_bytes(), day), region), |key, part| mac(&key, part));
    let signature = hex(&mac(&key, &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        who.key_id
    );
    let mut added = vec![
        ("x-amz-content-sha256", (*body).to_string()),
        ("x-amz-date", (*time).to_string()),
        ("authorization", authorization),
    ];
    added.extend(who.token.clone().map(|token| ("x-amz-security-token", token)));
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn signature(request: &Request<'_>) -> String {
        // The pair that Amazon's documentation uses.
        let who = Credentials {
            key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            token: None,
        };
        let headers = sign(request, &who);
        let (_, authorization) =
            headers.iter().find(|(name, _)| *name == "authorization").expect("it is signed");
        authorization.rsplit_once("Signature=").expect("it has a signature").1.into()
    }

    #[test]
    fn requests_are_signed_as_amazons_examples_are() {
        let request = Request {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: &[],
            headers: &[("range", "bytes=0-9")],
            body: EMPTY,
            region: "us-east-1",
            time: "20130524T000000Z",
        };
        assert_eq!(sha256(b""), EMPTY);
        assert_eq!(signature(&request), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
        let put = Request {
            method: "PUT",
            path: &encode("/test$file.text", true),
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            body: &sha256(b"Welcome to Amazon S3."),
            ..request
        };
        assert_eq!(signature(&put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
        let list = Request {
            method: "GET",
            path: "/",
            query: &[("prefix", "J"), ("max-keys", "2")],
            headers: &[],
            body: EMPTY,
            ..put
        };
        assert_eq!(signature(&list), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    }

    #[test]
    fn a_credential_is_not_shown() {
        let who = Credentials { key_id: "AKIA".into(), secret: "hush".into(), token: Some("hush".into()) };
        assert!(!format!("{who:?}").contains("hush") && !format!("{who:?}").contains("AKIA"));
    }
}
