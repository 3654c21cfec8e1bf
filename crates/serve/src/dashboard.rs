//! The page that `serve` shows at `/`: files that are part of the program, and what a browser may do with them.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its name: it is served at `/dashboard/NAME`, the page itself at `/` too.
    pub name: &'static str,
    /// Its media type, for `Content-Type`.
    pub media_type: &'static str,
    /// What it holds.
    pub text: &'static str,
}

/// What the browser may load and run: our files and our API, nothing else. It belongs into the header
/// `Content-Security-Policy` of every asset.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                                           connect-src 'self'; base-uri 'none'; form-action 'none'; \
                                           frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $media_type:expr) => {
        Asset { name: $name, media_type: $media_type, text: include_str!(concat!("dashboard/", $name)) }
    };
}

/// The page's files; the page itself is the first.
pub const ASSETS: [Asset; 19] = [
    asset!("index.html", "text/html; charset=utf-8"),
    asset!("dashboard.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("api.js", SCRIPT),
    asset!("charts.js", SCRIPT),
    asset!("configuration.js", SCRIPT),
    asset!("dashboard.js", SCRIPT),
    asset!("decisions.js", SCRIPT),
    asset!("detail.js", SCRIPT),
    asset!("jobs.js", SCRIPT),
    asset!("keys.js", SCRIPT),
    asset!("log.js", SCRIPT),
    asset!("news.js", SCRIPT),
    asset!("overview.js", SCRIPT),
    asset!("page.js", SCRIPT),
    asset!("queues.js", SCRIPT),
    asset!("slots.js", SCRIPT),
    asset!("store.js", SCRIPT),
    asset!("words.js", SCRIPT),
];

/// The file of this name.
///
/// ```
/// use bellwether_serve::dashboard::asset;
/// assert!(asset("jobs.js").is_some_and(|asset| asset.text.contains("export class Jobs")));
/// assert!(asset("../ledger.rs").is_none());
/// ```
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}
