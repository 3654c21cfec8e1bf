//! Where a store is and who asks, by the names of the environment that tools for S3 share.

use std::path::PathBuf;

use ureq::http::Uri;

use super::super::place::StoreError;
use super::sign::Credentials;

/// The region where none is said; stores that are not Amazon's take it.
const REGION: &str = "us-east-1";

/// Variables that hold a credential or a part of one.
pub(in super::super) const SECRETS: [&str; 3] =
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// `https` or `http`.
    pub(super) scheme: String,
    /// With its port where it is not the scheme's.
    pub(super) host: String,
    /// Percent-encoded, before the key; without a slash at its end.
    pub(super) path: String,
    pub(super) region: String,
}

/// Reads variables of the environment; tests give others.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

fn wrong(variable: &str, what: impl Into<String>) -> StoreError {
    StoreError::Environment { variable: variable.into(), what: what.into() }
}

/// The endpoint for a bucket.
pub(super) fn endpoint(bucket: &str, variables: Variables<'_>) -> Result<Endpoint, StoreError> {
    let region = variables("AWS_REGION").or_else(|| variables("AWS_DEFAULT_REGION")).unwrap_or(REGION.into());
    let is_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if region.is_empty() || !region.bytes().all(is_region) {
        return Err(wrong("AWS_REGION", "it is not the name of a region, such as us-east-1"));
    }
    for variable in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] {
        let Some(url) = variables(variable).filter(|url| !url.is_empty()) else { continue };
        let expected = "it is not http://HOST:PORT or https://HOST:PORT, without a user or a query";
        let uri: Uri = url.parse().map_err(|_| wrong(variable, expected))?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong(variable, expected));
        };
        if uri.query().is_some() || url.contains(['@', '#']) || authority.host().is_empty() {
            return Err(wrong(variable, expected));
        }
        let usual = if scheme == "http" { 80 } else { 443 };
        let port = authority.port_u16().filter(|port| *port != usual);
        let host = port.map_or(authority.host().into(), |port| format!("{}:{port}", authority.host()));
        // Its certificate and its names may know of no buckets.
        let path = format!("{}/{bucket}", uri.path().trim_end_matches('/'));
        return Ok(Endpoint { scheme: scheme.into(), host, path, region });
    }
    let amazon = format!("s3.{region}.amazonaws.com");
    let (host, path) = match bucket.contains(['.', '_']) {
        // No certificate covers further dots.
        true => (amazon, format!("/{bucket}")),
        false => (format!("{bucket}.{amazon}"), String::new()),
    };
    Ok(Endpoint { scheme: "https".into(), host, path, region })
}

/// Who asks: by the variables, or else by the profile in the user's file, which is read whenever it is needed because
/// it may be renewed.
pub(super) fn credentials(variables: Variables<'_>) -> Result<Credentials, StoreError> {
    let set =
        |name: &str| variables(name).map(|value| value.trim().to_string()).filter(|value| !value.is_empty());
    match (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
        (Some(key_id), Some(secret)) => {
            return checked(Credentials { key_id, secret, token: set("AWS_SESSION_TOKEN") });
        }
        (Some(_), None) => {
            return Err(wrong("AWS_SECRET_ACCESS_KEY", "it is not set, and AWS_ACCESS_KEY_ID is"));
        }
        (None, Some(_)) => {
            return Err(wrong("AWS_ACCESS_KEY_ID", "it is not set, and AWS_SECRET_ACCESS_KEY is"));
        }
        (None, None) => {}
    }
    let beside = || set("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
    let file = set("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(beside);
    let Some(text) = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()) else {
        return Err(wrong("AWS_ACCESS_KEY_ID", "it is not set, and there is no ~/.aws/credentials"));
    };
    let profile = set("AWS_PROFILE").unwrap_or("default".into());
    let place = file.map(|file| file.display().to_string()).unwrap_or_default();
    let missing = || wrong(&place, format!("it has no access key for the profile `{profile}`"));
    checked(of_profile(&text, &profile).ok_or_else(missing)?)
}

/// Whether the user's file says who asks, whatever the variables say.
pub(super) fn is_in_file(variables: Variables<'_>) -> Result<(), StoreError> {
    let others = |name: &str| variables(name).filter(|_| !SECRETS.contains(&name));
    credentials(&others).map(drop)
}

/// Of a file with sections by profile.
fn of_profile(text: &str, profile: &str) -> Option<Credentials> {
    let (mut is_ours, mut key_id, mut secret, mut token) = (false, None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_ours = section.trim() == profile;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_ours && !line.starts_with('#'))
        {
            let value = Some(value.trim().to_string()).filter(|value| !value.is_empty());
            match key.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    Some(Credentials { key_id: key_id?, secret: secret?, token })
}

/// Nothing that a header cannot hold; the value is not repeated.
fn checked(who: Credentials) -> Result<Credentials, StoreError> {
    let plain = |value: &str| value.bytes().all(|byte| byte.is_ascii_graphic());
    if plain(&who.key_id) && plain(&who.secret) && who.token.as_deref().is_none_or(plain) {
        return Ok(who);
    }
    Err(wrong("AWS_ACCESS_KEY_ID", "it, the secret or the token holds characters that no credential has"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn with<T>(pairs: &[(&str, &str)], ask: impl FnOnce(Variables<'_>) -> T) -> T {
        let map: BTreeMap<String, String> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        ask(&|name| map.get(name).cloned())
    }

    #[test]
    fn amazons_hosts_are_known_and_others_are_told() {
        let at = |bucket: &str, pairs: &[(&str, &str)]| {
            with(pairs, |variables| endpoint(bucket, variables))
                .map(|e| format!("{}://{}{} {}", e.scheme, e.host, e.path, e.region))
        };
        let amazon = at("models", &[("AWS_REGION", "eu-west-1")]).expect("an endpoint");
        assert_eq!(amazon, "https://models.s3.eu-west-1.amazonaws.com eu-west-1");
        let dots = at("a.models", &[]).expect("an endpoint");
        assert_eq!(dots, "https://s3.us-east-1.amazonaws.com/a.models us-east-1");
        let own = at("models", &[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")]).expect("an endpoint");
        assert_eq!(own, "http://127.0.0.1:9000/models us-east-1");
        let usual = at("models", &[("AWS_ENDPOINT_URL_S3", "https://store:443/x")]).expect("an endpoint");
        assert_eq!(usual, "https://store/x/models us-east-1");
        for wrong in ["store:9000", "ftp://store", "http://user:hush@store", "http://store/?x"] {
            let error = at("models", &[("AWS_ENDPOINT_URL", wrong)]).expect_err(wrong).to_string();
            assert!(error.contains("AWS_ENDPOINT_URL") && !error.contains("hush"), "{error}");
        }
        assert!(at("models", &[("AWS_REGION", "a b")]).is_err());
    }

    #[test]
    fn credentials_come_from_variables_or_the_profile() {
        let who =
            with(&[("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")], credentials).expect("both");
        assert_eq!((who.key_id.as_str(), who.secret.as_str(), who.token), ("a", "b", None));
        assert!(with(&[("AWS_ACCESS_KEY_ID", "a")], credentials).is_err());
        assert!(with(&[("HOME", "/nonexistent")], credentials).is_err());
        let text = "[other]\naws_access_key_id = x\n[default]\naws_access_key_id = a\n# c\naws_secret_access_key=b=\n";
        let who = of_profile(text, "default").expect("it is there");
        assert_eq!((who.key_id.as_str(), who.secret.as_str()), ("a", "b="));
        assert!(of_profile(text, "other").is_none());
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("credentials");
        std::fs::write(&file, text).expect("it can be written");
        let file = file.display().to_string();
        let set = [("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "y")];
        let beside = [&set[..], &[("AWS_SHARED_CREDENTIALS_FILE", &file)]].concat();
        assert!(with(&beside, is_in_file).is_ok());
        assert!(with(&set, is_in_file).is_err(), "variables alone do not count");
        let odd = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hush\nX: y")];
        let error = with(&odd, credentials).expect_err("no header can hold it").to_string();
        assert!(!error.contains("hush"), "{error}");
    }
}
