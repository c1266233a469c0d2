//! Indented JSON: for `?pretty=true`, and for curl and browsers.

use super::list_body::CHUNK_SIZE;
use super::respond::{self, Body, BoxError};
use bytes::{Buf, Bytes};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use serde_json::Value;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bodies up to this size are indented as a whole; deep ones become a hundred times larger.
const WHOLE: u64 = 16 * 1024;

/// Whether the client is a person.
pub fn wanted(query: &[(String, String)], agent: &str) -> bool {
    match query.iter().find(|(key, _)| key == "pretty") {
        Some((_, value)) => matches!(value.as_str(), "true" | "1"),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name)),
    }
}

/// Replaces the body by this JSON, indented.
pub fn print_whole(response: &mut Response<Body>, json: &Value) {
    let text = serde_json::to_vec(json).unwrap_or_default();
    *response.body_mut() = respond::full(Bytes::from(indent(&text)));
}

/// The same reply with its JSON indented; other replies stay as they are. Large ones are indented as their client reads them.
pub async fn print(response: Response<Body>) -> Response<Body> {
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|v| v.as_bytes() == respond::JSON.as_bytes());
    if !is_json {
        return response;
    }
    let (head, body) = response.into_parts();
    if body.size_hint().upper().is_none_or(|most| most > WHOLE) {
        let body = Indented { body, rest: Bytes::new(), indent: Indent::default() };
        return Response::from_parts(head, body.boxed_unsync());
    }
    let whole = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Response::from_parts(head, respond::full(Bytes::from(indent(&whole))))
}

/// A JSON body that is indented chunk by chunk.
struct Indented {
    body: Body,
    rest: Bytes,
    indent: Indent,
}

impl http_body::Body for Indented {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let text = self.get_mut();
        while text.rest.is_empty() {
            match ready!(Pin::new(&mut text.body).poll_frame(context)) {
                Some(Ok(frame)) => text.rest = frame.into_data().unwrap_or_default(),
                end => return Poll::Ready(end),
            }
        }
        let mut out = Vec::with_capacity(CHUNK_SIZE);
        let taken = text.indent.push(&text.rest, &mut out, CHUNK_SIZE);
        text.rest.advance(taken);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }
}

fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    Indent::default().push(json, &mut out, usize::MAX);
    out
}

/// Two blanks per level, one entry per line, order kept. The text may come in parts.
#[derive(Default)]
struct Indent {
    depth: usize,
    quoted: bool,
    escaped: bool,
    /// The last byte began an object or a list, which may be empty.
    opened: bool,
}

impl Indent {
    /// Adds the text until there are about so many bytes; how much of it was added.
    fn push(&mut self, json: &[u8], out: &mut Vec<u8>, most: usize) -> usize {
        for (at, byte) in json.iter().copied().enumerate() {
            if out.len() >= most {
                return at;
            }
            self.add(byte, out);
        }
        json.len()
    }

    fn add(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.quoted {
            out.push(byte);
            (self.quoted, self.escaped) = (self.escaped || byte != b'"', !self.escaped && byte == b'\\');
            return;
        }
        let opened = std::mem::replace(&mut self.opened, matches!(byte, b'{' | b'['));
        let closes = matches!(byte, b'}' | b']');
        if closes {
            self.depth = self.depth.saturating_sub(1);
        }
        // Nothing stands between the brackets of what is empty.
        if opened != closes {
            self.line(out);
        }
        match byte {
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
        match byte {
            b'"' => self.quoted = true,
            b'{' | b'[' => self.depth += 1,
            b',' => self.line(out),
            _ => {}
        }
    }

    fn line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', self.depth * 2));
    }
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

    #[tokio::test]
    async fn large_answers_are_indented_in_pieces() {
        // Deep lists become many times larger.
        let deep = format!("{}0{}", "[".repeat(60), "]".repeat(60));
        let text = format!(r#"{{"items":[{}],"a":{{}}}}"#, vec![deep; 3000].join(","));
        let printed = print(respond::bytes(200, respond::JSON, text.clone())).await;
        let mut body = printed.into_body();
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.expect("a frame").into_data().expect("data");
            assert!(data.len() < CHUNK_SIZE + 1024, "a frame of {} bytes", data.len());
            whole.extend_from_slice(&data);
        }
        assert!(whole == indent(text.as_bytes()), "the same as a whole");
        let small = print(respond::bytes(200, respond::JSON, "{\"a\":1}")).await;
        assert_eq!(small.body().size_hint().exact(), Some(12));
    }

    #[test]
    fn people_are_told_from_programs() {
        let asks = |value: &str| vec![("pretty".to_owned(), value.to_owned())];
        assert!(wanted(&[], "curl/8.0") && wanted(&asks("true"), "kubectl/v1.33"));
        let asked = [("a".to_owned(), "b".to_owned()), ("pretty".to_owned(), "1".to_owned())];
        assert!(wanted(&[], "curl/8.0") && wanted(&asked, "k") && !wanted(&[], "k"));
        assert!(!wanted(&[], "kubectl/v1.33") && !wanted(&asks("false"), "curl/8.0"));
    }
}
