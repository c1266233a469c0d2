//! Which framing a request asks for, and the answer to it.

use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const SPDY: &str = "SPDY/3.1";

/// What the streams are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Exec and attach.
    Command,
    /// Port-forward.
    Ports,
}

/// Protocol version of exec and attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Errors are text.
    Text,
    /// Errors are text, and terminals have sizes.
    TextAndResize,
    /// The end is a Status.
    Status,
}

/// Framing of the upgraded connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// SPDY/3.1 on the connection itself.
    Spdy(Version),
    /// SPDY/3.1 in the binary messages of a WebSocket.
    Tunnel,
    /// WebSocket channels.
    Channels {
        /// Messages are text in base64.
        base64: bool,
        /// Protocol version.
        version: Version,
    },
}

/// An accepted upgrade: its framing, and the headers of the 101 response.
#[derive(Debug)]
pub struct Accepted {
    /// Negotiated framing.
    pub framing: Framing,
    /// Headers of the answer.
    pub headers: HeaderMap,
}

/// A request that cannot be upgraded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Refused {
    /// Status of the answer.
    pub status: StatusCode,
    /// Text of the answer.
    pub message: String,
}

fn listed(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let all = values.flat_map(|value| value.split(',')).map(|part| part.trim().to_owned());
    all.filter(|part| !part.is_empty()).collect()
}

/// Supported WebSocket subprotocols.
fn websocket(purpose: Purpose, name: &str) -> Option<Framing> {
    if purpose == Purpose::Ports && name == "SPDY/3.1+portforward.k8s.io" {
        return Some(Framing::Tunnel);
    }
    let (base64, version) = match name {
        "channel.k8s.io" => (false, Version::TextAndResize),
        "base64.channel.k8s.io" => (true, Version::TextAndResize),
        "v4.channel.k8s.io" => (false, Version::Status),
        "v4.base64.channel.k8s.io" => (true, Version::Status),
        "v5.channel.k8s.io" if purpose == Purpose::Command => (false, Version::Status),
        _ => return None,
    };
    Some(Framing::Channels { base64, version })
}

/// Supported SPDY stream protocols.
fn spdy(purpose: Purpose, name: &str) -> Option<Version> {
    match (purpose, name) {
        (Purpose::Ports, "portforward.k8s.io") => Some(Version::Text),
        (Purpose::Command, "v4.channel.k8s.io") => Some(Version::Status),
        (Purpose::Command, "v3.channel.k8s.io") => Some(Version::TextAndResize),
        (Purpose::Command, "v2.channel.k8s.io" | "channel.k8s.io") => Some(Version::Text),
        _ => None,
    }
}

/// Negotiates the framing from the request headers: the first supported protocol in the client's order.
pub fn negotiate(purpose: Purpose, headers: &HeaderMap) -> Result<Accepted, Refused> {
    let refused = |status, message: String| Refused { status, message };
    let upgrade = headers.get(UPGRADE).and_then(|v| v.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let mut answer = HeaderMap::new();
    answer.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let chosen = |answer: &mut HeaderMap, header, name: &str| {
        if let Ok(value) = HeaderValue::from_str(name) {
            answer.insert(header, value);
        }
    };
    if upgrade == "websocket" {
        let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| {
            refused(StatusCode::BAD_REQUEST, "unable to upgrade websocket connection: no key".into())
        })?;
        let offered = listed(headers, &SEC_WEBSOCKET_PROTOCOL);
        let framing = if offered.is_empty() {
            Framing::Channels { base64: false, version: Version::TextAndResize }
        } else {
            let found = offered.iter().find_map(|name| Some((name, websocket(purpose, name)?)));
            let (name, framing) = found.ok_or_else(|| {
                refused(
                    StatusCode::FORBIDDEN,
                    format!(
                        "unable to upgrade websocket connection: requested protocol(s) are not supported: {offered:?}"
                    ),
                )
            })?;
            chosen(&mut answer, SEC_WEBSOCKET_PROTOCOL, name);
            framing
        };
        answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
        chosen(&mut answer, SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes()));
        return Ok(Accepted { framing, headers: answer });
    }
    let offered = listed(headers, &STREAM_PROTOCOL);
    if offered.is_empty() {
        let count = headers.len();
        let message = format!(
            "unable to upgrade: header X-Stream-Protocol-Version does not exist in request with {count} headers"
        );
        return Err(refused(StatusCode::BAD_REQUEST, message));
    }
    if !upgrade.contains("spdy/3.1") {
        let message = "unable to upgrade: missing upgrade headers in request".to_owned();
        return Err(refused(StatusCode::BAD_REQUEST, message));
    }
    let found = offered.iter().find_map(|name| Some((name, spdy(purpose, name)?)));
    let (name, version) = found.ok_or_else(|| {
        let ours: &[&str] = match purpose {
            Purpose::Command => &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"],
            Purpose::Ports => &["portforward.k8s.io"],
        };
        let (theirs, ours) = (offered.join(" "), ours.join(" "));
        refused(
            StatusCode::FORBIDDEN,
            format!("unable to upgrade: unable to negotiate protocol: client supports [{theirs}], server accepts [{ours}]"),
        )
    })?;
    answer.insert(UPGRADE, HeaderValue::from_static(SPDY));
    chosen(&mut answer, STREAM_PROTOCOL, name);
    Ok(Accepted { framing: Framing::Spdy(version), headers: answer })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn asked(upgrade: &'static str, header: HeaderName, names: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
        headers.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        if !names.is_empty() {
            headers.insert(header, HeaderValue::from_static(names));
        }
        headers
    }

    #[test]
    fn the_clients_first_choice_is_taken() {
        let channels = |base64, version| Framing::Channels { base64, version };
        let cases = [
            (
                Purpose::Command,
                "v5.channel.k8s.io, v4.channel.k8s.io",
                Some(channels(false, Version::Status)),
            ),
            (Purpose::Command, "v9, base64.channel.k8s.io", Some(channels(true, Version::TextAndResize))),
            (Purpose::Command, "", Some(channels(false, Version::TextAndResize))),
            (Purpose::Command, "v9", None),
            (Purpose::Ports, "SPDY/3.1+portforward.k8s.io", Some(Framing::Tunnel)),
            (Purpose::Ports, "v4.base64.channel.k8s.io", Some(channels(true, Version::Status))),
            (Purpose::Command, "SPDY/3.1+portforward.k8s.io", None),
        ];
        for (purpose, names, expected) in cases {
            let answer = negotiate(purpose, &asked("websocket", SEC_WEBSOCKET_PROTOCOL, names));
            assert_eq!(answer.ok().map(|a| a.framing), expected, "{names}");
        }
        let cases = [
            (Purpose::Command, "v4.channel.k8s.io,v3.channel.k8s.io", Some(Framing::Spdy(Version::Status))),
            (Purpose::Command, "channel.k8s.io", Some(Framing::Spdy(Version::Text))),
            (Purpose::Ports, "portforward.k8s.io", Some(Framing::Spdy(Version::Text))),
            (Purpose::Ports, "v4.channel.k8s.io", None),
        ];
        for (purpose, names, expected) in cases {
            let answer = negotiate(purpose, &asked("SPDY/3.1", STREAM_PROTOCOL, names));
            assert_eq!(answer.ok().map(|a| a.framing), expected, "{names}");
        }
    }

    #[test]
    fn the_answer_names_what_was_chosen() {
        let headers =
            negotiate(Purpose::Command, &asked("websocket", SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io"))
                .unwrap()
                .headers;
        assert_eq!(headers[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v4.channel.k8s.io");
        let headers = negotiate(Purpose::Command, &asked("SPDY/3.1", STREAM_PROTOCOL, "v4.channel.k8s.io"))
            .unwrap()
            .headers;
        assert_eq!(
            (&headers[UPGRADE], &headers[STREAM_PROTOCOL]),
            (&HeaderValue::from_static(SPDY), &HeaderValue::from_static("v4.channel.k8s.io"))
        );
    }

    #[test]
    fn a_plain_request_is_told_why_not() {
        let refused = negotiate(Purpose::Command, &HeaderMap::new()).unwrap_err();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert!(refused.message.contains("X-Stream-Protocol-Version does not exist"), "{refused}");
    }
}
