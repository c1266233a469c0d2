#![allow(clippy::unwrap_used)]

use super::*;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http_body_util::BodyExt;
use std::collections::BTreeSet;

fn text(file: &File) -> &'static str {
    std::str::from_utf8(file.bytes).unwrap()
}

async fn body(response: Response<Body>) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

#[tokio::test]
async fn every_file_has_its_type_and_the_policy() {
    for file in FILES {
        let response = serve(&format!("/ui/{}", file.name), &HeaderMap::new()).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        assert_eq!(headers[CONTENT_TYPE], file.media);
        assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[CACHE_CONTROL], "no-cache");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ] {
            assert!(policy.contains(part), "{part}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*') && !policy.contains("http"), "{policy}");
        assert_eq!(body(response).await, file.bytes);
    }
}

#[tokio::test]
async fn the_directory_is_the_page() {
    let page = serve("/ui/", &HeaderMap::new()).unwrap();
    assert_eq!(page.headers()[CONTENT_TYPE], HTML);
    assert!(body(page).await.starts_with(b"<!doctype html>"));
    let redirect = serve("/ui", &HeaderMap::new()).unwrap();
    assert_eq!(
        (redirect.status(), redirect.headers()[LOCATION].to_str().unwrap()),
        (StatusCode::FOUND, "ui/")
    );
    for path in ["/ui/none.js", "/ui/../main.js", "/ui//main.js", "/ui/main.js/", "/uix", "/", ""] {
        assert!(serve(path, &HeaderMap::new()).is_none(), "{path}");
    }
    assert!(takes("/ui") && takes("/ui/x") && !takes("/uix") && !takes("/api"));
}

#[tokio::test]
async fn a_browser_that_has_a_file_does_not_get_it_again() {
    let first = serve("/ui/main.js", &HeaderMap::new()).unwrap();
    let tag = first.headers()[ETAG].clone();
    let mut headers = HeaderMap::new();
    headers.insert(IF_NONE_MATCH, tag);
    let second = serve("/ui/main.js", &headers).unwrap();
    assert_eq!(second.status(), StatusCode::NOT_MODIFIED);
    assert!(body(second).await.is_empty());
    assert_eq!(serve("/ui/dom.js", &headers).unwrap().status(), StatusCode::OK);
}

#[test]
fn all_files_are_served_and_used() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/ui");
    let there =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let there: BTreeSet<String> = there.collect();
    let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(there, served);
    // What the page and its modules name is there, and everything is named.
    let mut named = BTreeSet::from(["index.html".to_owned()]);
    for file in FILES {
        for quoted in text(file).split('"').skip(1).step_by(2) {
            let name = quoted.strip_prefix("./").unwrap_or(quoted);
            if served.contains(name) {
                named.insert(name.to_owned());
            }
            assert!(!quoted.starts_with("./") || served.contains(name), "{} names {quoted}", file.name);
        }
    }
    assert_eq!(named, served);
}

#[test]
fn nothing_comes_from_another_host() {
    for file in FILES {
        let own = text(file).replace("http://www.w3.org/2000/svg", "");
        for foreign in ["http://", "https://", "ws://", "wss://", "@import", "url("] {
            assert!(!own.contains(foreign), "{} has {foreign}", file.name);
        }
        // Absolute paths do not survive a proxy.
        for absolute in ["\"/api", "\"/apis", "\"/coracle", "`/api", "`/coracle", "href=\"/", "src=\"/"] {
            assert!(!own.contains(absolute), "{} has {absolute}", file.name);
        }
    }
}

#[test]
fn no_text_becomes_code() {
    for file in FILES {
        let text = text(file);
        for unsafe_way in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
            "javascript:",
            "srcdoc",
            " style=",
            "document.cookie",
            "sessionStorage",
        ] {
            assert!(!text.contains(unsafe_way), "{} has {unsafe_way}", file.name);
        }
        let is_page = file.name == "index.html";
        assert!(
            !is_page
                || (!text.contains(" onclick") && !text.contains("<style") && !text.contains("<script>"))
        );
        assert!(text.lines().count() <= 300, "{} is long", file.name);
    }
}
