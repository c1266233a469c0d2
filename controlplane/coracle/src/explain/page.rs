//! The page at `/ui/`: files that are part of the program. It has no state and no rights of its own; everything that it shows it asks
//! the API server for, as its user.

use coracle_apiserver::respond::{Body, full};
use http::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use http::{Response, StatusCode};

/// Where it is.
const PREFIX: &str = "/ui/";
/// Nothing but the files of the page, and no text that becomes code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
/// Headers of every file, beside its type and its tag.
const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

struct File {
    name: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($name:literal: $media:expr,)*) => {
        &[$(File { name: $name, media: $media, bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/ui/", $name)) },)*]
    };
}

/// The first is what a directory is asked for.
const FILES: &[File] = files! {
    "index.html": HTML,
    "style.css": CSS,
    "icon.svg": SVG,
    "main.js": SCRIPT,
    "dom.js": SCRIPT,
    "time.js": SCRIPT,
    "kinds.js": SCRIPT,
    "api.js": SCRIPT,
    "store.js": SCRIPT,
    "table.js": SCRIPT,
    "lists.js": SCRIPT,
    "unwell.js": SCRIPT,
    "nodes.js": SCRIPT,
    "traces.js": SCRIPT,
    "object.js": SCRIPT,
    "timeline.js": SCRIPT,
    "quantity.js": SCRIPT,
    "usage.js": SCRIPT,
    "spans.js": SCRIPT,
    "summary.js": SCRIPT,
    "waterfall.js": SCRIPT,
    "map.js": SCRIPT,
    "logs.js": SCRIPT,
    "events.js": SCRIPT,
    "verdicts.js": SCRIPT,
    "why.js": SCRIPT,
};

/// Whether a path belongs to the page.
pub fn takes(path: &str) -> bool {
    path == PREFIX.trim_end_matches('/') || path.starts_with(PREFIX)
}

/// Answers a request for a file of the page; `None` if there is no such file.
pub fn serve(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    if path == PREFIX.trim_end_matches('/') {
        // Relative: a proxy may have the page below another path.
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().insert(LOCATION, HeaderValue::from_static("ui/"));
        return Some(response);
    }
    let name = path.strip_prefix(PREFIX)?;
    let file = if name.is_empty() { FILES.first() } else { FILES.iter().find(|file| file.name == name) }?;
    let tag = tag(file.bytes);
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let bytes: &'static [u8] = if is_known { b"" } else { file.bytes };
    let mut response = Response::new(full(bytes));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let answered = response.headers_mut();
    for (name, value) in HEADERS {
        answered.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answered.insert(CONTENT_TYPE, HeaderValue::from_static(file.media));
    answered.extend(HeaderValue::from_str(&tag).ok().map(|tag| (ETAG, tag)));
    Some(response)
}

/// FNV-1a of the content, which tells one release from another.
fn tag(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("\"{hash:016x}\"")
}

#[cfg(test)]
mod tests;
