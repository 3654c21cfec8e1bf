//! What Debian's packages bring that cargo does not: programs that tests drive, installed where that may be done.

use std::process::{Command, Stdio};

/// Installs packages where this user may and apt can.
pub(crate) fn install(what: &str, packages: &[&str]) -> bool {
    if !(is_root() && runs("apt-get", &["--version"])) {
        return false;
    }
    println!("== {what}: installing {}", packages.join(" "));
    let options = ["install", "-y", "-q", "--no-install-recommends"];
    let install: Vec<&str> = options.into_iter().chain(packages.iter().copied()).collect();
    let installed = apt(&["update", "-q"]) && apt(&install);
    if !installed {
        println!("apt-get could not install them");
    }
    installed
}

/// Whether a program can be started and is content.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn apt(arguments: &[&str]) -> bool {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
