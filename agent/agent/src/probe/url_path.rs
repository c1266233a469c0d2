//! Path and query of a probe as they go into a request, encoded as Go's `url.Parse` does.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What paths have unencoded.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@')
    .remove(b'[')
    .remove(b']');
/// The same where bytes are encoded already.
const ENCODED_PATH: &AsciiSet = &PATH.remove(b'%');
const QUERY: &AsciiSet = &ENCODED_PATH.remove(b'?');

/// The target of a request for a path of a probe, which may have a query; a fragment stays here. One that is no reference of a URL
/// is a path as a whole.
pub(super) fn encode(path: &str) -> String {
    let (reference, _fragment) = path.split_once('#').unwrap_or((path, ""));
    let (before, query) = match reference.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (reference, None),
    };
    let is_reference = is_encoded(before) && !path.chars().any(|c| c.is_ascii_control());
    let mut target = if is_reference {
        utf8_percent_encode(before, ENCODED_PATH).to_string()
    } else {
        utf8_percent_encode(path, PATH).to_string()
    };
    if !target.starts_with('/') {
        target.insert(0, '/');
    }
    if let Some(query) = query.filter(|_| is_reference) {
        target.push('?');
        target.extend(utf8_percent_encode(query, QUERY));
    }
    target
}

/// Whether every `%` begins an encoded byte.
fn is_encoded(path: &str) -> bool {
    path.split('%')
        .skip(1)
        .all(|rest| rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;

    #[test]
    fn every_path_can_be_requested() {
        for (path, want) in [
            ("/healthz", "/healthz"),
            ("", "/"),
            ("live", "/live"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/a?q=x y&z=%2F", "/a?q=x%20y&z=%2F"),
            ("/a?q=b?c", "/a?q=b?c"),
            ("/a#part", "/a"),
            ("/(a);v=1,2@[x]", "/(a);v=1,2@[x]"),
            ("/ü", "/%C3%BC"),
            ("/50%", "/50%25"),
            ("/50%?x#y", "/50%25%3Fx%23y"),
            ("/a\nb", "/a%0Ab"),
            ("/\"<>\\^`{|}", "/%22%3C%3E%5C%5E%60%7B%7C%7D"),
        ] {
            let got = encode(path);
            assert_eq!(got, want, "{path}");
            assert!(got.parse::<Uri>().is_ok(), "{got}");
        }
    }
}
