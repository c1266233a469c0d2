//! Rewrites links in proxied HTML pages: links to the root of the site are prefixed with the proxy's path.

use crate::respond::{Body, BoxError};
use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::stream::{self, Stream, StreamExt};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use std::io::{Read, Write};

/// Longer pages are not looked at.
const LIMIT: u64 = 8 * 1024 * 1024;

/// Where links are, by element.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Where a page is shown, and what it may call its own site.
pub struct LinkRewriter {
    /// The proxy's path, without a slash at its end.
    pub prefix: String,
    /// Hosts that are the backend's: its address, and what the client called the server.
    pub hosts: Vec<String>,
}

impl LinkRewriter {
    /// A link as it must be behind the proxy; `None` when it may stay.
    fn link(&self, link: &str) -> Option<String> {
        let rest = match link.split_once("://") {
            Some(("http" | "https", rest)) => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if !self.hosts.iter().any(|own| own == host) || path.is_empty() {
                    return None;
                }
                path
            }
            _ => link,
        };
        let elsewhere = !rest.starts_with('/') || rest.starts_with("//");
        (!elsewhere && !rest.starts_with(&self.prefix)).then(|| format!("{}{rest}", self.prefix))
    }

    /// A page with its links.
    fn html(&self, page: &str) -> String {
        let mut out = String::with_capacity(page.len() + 256);
        let mut rest = page;
        while let Some(at) = rest.find('<') {
            let (text, tag) = rest.split_at(at);
            out.push_str(text);
            let end = if tag.starts_with("<!--") {
                tag.find("-->").map_or(tag.len(), |end| end + 3)
            } else if tag[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
                self.element(tag, &mut out)
            } else {
                1
            };
            if !tag[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
                out.push_str(&tag[..end]);
            }
            rest = &tag[end..];
        }
        out.push_str(rest);
        out
    }

    /// Writes one element's tag, and what follows it when that is no markup; how long it was.
    fn element(&self, tag: &str, out: &mut String) -> usize {
        let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>');
        let name_end = 1 + tag[1..].find(is_end).unwrap_or(tag.len() - 1);
        let name = tag[1..name_end].to_ascii_lowercase();
        let links = LINKS.iter().find(|(element, _)| *element == name).map_or(&[][..], |(_, links)| links);
        out.push_str(&tag[..name_end]);
        let mut at = name_end;
        while let Some(c) = tag[at..].chars().next().filter(|c| *c != '>') {
            if c.is_ascii_whitespace() || c == '/' {
                out.push(c);
                at += 1;
                continue;
            }
            at += self.attribute(&tag[at..], links, out);
        }
        if matches!(name.as_str(), "script" | "style") {
            let close = format!("</{name}");
            let end = tag[at..].to_ascii_lowercase().find(&close).map_or(tag.len(), |end| at + end);
            out.push_str(&tag[at..end]);
            return end;
        }
        at
    }

    /// Writes one attribute; how long it was.
    fn attribute(&self, text: &str, links: &[&str], out: &mut String) -> usize {
        let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>');
        let name_end = text.find(is_end).unwrap_or(text.len()).max(1);
        let after = text[name_end..].trim_start();
        let Some(value) = after.strip_prefix('=').map(str::trim_start) else {
            out.push_str(&text[..name_end]);
            return name_end;
        };
        let begin = text.len() - value.len();
        let (open, value) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => (1, value[1..].split(quote).next().unwrap_or_default()),
            _ => (0, value.split(|c: char| c.is_ascii_whitespace() || c == '>').next().unwrap_or_default()),
        };
        let name = text[..name_end].to_ascii_lowercase();
        out.push_str(&text[..begin + open]);
        match self.link(value).filter(|_| links.contains(&name.as_str())) {
            Some(link) => out.push_str(&link),
            None => out.push_str(value),
        }
        let end = (begin + open + value.len() + open).min(text.len());
        out.push_str(&text[begin + open + value.len()..end]);
        end
    }

    /// An answer of the backend: where it sends the client to, and the links of its page.
    pub async fn answer(&self, mut response: Response<Body>) -> Response<Body> {
        let moved = response.status().is_redirection() || response.status() == StatusCode::CREATED;
        if let Some(to) = response.headers().get(LOCATION).filter(|_| moved).and_then(|to| to.to_str().ok())
            && let Some(to) = self.link(to).and_then(|to| HeaderValue::try_from(to).ok())
        {
            response.headers_mut().insert(LOCATION, to);
        }
        let Some(packed) = is_packed_page(response.headers()) else { return response };
        let (mut parts, mut body) = response.into_parts();
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => bytes.extend_from_slice(&data),
                Ok(Err(_)) => {}
                Err(error) => return passed(parts, bytes, stream::once(async { Err(error) })),
            }
            if bytes.len() as u64 > LIMIT {
                let rest =
                    stream::unfold(
                        body,
                        |mut body| async move { body.frame().await.map(|frame| (frame, body)) },
                    );
                return passed(parts, bytes, rest);
            }
        }
        let made = self.page(&bytes, packed).unwrap_or_else(|| bytes.to_vec());
        if parts.headers.contains_key(CONTENT_LENGTH) {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(made.len()));
        }
        let body = Full::new(made.into()).map_err(|never| match never {}).boxed_unsync();
        Response::from_parts(parts, body)
    }

    /// The bytes of a page; `None` when they are no text.
    fn page(&self, bytes: &[u8], packed: bool) -> Option<Vec<u8>> {
        if !packed {
            return Some(self.html(std::str::from_utf8(bytes).ok()?).into_bytes());
        }
        let mut page = String::new();
        GzDecoder::new(bytes).take(LIMIT).read_to_string(&mut page).ok()?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(self.html(&page).as_bytes()).ok()?;
        encoder.finish().ok()
    }
}

/// Whether a page is packed; `None` when an answer is no page that can be read.
fn is_packed_page(headers: &HeaderMap) -> Option<bool> {
    let head = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let html = head(CONTENT_TYPE)?.split(';').next().is_some_and(|of| of.trim() == "text/html");
    let length = head(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let readable = html && length.is_none_or(|length| (1..=LIMIT).contains(&length));
    match head(CONTENT_ENCODING).filter(|_| readable) {
        Some("gzip") => Some(true),
        Some("" | "identity") => Some(false),
        Some(_) => None,
        None => readable.then_some(false),
    }
}

/// What was read of a page that is passed on as it is, and the rest.
fn passed(
    parts: http::response::Parts,
    read: BytesMut,
    rest: impl Stream<Item = Result<http_body::Frame<Bytes>, BoxError>> + Send + 'static,
) -> Response<Body> {
    let read = stream::once(async move { Ok(http_body::Frame::data(read.freeze())) });
    Response::from_parts(parts, StreamBody::new(read.chain(rest)).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriter() -> LinkRewriter {
        LinkRewriter { prefix: "/p/proxy".into(), hosts: vec!["10.0.0.1:80".into()] }
    }

    #[test]
    fn links_lead_back() {
        for (page, shown) in [
            (r#"<a href="/x">t</a>"#, r#"<a href="/p/proxy/x">t</a>"#),
            (r#"<A class=b HREF='/x?a=1' >t</A>"#, r#"<A class=b HREF='/p/proxy/x?a=1' >t</A>"#),
            ("<img src=/i.png><br/>", "<img src=/p/proxy/i.png><br/>"),
            (r#"<a href="http://10.0.0.1:80/x">"#, r#"<a href="/p/proxy/x">"#),
        ] {
            assert_eq!(rewriter().html(page), shown);
        }
    }

    #[test]
    fn everything_else_stays() {
        for page in [
            r#"<a href="x"><a href="//h/x"><a href="http://h/x"><a href="/p/proxy/x"><a title="/x">"#,
            "<!-- <a href=\"/x\"> --> a < b <p data-x='/y'",
            r#"<script>"<a href='/x'>"</script><style>/* <a href="/x"> */</style>"#,
            "<a href=",
            "<",
            "<a",
            "ü<é href='/x'>",
        ] {
            assert_eq!(rewriter().html(page), page);
        }
    }
}
