//! Signatures of AWS, version 4, in the header `Authorization`.

use super::options::Credentials;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use ring::hmac;
use std::fmt::Write as _;

/// Everything but letters, digits and `-._~` is escaped.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// In paths slashes stay.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// A request that is to be signed.
pub(super) struct Unsigned<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    /// Not escaped.
    pub(super) path: &'a str,
    /// Not escaped.
    pub(super) query: &'a [(&'a str, &'a str)],
    /// More headers, in lower case.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body in hexadecimal.
    pub(super) payload: &'a str,
}

/// For whom and when.
pub(super) struct Scope<'a> {
    pub(super) credentials: &'a Credentials,
    pub(super) region: &'a str,
    pub(super) time: Timestamp,
}

pub(super) fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes))
}

pub(super) fn escaped_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// The query as it is signed and sent: sorted.
pub(super) fn escaped_query(query: &[(&str, &str)]) -> String {
    let escape = |text: &str| utf8_percent_encode(text, QUERY).to_string();
    let mut pairs: Vec<String> =
        query.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
    pairs.sort();
    pairs.join("&")
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

impl Unsigned<'_> {
    /// The headers that sign the request, `host` not among them.
    pub(super) fn sign(&self, scope: &Scope<'_>) -> Vec<(String, String)> {
        let time = scope.time.strftime("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        let mut headers: Vec<(&str, &str)> = self.headers.to_vec();
        headers.extend([("host", self.host), ("x-amz-content-sha256", self.payload), ("x-amz-date", &time)]);
        headers.extend(scope.credentials.token.iter().map(|token| ("x-amz-security-token", token.as_str())));
        headers.sort_unstable();
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String =
            headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let canonical = format!(
            "{}\n{}\n{}\n{lines}\n{names}\n{}",
            self.method,
            escaped_path(self.path),
            escaped_query(self.query),
            self.payload
        );
        let area = format!("{day}/{}/s3/aws4_request", scope.region);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{area}\n{}", sha256(canonical.as_bytes()));
        let secret = format!("AWS4{}", scope.credentials.secret_key);
        let steps = [day, scope.region, "s3", "aws4_request", &text];
        let signature = steps.iter().fold(secret.into_bytes(), |key, step| mac(&key, step));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{area},SignedHeaders={names},Signature={}",
            scope.credentials.access_key,
            hex(signature)
        );
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut signed: Vec<_> = headers.iter().filter(|(name, _)| *name != "host").map(owned).collect();
        signed.push(("authorization".to_owned(), authorization));
        signed
    }
}
