//! How the servers are compiled. This file's text is part of the key of a build: another recipe is another build.
//!
//! Kubernetes 1.20 is of January 2021, and Debian's compiler is Go 1.19. Two things in the sources do not stand that
//! without a change (see [`patch`]), and one generated file is not in the archive (see `openapi-gen` below).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{processes, source};

/// Compilers at once. The largest takes 1.4 GB of memory.
const AT_ONCE: &str = "2";

/// The name of the package whose folder holds everything.
const KUBERNETES: &str = "k8s.io/kubernetes";

/// The reflect2 of Debian's package golang-github-modern-go-reflect2-dev.
pub(crate) const REFLECT2: &str = "/usr/share/gocode/src/github.com/modern-go/reflect2";

/// Where the packages stand whose types the API server describes to its clients.
const DESCRIBED: [&str; 15] = [
    "pkg",
    "vendor/k8s.io/api/",
    "vendor/k8s.io/apiextensions-apiserver/",
    "vendor/k8s.io/apimachinery/",
    "vendor/k8s.io/apiserver/",
    "vendor/k8s.io/client-go/",
    "vendor/k8s.io/cloud-provider/",
    "vendor/k8s.io/controller-manager/",
    "vendor/k8s.io/kube-aggregator/",
    "vendor/k8s.io/kube-controller-manager/",
    "vendor/k8s.io/kube-proxy/",
    "vendor/k8s.io/kube-scheduler/",
    "vendor/k8s.io/kubelet/",
    "vendor/k8s.io/metrics/",
    "vendor/k8s.io/component-base/",
];

/// A build in one folder, which holds all that Go writes but its cache.
pub(crate) struct Recipe {
    pub(crate) work: PathBuf,
    pub(crate) cache: PathBuf,
    pub(crate) deadline: Instant,
}

impl Recipe {
    /// Compiles these programs of the sources in `archive`, into the folder that is returned.
    pub(crate) fn follow(&self, archive: &Path, programs: &[&str]) -> Result<PathBuf> {
        self.unpack(archive)?;
        patch(&self.sources())?;
        self.generate()?;
        let into = self.bin();
        let mut build = self.command("go");
        build.args(["build", "-p", AT_ONCE, "-trimpath", "-ldflags", &stamp()?, "-o"]);
        build.arg(format!("{}/", into.display()));
        self.done(build.args(programs.iter().map(|program| format!("./cmd/{program}"))))?;
        Ok(into)
    }

    /// Links of `vendor` lead out of it, so the sources stand where the old way of finding packages expects them: with
    /// modules, Go 1.19 finds fault with the list of what is vendored.
    fn sources(&self) -> PathBuf {
        self.work.join("src").join(KUBERNETES)
    }

    /// A folder of this build alone: after a bench that was killed, its compiler may still write.
    fn bin(&self) -> PathBuf {
        self.work.join(format!("bin-{}", std::process::id()))
    }

    fn unpack(&self, archive: &Path) -> Result<()> {
        for folder in [&self.sources(), &self.bin(), &self.work.join("tmp"), &self.cache] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        self.done(self.command("tar").args(["--strip-components=1", "-xzf"]).arg(archive))
    }

    /// Writes the description of the API's types. `make generated_files` would do it too, with many tools more.
    fn generate(&self) -> Result<()> {
        let generator = self.bin().join("openapi-gen");
        let mut build = self.command("go");
        build.args(["build", "-p", AT_ONCE, "-o"]).arg(&generator);
        self.done(build.arg("./vendor/k8s.io/kube-openapi/cmd/openapi-gen"))?;
        let marked = self
            .command("grep")
            .args(["-rl", "--include=*.go", "+k8s:openapi-gen="])
            .args(DESCRIBED)
            .output()?;
        let marked = String::from_utf8(marked.stdout)?;
        let mut folders: Vec<String> = marked
            .lines()
            .filter_map(|file| Some(format!("{KUBERNETES}/{}", file.rsplit_once('/')?.0)))
            .collect();
        folders.sort();
        folders.dedup();
        let mut generate = self.command(&generator.to_string_lossy());
        generate.args(["-i", &folders.join(","), "-O", "zz_generated.openapi"]);
        generate.args(["-p", &format!("{KUBERNETES}/pkg/generated/openapi")]);
        generate.args(["-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"]);
        self.done(generate.arg("-r").arg(self.work.join("report")))?;
        fs::remove_file(generator)?;
        Ok(())
    }

    /// A command in the sources, which leaves processors to others and writes nowhere else.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "5", program]).current_dir(self.sources());
        command.env("GOPATH", &self.work).env("GOTMPDIR", self.work.join("tmp")).env("HOME", &self.work);
        command.env("GOCACHE", &self.cache).env("GOENV", "off").env("GOFLAGS", "");
        command.env("GO111MODULE", "off").env("CGO_ENABLED", "0");
        command
    }

    fn done(&self, command: &mut Command) -> Result<()> {
        let shown: Vec<_> = command.get_args().skip(2).take(2).map(|word| word.to_string_lossy()).collect();
        let shown = shown.join(" ");
        if !processes::within(command, self.deadline)?.success() {
            bail!("`{shown} …` failed");
        }
        Ok(())
    }
}

/// What the linker writes into the programs: otherwise they would tell clients a version that means nothing. Their
/// command line tells the first, `/version` the second.
fn stamp() -> Result<String> {
    let minor = source::VERSION.split('.').nth(1).context("the version has no second part")?;
    let version = format!("v{}", source::VERSION);
    let mut flags = "-s -w".to_owned();
    for package in ["component-base/version", "client-go/pkg/version"] {
        for (name, value) in [("gitVersion", &*version), ("gitMajor", "1"), ("gitMinor", minor)] {
            flags += &format!(" -X {KUBERNETES}/vendor/k8s.io/{package}.{name}={value}");
        }
    }
    Ok(flags)
}

/// Two changes, without which the servers start and then fail custom resources.
fn patch(sources: &Path) -> Result<()> {
    // reflect2 before 1.0.2 walks maps as Go did before 1.18 (issue 26 of modern-go/reflect2): the server dies of
    // `fatal error: fault` when it decodes a custom resource to update it.
    let vendored = sources.join("vendor/github.com/modern-go/reflect2");
    fs::remove_dir_all(&vendored).context("the sources hold no reflect2")?;
    fs::create_dir(&vendored)?;
    for entry in fs::read_dir(REFLECT2).with_context(|| format!("cannot list {REFLECT2}"))? {
        let entry = entry?;
        fs::copy(entry.path(), vendored.join(entry.file_name()))?;
    }
    // Since Go 1.16 an empty string is equal to the zero value here, and was refused as null (issue 99804 of
    // kubernetes/kubernetes).
    let file = sources.join("vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go");
    let before = " || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))";
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    if text.matches(before).count() != 1 {
        bail!("{} does not hold what is to be changed, once", file.display());
    }
    fs::write(&file, text.replace(before, ""))?;
    Ok(())
}
