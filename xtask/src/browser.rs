//! The browser in which the dashboard is tested: found, or installed where that may be done.

use crate::debian::{install, runs};

/// Debian's packages: the browser, and the program through which tests drive it.
const PACKAGES: [&str; 2] = ["chromium", "chromium-driver"];

/// Names under which a browser is found by its driver.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Whether there is a browser with its driver, if need be after installing both; says what is missing.
pub(crate) fn find_or_install() -> bool {
    if is_there() || install("browser", &PACKAGES) && is_there() {
        return true;
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
