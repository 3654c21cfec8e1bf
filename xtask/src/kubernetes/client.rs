//! Requests to the API server, by `curl` with a client certificate: the bench needs no `kubectl` and no TLS library.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::certificates;

/// Kinds of bodies.
pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// Who may do everything on a server.
pub(crate) struct Client {
    /// The folder of certificates.
    certificates: PathBuf,
    server: String,
}

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    /// The object in it, if the request was granted.
    pub(crate) fn granted(&self) -> Result<Value> {
        if !(200..300).contains(&self.status) {
            let said = serde_json::from_str::<Value>(&self.text).unwrap_or_default();
            let message = said["message"].as_str().unwrap_or(&self.text);
            bail!("the API server answered {}: {}", self.status, message.trim());
        }
        serde_json::from_str(&self.text).context("the API server answered something other than JSON")
    }
}

impl Client {
    pub(crate) fn new(certificates: &Path, server: &str) -> Client {
        Client { certificates: certificates.to_path_buf(), server: server.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer> {
        self.send("GET", path, "", "")
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Answer> {
        self.send("DELETE", path, "", "")
    }

    /// Sends an object; the method is the one that its kind stands for, or POST.
    pub(crate) fn put(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Answer> {
        self.send(method, path, kind, &body.to_string())
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<Answer> {
        let file = |of: fn(&Path, &str) -> PathBuf, name| of(&self.certificates, name);
        let mut command = Command::new("curl");
        // Without a proxy, whatever the environment says: the server is on this machine.
        command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "30", "--request", method]);
        command.arg("--cacert").arg(file(certificates::certificate, "ca"));
        command.arg("--cert").arg(file(certificates::certificate, "admin"));
        command.arg("--key").arg(file(certificates::key, "admin"));
        if !body.is_empty() {
            command.args(["--header", &format!("Content-Type: {kind}"), "--data-binary", "@-"]);
        }
        command.args(["--write-out", "\n%{http_code}", &format!("{}{path}", self.server)]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().context("cannot start curl")?;
        child.stdin.take().context("curl has no input")?.write_all(body.as_bytes())?;
        let output = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match text.rsplit_once('\n') {
            Some((text, status)) if output.status.success() => {
                Ok(Answer { status: status.parse()?, text: text.to_owned() })
            }
            _ => bail!("{method} {path}: {}", String::from_utf8_lossy(&output.stderr).trim()),
        }
    }
}
