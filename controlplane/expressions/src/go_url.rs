//! URLs as Go reads them (`url.ParseRequestURI`, and `url.Parse` for what comes after `#`): expressions about them have the values that
//! they have in Kubernetes.

use std::net::IpAddr;

/// A URL with a scheme, a path, or `*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GoUrl {
    pub(crate) scheme: String,
    /// Host and port, without user and password.
    pub(crate) host: String,
    /// The path as it is sent.
    pub(crate) path: String,
    pub(crate) query: String,
}

/// What is wrong with a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("net/url: invalid control character in URL")]
    Control,
    #[error("empty url")]
    Empty,
    #[error("missing protocol scheme")]
    Scheme,
    #[error("invalid URI for request")]
    Relative,
    #[error("net/url: invalid userinfo")]
    User,
    #[error("missing ']' in host")]
    Bracket,
    #[error("invalid IP-literal")]
    Literal,
    #[error("invalid port {0:?} after host")]
    Port(String),
    #[error("invalid character \"{0}\" in host name")]
    HostCharacter(char),
    #[error("invalid URL escape {0:?}")]
    Escape(String),
}

impl GoUrl {
    /// Reads a URL for expressions: it is absolute, and what comes after `#` is no part of it.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        Self::of_request(text)?;
        let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
        unescaped(fragment, |_| true)?;
        Self::of_request(url)
    }

    /// Reads a URL as that of a request: `#` has no meaning.
    pub(crate) fn of_request(text: &str) -> Result<Self, UrlError> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(UrlError::Control);
        }
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        if text == "*" {
            return Ok(Self { path: text.to_owned(), ..Self::default() });
        }
        let (scheme, rest) = scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url =
            Self { scheme: scheme.to_ascii_lowercase(), query: query.to_owned(), ..Self::default() };
        if !rest.starts_with('/') {
            // Such as `mailto:a@b`, of which nothing more is known.
            return if url.scheme.is_empty() { Err(UrlError::Relative) } else { Ok(url) };
        }
        let mut path = rest;
        if let Some(rest) = rest.strip_prefix("//").filter(|_| !url.scheme.is_empty()) {
            let end = rest.find('/').unwrap_or(rest.len());
            url.host = authority(&url.scheme, &rest[..end])?;
            path = &rest[end..];
        }
        url.path = escaped_path(path)?;
        Ok(url)
    }

    /// The host without its port and brackets.
    pub(crate) fn hostname(&self) -> &str {
        let host = self.split().0;
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    pub(crate) fn port(&self) -> &str {
        self.split().1
    }

    fn split(&self) -> (&str, &str) {
        match self.host.rfind(':') {
            Some(colon) if is_port(&self.host[colon..]) => (&self.host[..colon], &self.host[colon + 1..]),
            _ => (&self.host, ""),
        }
    }

    /// Names and values of the query, without what cannot be read.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (String, String)> {
        let pairs =
            self.query.split('&').filter(|pair| !pair.contains(';') && unescaped(pair, |_| true).is_ok());
        pairs.flat_map(|pair| form_urlencoded::parse(pair.as_bytes()).into_owned())
    }
}

/// The scheme, if there is one, and what comes after it.
fn scheme(text: &str) -> Result<(&str, &str), UrlError> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err(UrlError::Scheme),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Host and port, after user and password.
fn authority(scheme: &str, text: &str) -> Result<String, UrlError> {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", text));
    let host = host_and_port(scheme, host)?;
    let known = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(known) {
        return Err(UrlError::User);
    }
    unescaped(user, |_| true)?;
    Ok(host)
}

fn host_and_port(scheme: &str, text: &str) -> Result<String, UrlError> {
    if let Some(start) = text.rfind('[') {
        if start > 0 {
            return Err(UrlError::Literal);
        }
        let end = text.rfind(']').ok_or(UrlError::Bracket)?;
        let (name, port) = (&text[1..end], &text[end + 1..]);
        if !is_port(port) {
            return Err(UrlError::Port(port.to_owned()));
        }
        let (name, zone) = name.split_at(name.find("%25").unwrap_or(name.len()));
        let (name, zone) =
            (host(name)?, unescaped(zone, |byte| byte == b'%' || byte == b' ' || in_host(byte))?);
        let is_v6 = name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) && zone != "%";
        return if is_v6 { Ok(format!("[{name}{zone}]{port}")) } else { Err(UrlError::Literal) };
    }
    // Names with several colons are known in other schemes: lists of hosts.
    let colon = if matches!(scheme, "http" | "https") { text.find(':') } else { text.rfind(':') };
    match colon.map(|colon| &text[colon..]).filter(|port| !is_port(port)) {
        Some(port) => Err(UrlError::Port(port.to_owned())),
        None => host(text),
    }
}

/// Whether there is no port, or a number.
fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A host, in which only what is not ASCII can be escaped.
fn host(text: &str) -> Result<String, UrlError> {
    if let Some(wrong) = text.chars().find(|c| c.is_ascii() && *c != '%' && !in_host(*c as u8)) {
        return Err(UrlError::HostCharacter(wrong));
    }
    unescaped(text, |byte| byte >= 0x80 || byte == b'%')
}

fn in_host(byte: u8) -> bool {
    unreserved(byte) || b"!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// The bytes that a text stands for; those that are escaped must be allowed.
fn bytes(text: &str, allowed: impl Fn(u8) -> bool) -> Result<Vec<u8>, UrlError> {
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            all.push(*first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|byte| allowed(*byte));
        let Some(byte) = byte else {
            let shown = &after[..after.len().min(2)];
            return Err(UrlError::Escape(format!("%{}", String::from_utf8_lossy(shown))));
        };
        all.push(byte);
        rest = &after[2..];
    }
    Ok(all)
}

fn unescaped(text: &str, allowed: impl Fn(u8) -> bool) -> Result<String, UrlError> {
    bytes(text, allowed).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A path as it is sent: as it was written where that can be sent.
fn escaped_path(text: &str) -> Result<String, UrlError> {
    let path = bytes(text, |_| true)?;
    let can_be_sent = |byte: u8| unreserved(byte) || b"!$&'()*+,;=:@[]%/".contains(&byte);
    if text.bytes().all(can_be_sent) {
        return Ok(text.to_owned());
    }
    let mut all = String::with_capacity(text.len());
    for byte in path {
        match unreserved(byte) || b"$&+,/:;=@".contains(&byte) {
            true => all.push(byte as char),
            false => all.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_urls() {
        for (text, parts) in [
            ("https://a", ["https", "a", "a", "", ""]),
            ("HTTPS://u:p@a.b:80/c/d?e=f#g", ["https", "a.b:80", "a.b", "80", "/c/d"]),
            ("https://[::1]:80/x y", ["https", "[::1]:80", "::1", "80", "/x%20y"]),
            ("https://[fe80::1%25eth0]/", ["https", "[fe80::1%eth0]", "fe80::1%eth0", "", "/"]),
            ("file:///x", ["file", "", "", "", "/x"]),
            ("mailto:a@b", ["mailto", "", "", "", ""]),
            ("/a/ä?b", ["", "", "", "", "/a/%C3%A4"]),
            ("//a/b", ["", "", "", "", "//a/b"]),
            ("*", ["", "", "", "", "*"]),
            ("https://ä:1/", ["https", "ä:1", "ä", "1", "/"]),
            ("https://a:/%2fb", ["https", "a:", "a", "", "/%2fb"]),
            ("db://a:1,b:2/", ["db", "a:1,b:2", "a:1,b", "2", "/"]),
        ] {
            let url = GoUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!([&url.scheme, &url.host, url.hostname(), url.port(), &url.path], parts, "{text}");
        }
    }

    #[test]
    fn mistakes_in_urls() {
        for (text, message) in [
            ("", "empty url"),
            ("a/b", "invalid URI for request"),
            ("a b", "invalid URI for request"),
            (":a", "missing protocol scheme"),
            ("/a\n", "net/url: invalid control character in URL"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("/%2", "invalid URL escape \"%2\""),
            ("https://%41/", "invalid URL escape \"%41\""),
            ("https://a b/", "invalid character \" \" in host name"),
            ("https://a:b/", "invalid port \":b\" after host"),
            ("https://a:1:2/", "invalid port \":1:2\" after host"),
            ("https://[::1/", "missing ']' in host"),
            ("https://[1.2.3.4]/", "invalid IP-literal"),
            ("https://<@a/", "net/url: invalid userinfo"),
            ("/a#%", "invalid URL escape \"%\""),
        ] {
            assert_eq!(
                GoUrl::parse(text).err().map(|error| error.to_string()).as_deref(),
                Some(message),
                "{text}"
            );
        }
    }

    #[test]
    fn parameters_of_a_query() {
        let url = GoUrl { query: "a=1&b=%zz&c;d=2&a=x+y&&e".to_owned(), ..GoUrl::default() };
        let all: Vec<_> = url.parameters().collect();
        let all: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(all, [("a", "1"), ("a", "x y"), ("e", "")]);
    }
}
