//! The servers' programs: those in a folder that the user names, or our own, compiled once for each recipe.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::recipe::{REFLECT2, Recipe};
use super::{processes, source};
use crate::debian::{install, runs};
use crate::tree;

/// The variable that names a folder with programs of the user's, as those of envtest.
const VARIABLE: &str = "BELLWETHER_KUBERNETES_BIN";

/// Debian's packages.
const PACKAGES: [&str; 5] =
    ["golang-go", "etcd-server", "golang-github-modern-go-reflect2-dev", "openssl", "curl"];

/// The programs of a control plane but `etcd`.
const SERVERS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const KUBELET: &str = "kubelet";

/// Where the programs are, and which they are.
pub(crate) struct Programs {
    folder: PathBuf,
    etcd: PathBuf,
    /// The second number of their version.
    pub(crate) minor: u32,
}

impl Programs {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        if name == "etcd" { self.etcd.clone() } else { self.folder.join(name) }
    }

    /// The user's, or our own, built where they are missing; with the kubelet only if it is asked for.
    pub(crate) fn find_or_build(with_kubelet: bool, deadline: Instant) -> Result<Programs> {
        let wanted: Vec<&str> = SERVERS.into_iter().chain(with_kubelet.then_some(KUBELET)).collect();
        if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
            println!("the programs are those in {}, which {VARIABLE} names", folder.display());
            if let Some(missing) = wanted.iter().find(|program| !folder.join(program).is_file()) {
                bail!("{} holds no {missing}", folder.display());
            }
            let own = folder.join("etcd");
            let etcd = if own.is_file() { own } else { "etcd".into() };
            return Programs { folder, etcd, minor: 0 }.checked();
        }
        need()?;
        let folder = build(&wanted, deadline)?;
        Programs { folder, etcd: "etcd".into(), minor: 0 }.checked()
    }

    /// Asks the programs for their version.
    fn checked(self) -> Result<Programs> {
        let etcd = self.etcd.to_string_lossy();
        if !(runs(&etcd, &["--version"]) && runs("openssl", &["version"]) && runs("curl", &["--version"])) {
            bail!("etcd, openssl and curl are needed (Debian: `apt-get install etcd-server openssl curl`)");
        }
        let output = Command::new(self.path(SERVERS[0])).arg("--version").output()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let minor = said.split_once("v1.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        let Some(minor) = minor else { bail!("cannot read the version `{said}` of kube-apiserver") };
        Ok(Programs { minor, ..self })
    }
}

/// The compiler and what else is needed, if need be after installing it.
fn need() -> Result<()> {
    let is_there = || {
        runs("go", &["version"])
            && runs("etcd", &["--version"])
            && runs("openssl", &["version"])
            && runs("curl", &["--version"])
            && Path::new(REFLECT2).join("go_above_118.go").exists()
    };
    if !(is_there() || install("Kubernetes", &PACKAGES) && is_there()) {
        bail!(
            "what the control plane is built with and needs is not there (Debian 12: `apt-get install \
             --no-install-recommends {}`); a folder with the programs can be named in the variable {VARIABLE}",
            PACKAGES.join(" ")
        );
    }
    Ok(())
}

/// The folder with these programs, compiled where they are not there yet.
fn build(wanted: &[&str], deadline: Instant) -> Result<PathBuf> {
    let folder = tree::target()?.join("kubernetes");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Of two builds at the same time, the second waits and finds what the first has made.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let key = key()?;
    let finished = folder.join(&key).join("bin");
    let missing: Vec<&str> =
        wanted.iter().copied().filter(|program| !finished.join(program).exists()).collect();
    if missing.is_empty() {
        return Ok(finished);
    }
    println!(
        "building {} of Kubernetes {}: about 8 minutes of a processor's time",
        missing.join(", "),
        source::VERSION
    );
    let (start, before) = (Instant::now(), processes::time_of_children());
    let archive = source::fetch(&folder.join("source"), deadline)?;
    let work = folder.join("work");
    let _ = fs::remove_dir_all(&work);
    let recipe = Recipe { work: work.clone(), cache: folder.join("go-cache"), deadline };
    let built = recipe.follow(&archive, &missing)?;
    fs::create_dir_all(&finished)?;
    for program in missing {
        fs::rename(built.join(program), finished.join(program))?;
    }
    let _ = fs::remove_dir_all(&work);
    remove_others(&folder, &key)?;
    let processor = processes::time_of_children() - before;
    println!(
        "built in {:.0} s, {:.0} s of processor time",
        start.elapsed().as_secs_f64(),
        processor.as_secs_f64()
    );
    Ok(finished)
}

/// Removes what other recipes have built: 360 MB each.
fn remove_others(folder: &Path, key: &str) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(source::VERSION) && name != key {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// What a build depends on: sources, compiler and recipe.
fn key() -> Result<String> {
    let output = Command::new("go").arg("version").output().context("cannot start go")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let go = said.split_whitespace().nth(2).context("go tells no version")?;
    let recipe = source::sha256(include_bytes!("recipe.rs"))?;
    Ok(format!("{}-{go}-{}", source::VERSION, &recipe[..12]))
}
