//! The browser in which the dashboard is tested: found, or installed where that may be done.

use std::process::{Command, Stdio};

/// Debian's packages: the browser, and the program through which tests drive it.
const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// Names under which a browser is found by its driver.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Whether there is a browser with its driver, if need be after installing both; says what is missing.
pub(crate) fn find_or_install() -> bool {
    if is_there() {
        return true;
    }
    if is_root() && runs("apt-get", &["--version"]) {
        println!("== browser: installing {}", PACKAGES.join(" and "));
        let install: Vec<&str> =
            ["install", "-y", "-q", "--no-install-recommends"].into_iter().chain(PACKAGES).collect();
        if apt(&["update", "-q"]) && apt(&install) && is_there() {
            return true;
        }
        println!("apt-get could not install them");
    }
    println!(
        "the tests of the dashboard are skipped: they need Chromium and chromedriver \
         (Debian: `apt-get install --no-install-recommends {}`; Fedora: `dnf install chromium chromedriver`; \
         elsewhere both, where PATH finds them)",
        PACKAGES.join(" ")
    );
    false
}

fn is_there() -> bool {
    runs("chromedriver", &["--version"]) && BROWSERS.iter().any(|name| runs(name, &["--version"]))
}

/// Whether a program can be started and is content.
fn runs(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

fn apt(arguments: &[&str]) -> bool {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
