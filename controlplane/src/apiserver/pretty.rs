//! JSON for people: indented when they ask for it with `?pretty=true`, and for clients that people type at.

use super::respond::{self, Body};
use bytes::Bytes;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderMap, USER_AGENT};
use http_body_util::BodyExt;
use serde_json::Value;

/// Whether the client is a person.
pub fn wanted(query: &[(String, String)], agent: &str) -> bool {
    match query.iter().find(|(key, _)| key == "pretty") {
        Some((_, value)) => matches!(value.as_str(), "true" | "1"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name)),
    }
}

/// The same of a request that nobody has looked at yet.
pub fn asked(query: Option<&str>, headers: &HeaderMap) -> bool {
    let query: Vec<(String, String)> =
        form_urlencoded::parse(query.unwrap_or("").as_bytes()).into_owned().collect();
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    wanted(&query, agent)
}

/// Replaces the body by this JSON, indented.
pub fn print_whole(response: &mut Response<Body>, json: &Value) {
    let text = serde_json::to_vec(json).unwrap_or_default();
    *response.body_mut() = respond::full(Bytes::from(indent(&text)));
}

/// The same reply with its JSON indented; other replies stay as they are.
pub async fn print(response: Response<Body>) -> Response<Body> {
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes() == respond::JSON.as_bytes());
    if !is_json {
        return response;
    }
    let (head, body) = response.into_parts();
    let whole = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Response::from_parts(head, respond::full(Bytes::from(indent(&whole))))
}

/// Two blanks per level, one entry per line, order kept.
fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for (at, byte) in json.iter().copied().enumerate() {
        if quoted {
            out.push(byte);
            (quoted, escaped) = (escaped || byte != b'"', !escaped && byte == b'\\');
            continue;
        }
        match byte {
            b'"' => {
                quoted = true;
                out.push(byte);
            }
            b'{' | b'[' => {
                out.push(byte);
                depth += 1;
                if !matches!(json.get(at + 1), Some(b'}' | b']')) {
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !matches!(at.checked_sub(1).and_then(|before| json.get(before)), Some(b'{' | b'[')) {
                    line(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_without_changing_what_it_says() {
        let text = r#"{"kind":"A","b":{},"c":[],"d":[1,{"e":"x:{\"y\\"}],"f":null}"#;
        let pretty = indent(text.as_bytes());
        let expected = "{\n  \"kind\": \"A\",\n  \"b\": {},\n  \"c\": [],\n  \"d\": [\n    1,\n    {\n      \"e\": \"x:{\\\"y\\\\\"\n    }\n  ],\n  \"f\": null\n}";
        assert_eq!(String::from_utf8_lossy(&pretty), expected);
    }

    #[test]
    fn people_are_told_from_programs() {
        let asks = |value: &str| vec![("pretty".to_owned(), value.to_owned())];
        assert!(wanted(&[], "curl/8.0") && wanted(&asks("true"), "kubectl/v1.33"));
        let by = |agent: &str| HeaderMap::from_iter([(USER_AGENT, agent.parse().expect("a header"))]);
        assert!(
            asked(None, &by("curl/8.0")) && asked(Some("a=b&pretty=1"), &by("k")) && !asked(None, &by("k"))
        );
        assert!(!wanted(&[], "kubectl/v1.33") && !wanted(&asks("false"), "curl/8.0"));
    }
}
