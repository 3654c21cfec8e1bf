//! Objects of a store that speaks S3: a request each, signed, tried again where the store or the way to it fails for a
//! moment. An object is put in one request, which stores make visible whole or not at all.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use self::environment::{Endpoint, Variables};
use self::sign::{Credentials, Request, sha256};
use super::place::{Object, Objects, StoreError};

mod environment;
mod listing;
mod sign;

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(5);

/// Time for a request beside that for its bytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes per second of which a request is given up that has fewer.
const BYTES_PER_S_MIN: u64 = 1 << 20;

/// Pauses between tries of a request; together with the tries they are about ten seconds.
const PAUSES_MS: [u64; 6] = [50, 150, 400, 1000, 2500, 5000];

/// More bytes no list of a thousand names has, and no error.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// Pages of a list beyond which the store makes no sense.
const PAGES_MAX: usize = 10_000;

/// A prefix in a bucket.
#[derive(Debug)]
pub(super) struct S3 {
    agent: Agent,
    endpoint: Endpoint,
    bucket: String,
    prefix: String,
    /// Of the environment; otherwise the user's file is read for each request.
    who: Option<Credentials>,
}

pub(super) use environment::SECRETS;

/// Whether the user's file of credentials says who asks.
pub(super) fn is_in_file() -> Result<(), StoreError> {
    environment::is_in_file(&variable)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl S3 {
    pub(super) fn from_environment(bucket: &str, prefix: &str) -> Result<S3, StoreError> {
        let variables: Variables<'_> = &variable;
        let endpoint = environment::endpoint(bucket, variables)?;
        let who = environment::credentials(variables)?;
        let is_set = variable("AWS_ACCESS_KEY_ID").is_some_and(|value| !value.trim().is_empty());
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A signature is for one host.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .user_agent("bellwether")
            .tls_config(tls()?)
            .build();
        let (bucket, prefix) = (bucket.into(), prefix.into());
        Ok(S3 { agent: Agent::new_with_config(config), endpoint, bucket, prefix, who: is_set.then_some(who) })
    }

    fn key(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.into() } else { format!("{}/{key}", self.prefix) }
    }

    fn place(&self, key: &str) -> String {
        format!("s3://{}/{}", self.bucket, self.key(key))
    }

    /// Sends a request until it is answered with a success, and hands the answer to `take`; `key` is the whole one.
    fn ask<T>(
        &self,
        what: &Ask<'_>,
        take: &mut dyn FnMut(Response<Body>) -> Result<T, std::io::Error>,
    ) -> Result<T, StoreError> {
        let body = sha256(what.body);
        let mut pauses = PAUSES_MS.iter();
        loop {
            let failed = match self.send(what, &body) {
                Ok(response) if response.status().is_success() => match take(response) {
                    Ok(taken) => return Ok(taken),
                    Err(error) => error.to_string(),
                },
                Ok(response) => {
                    let (passes, error) = self.refusal(what, response);
                    if !passes {
                        return Err(error);
                    }
                    error.to_string()
                }
                Err(Fault::Store(error)) => return Err(error),
                Err(Fault::Way(why)) => why,
            };
            match pauses.next() {
                Some(pause) => std::thread::sleep(Duration::from_millis(*pause)),
                None => return Err(StoreError::Failed { place: what.place.into(), what: failed }),
            }
        }
    }

    fn send(&self, what: &Ask<'_>, body: &str) -> Result<Response<Body>, Fault> {
        let Endpoint { scheme, host, path, region } = &self.endpoint;
        let who = match &self.who {
            Some(who) => who.clone(),
            None => environment::credentials(&variable).map_err(Fault::Store)?,
        };
        let path = format!("{path}/{}", sign::encode(what.key, true));
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(['-', ':'], "");
        let request = Request {
            method: what.method,
            host,
            path: &path,
            query: what.query,
            headers: &[],
            body,
            region,
            time: &time,
        };
        let headers = sign::sign(&request, &who);
        let mut url = format!("{scheme}://{host}{path}");
        if !what.query.is_empty() {
            url = format!("{url}?{}", sign::query(what.query));
        }
        let bytes = what.body.len() as u64 + what.expected;
        let patience = PATIENCE + Duration::from_secs(bytes / BYTES_PER_S_MIN);
        let sent = match what.method {
            "PUT" => {
                let request = self.agent.put(&url).config().timeout_global(Some(patience)).build();
                headers
                    .iter()
                    .fold(request, |request, (name, value)| request.header(*name, value))
                    .send(what.body)
            }
            method => {
                let request = if method == "DELETE" { self.agent.delete(&url) } else { self.agent.get(&url) };
                let request = request.config().timeout_global(Some(patience)).build();
                headers.iter().fold(request, |request, (name, value)| request.header(*name, value)).call()
            }
        };
        // Its text names no header.
        sent.map_err(|error| Fault::Way(format!("{scheme}://{host}: {error}")))
    }

    /// What a store says that does not do what it was asked, and whether another try may help.
    fn refusal(&self, what: &Ask<'_>, response: Response<Body>) -> (bool, StoreError) {
        let status = response.status().as_u16();
        let mut answer = Vec::new();
        let _ = response.into_body().into_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
        let code = listing::code(&answer);
        let place = what.place.to_string();
        let word =
            code.clone().map_or(format!("status {status}"), |code| format!("{code} (status {status})"));
        match (status, code.as_deref()) {
            (404, None | Some("NoSuchKey")) => (false, StoreError::Missing { place }),
            (500.. | 408 | 429, _) | (_, Some("RequestTimeout" | "SlowDown")) => {
                (true, StoreError::Failed { place, what: word })
            }
            _ => (false, StoreError::Refused { place, what: word }),
        }
    }

    /// Takes in all pages of a list.
    fn pages(&self, prefix: &str, delimiter: Option<&str>) -> Result<Vec<listing::Page>, StoreError> {
        let place = format!("s3://{}/{prefix}", self.bucket);
        let (mut pages, mut next): (Vec<listing::Page>, Option<String>) = (Vec::new(), None);
        loop {
            let mut query = vec![("list-type", "2"), ("prefix", prefix)];
            query.extend(delimiter.map(|delimiter| ("delimiter", delimiter)));
            query.extend(next.as_deref().map(|next| ("continuation-token", next)));
            let ask = Ask { method: "GET", key: "", query: &query, body: &[], expected: 0, place: &place };
            let page = self.ask(&ask, &mut |response| {
                let mut answer = Vec::new();
                response.into_body().into_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
                listing::page(&answer)
                    .ok_or_else(|| std::io::Error::other("its answer is not a list of objects"))
            })?;
            next.clone_from(&page.next);
            pages.push(page);
            if next.is_none() {
                return Ok(pages);
            }
            if pages.len() >= PAGES_MAX {
                return Err(StoreError::Failed { place, what: "the list of objects does not end".into() });
            }
        }
    }

    /// Reads an object into memory that `fit` gives for its length, which the store says and which is not believed.
    fn fetch(
        &self,
        key: &str,
        expected: u64,
        into: &mut dyn FnMut(&mut dyn Read) -> std::io::Result<bool>,
    ) -> Result<(), StoreError> {
        let (whole, place) = (self.key(key), self.place(key));
        let ask = Ask { method: "GET", key: &whole, query: &[], body: &[], expected, place: &place };
        let fits = self.ask(&ask, &mut |response| {
            // As long as is expected and one byte more, which shows a longer one.
            let length = response.body().content_length();
            let fits = into(&mut response.into_body().into_reader())?;
            // A transfer that was cut off does not mean that the object is too short.
            let is_cut = !fits && length.is_some_and(|length| length == expected);
            if is_cut { Err(std::io::Error::other("the transfer broke off")) } else { Ok(fits) }
        })?;
        if fits { Ok(()) } else { Err(StoreError::Length { place, bytes: expected }) }
    }
}

/// A request.
struct Ask<'a> {
    method: &'a str,
    /// The whole key.
    key: &'a str,
    query: &'a [(&'a str, &'a str)],
    body: &'a [u8],
    /// Bytes of the answer.
    expected: u64,
    /// What people are told.
    place: &'a str,
}

/// No answer came.
enum Fault {
    /// Another try may help.
    Way(String),
    /// It cannot.
    Store(StoreError),
}

/// Certificates of public authorities, or those of `AWS_CA_BUNDLE`.
fn tls() -> Result<TlsConfig, StoreError> {
    let Some(file) = variable("AWS_CA_BUNDLE").filter(|file| !file.is_empty()) else {
        return Ok(TlsConfig::default());
    };
    let wrong = |what: String| StoreError::Environment { variable: "AWS_CA_BUNDLE".into(), what };
    let bytes = std::fs::read(&file).map_err(|error| wrong(format!("{file}: {error}")))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(wrong(format!("{file}: {error}"))),
        }
    }
    if certificates.is_empty() {
        return Err(wrong(format!("{file} holds no certificate")));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(certificates))).build())
}

impl Objects for S3 {
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (whole, place) = (self.key(key), self.place(key));
        let ask = Ask { method: "PUT", key: &whole, query: &[], body: bytes, expected: 0, place: &place };
        self.ask(&ask, &mut |_| Ok(()))
    }

    fn read(&self, key: &str, into: &mut [u8]) -> Result<(), StoreError> {
        self.fetch(key, into.len() as u64, &mut |reader| {
            let mut filled = 0;
            while filled < into.len() {
                match reader.read(&mut into[filled..])? {
                    0 => return Ok(false),
                    read => filled += read,
                }
            }
            Ok(reader.read(&mut [0])? == 0)
        })
    }

    fn get(&self, key: &str, most: u64) -> Result<Vec<u8>, StoreError> {
        let mut content = Vec::new();
        self.fetch(key, most, &mut |reader| {
            content.clear();
            reader.take(most + 1).read_to_end(&mut content)?;
            Ok(content.len() as u64 <= most)
        })?;
        Ok(content)
    }

    fn list(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let root = self.key("");
        let pages = self.pages(&self.key(folder), None)?;
        let objects = pages.into_iter().flat_map(|page| page.objects);
        Ok(objects
            .filter_map(|object| {
                Some(Object { key: object.key.strip_prefix(&root)?.into(), bytes: object.bytes })
            })
            .collect())
    }

    fn folders(&self) -> Result<Vec<String>, StoreError> {
        let root = self.key("");
        let pages = self.pages(&root, Some("/"))?;
        let folders = pages.into_iter().flat_map(|page| page.folders);
        Ok(folders
            .filter_map(|folder| Some(folder.strip_prefix(&root)?.trim_end_matches('/').into()))
            .collect())
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        let (whole, place) = (self.key(key), self.place(key));
        let ask = Ask { method: "DELETE", key: &whole, query: &[], body: &[], expected: 0, place: &place };
        match self.ask(&ask, &mut |_| Ok(())) {
            Err(StoreError::Missing { .. }) => Ok(()),
            done => done,
        }
    }
}
