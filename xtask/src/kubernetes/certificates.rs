//! Certificates of the control plane and of its clients, by `openssl`: elliptic curves, which it makes at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Without a configuration of its own, `openssl req` reads the machine's, which makes every certificate an authority.
const CONFIGURATION: &str = "[req]\ndistinguished_name = names\n[names]\n";

/// Days for which they hold: a cluster of tests does not live that long.
const DAYS: &str = "365";

/// A certificate to be made: its file's stem, its subject, what it is for.
struct Wanted<'a> {
    name: &'a str,
    subject: &'a str,
    usage: &'a str,
    hosts: &'a str,
}

/// The certificate of a client whose rights come from its subject.
const fn client<'a>(name: &'a str, subject: &'a str) -> Wanted<'a> {
    Wanted { name, subject, usage: "clientAuth", hosts: "" }
}

/// Makes the authority, the certificates and the key that signs tokens of service accounts.
pub(crate) fn make(folder: &Path, node: (&str, &str)) -> Result<()> {
    fs::write(folder.join("openssl.cnf"), CONFIGURATION)?;
    request(
        folder,
        "ca",
        "/CN=bellwether-kubernetes",
        &["basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign"],
    )?;
    let (name, address) = node;
    let subject_of_node = format!("/O=system:nodes/CN=system:node:{name}");
    let hosts_of_server = format!(
        "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1,IP:{address}"
    );
    let hosts_of_node = format!("DNS:{name},IP:{address}");
    let wanted = [
        Wanted {
            name: "apiserver",
            subject: "/CN=kube-apiserver",
            usage: "serverAuth",
            hosts: &hosts_of_server,
        },
        client("admin", "/O=system:masters/CN=admin"),
        client("controller-manager", "/CN=system:kube-controller-manager"),
        client("scheduler", "/CN=system:kube-scheduler"),
        client("apiserver-to-kubelet", "/O=system:masters/CN=apiserver-to-kubelet"),
        Wanted {
            name: "kubelet",
            subject: &subject_of_node,
            usage: "clientAuth,serverAuth",
            hosts: &hosts_of_node,
        },
    ];
    for Wanted { name, subject, usage, hosts } in wanted {
        let usage = format!("extendedKeyUsage={usage}");
        let hosts = format!("subjectAltName={hosts}");
        let mut extensions = vec!["basicConstraints=critical,CA:FALSE", "keyUsage=digitalSignature", &usage];
        extensions.extend((!hosts.ends_with('=')).then_some(&*hosts));
        request(folder, name, subject, &extensions)?;
    }
    request(folder, "service-accounts", "/CN=service-accounts", &[])
}

/// A key and its certificate, signed by the authority if this is another.
fn request(folder: &Path, name: &str, subject: &str, extensions: &[&str]) -> Result<()> {
    let (certificate, key) = (certificate(folder, name), key(folder, name));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    command.args(["-days", DAYS, "-subj", subject, "-config"]).arg(folder.join("openssl.cnf"));
    command.arg("-keyout").arg(key).arg("-out").arg(certificate);
    if name != "ca" {
        command.arg("-CA").arg(self::certificate(folder, "ca")).arg("-CAkey").arg(self::key(folder, "ca"));
    }
    command.args(extensions.iter().flat_map(|extension| ["-addext", extension]));
    let output = command.stdin(Stdio::null()).output().context("cannot start openssl")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("openssl cannot make the certificate `{name}` (version 3 is needed): {said}");
    }
    Ok(())
}

/// The file of a certificate.
pub(crate) fn certificate(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.crt"))
}

/// The file of its key.
pub(crate) fn key(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.key"))
}
