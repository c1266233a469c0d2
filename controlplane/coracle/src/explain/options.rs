//! Options of recording: how much is kept, which requests are logged as slow, and where spans are exported to.

use clap::{Args, ValueEnum};
use coracle_proto::quantity::Quantity;
use coracle_proto::time::parse_duration;
use coracle_timeline::Limits;
use http::Uri;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of spans that are kept by default.
const SIZE: u64 = 64 << 20;
/// How long spans are kept by default.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// From when on requests are logged by default.
const SLOW: Duration = Duration::from_millis(500);
/// The usual port of OTLP over HTTP.
const HTTP_PORT: u16 = 4318;
/// The path of traces in OTLP over HTTP.
const HTTP_PATH: &str = "/v1/traces";

/// Options about spans.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RecordingArgs {
    /// Disk space for recorded spans, 64Mi by default; 0 turns recording off.
    #[arg(long)]
    #[serde(deserialize_with = "word")]
    pub trace_size: Option<String>,
    /// How long recorded spans are kept, 24h by default.
    #[arg(long)]
    #[serde(deserialize_with = "word")]
    pub trace_age: Option<String>,
    /// Write the annotation tracing.k8s.io/traceparent to objects that are created or whose generation changes.
    #[arg(long)]
    pub trace_annotations: bool,
    /// Log requests that take at least this long, 500ms by default; 0 logs none.
    #[arg(long)]
    #[serde(deserialize_with = "word")]
    pub slow_request_threshold: Option<String>,
    /// OTLP receiver that spans are exported to, such as http://collector:4317 or http://collector:4318/v1/traces.
    #[arg(long)]
    pub otlp_endpoint: Option<String>,
    /// Protocol of the OTLP receiver; by port and path of the endpoint if not set.
    #[arg(long)]
    pub otlp_protocol: Option<OtlpProtocol>,
    /// File with headers for the OTLP receiver, one `Name: value` per line.
    #[arg(long)]
    pub otlp_headers_file: Option<PathBuf>,
    /// CA certificates of the OTLP receiver, PEM; those of the system if not set.
    #[arg(long)]
    pub otlp_ca_file: Option<PathBuf>,
    /// Share of traces that are exported, from 0.0 to 1.0 (default); clients decide for traces of theirs.
    #[arg(long)]
    pub otlp_sampling: Option<f64>,
}

/// A text, or a number as YAML reads it: `traceSize: 0`.
fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    match Option::<Value>::deserialize(from)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        Some(other) => Err(D::Error::custom(format!("{other} is neither a text nor a number"))),
    }
}

/// How an OTLP receiver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// Protobuf over HTTP/1.1.
    Http,
}

/// Where spans are exported to.
#[derive(Debug, Clone)]
pub struct OtlpOptions {
    /// The receiver, with the path for HTTP.
    pub endpoint: Uri,
    /// How it is spoken to.
    pub protocol: OtlpProtocol,
    /// Headers of every request.
    pub headers: Vec<(String, String)>,
    /// CA certificates, PEM.
    pub authority: Option<Vec<u8>>,
    /// Share of traces that are exported.
    pub sampling: f64,
}

/// The options in force.
#[derive(Debug, Clone)]
pub struct Recording {
    /// How much is kept; `None`: nothing is recorded.
    pub limits: Option<Limits>,
    /// Whether objects get the annotation with their trace context.
    pub annotations: bool,
    /// From when on requests are logged; zero: never.
    pub slow: Duration,
    /// Where spans are exported to.
    pub otlp: Option<OtlpOptions>,
}

/// An option that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// No quantity.
    #[error("--trace-size {0:?} is not a size such as 64Mi")]
    Size(String),
    /// No duration.
    #[error("{flag} {value:?} is not a duration such as 24h or 500ms")]
    Duration {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
    },
    /// No URL with a host.
    #[error("--otlp-endpoint {0:?} is not an http or https URL")]
    Endpoint(String),
    /// A protocol of the environment that is not spoken.
    #[error("OTEL_EXPORTER_OTLP_PROTOCOL {0:?} is neither grpc nor http/protobuf")]
    Protocol(String),
    /// No share.
    #[error("--otlp-sampling {0} is not between 0.0 and 1.0")]
    Sampling(f64),
    /// A file cannot be read.
    #[error("{flag} {path}")]
    Read {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A line that is no header.
    #[error("{0}: a header is `Name: value`")]
    Header(String),
}

impl RecordingArgs {
    /// Whether an option of the file is one of these.
    pub fn has(key: &str) -> bool {
        key.starts_with("trace") || key.starts_with("otlp") || key == "slowRequestThreshold"
    }

    /// These options, with those of `file` for options that are not set.
    #[must_use]
    pub fn over(self, file: Self) -> Self {
        Self {
            trace_size: self.trace_size.or(file.trace_size),
            trace_age: self.trace_age.or(file.trace_age),
            trace_annotations: self.trace_annotations || file.trace_annotations,
            slow_request_threshold: self.slow_request_threshold.or(file.slow_request_threshold),
            otlp_endpoint: self.otlp_endpoint.or(file.otlp_endpoint),
            otlp_protocol: self.otlp_protocol.or(file.otlp_protocol),
            otlp_headers_file: self.otlp_headers_file.or(file.otlp_headers_file),
            otlp_ca_file: self.otlp_ca_file.or(file.otlp_ca_file),
            otlp_sampling: self.otlp_sampling.or(file.otlp_sampling),
        }
    }

    /// The options in force; `environment` has the variables of OpenTelemetry, which are defaults.
    pub fn resolve(&self, environment: &dyn Fn(&str) -> Option<String>) -> Result<Recording, RecordingError> {
        let bytes = self.trace_size.as_deref().map_or(Ok(SIZE), size)?;
        let age = duration("--trace-age", self.trace_age.as_deref(), AGE)?;
        Ok(Recording {
            limits: (bytes > 0).then_some(Limits { bytes, age }),
            annotations: self.trace_annotations,
            slow: duration("--slow-request-threshold", self.slow_request_threshold.as_deref(), SLOW)?,
            otlp: self.otlp(environment)?,
        })
    }

    fn otlp(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<OtlpOptions>, RecordingError> {
        // Those about traces come before those about all signals.
        let variable = |name: &str| {
            let of = |prefix: &str| environment(&format!("{prefix}_{name}")).filter(|text| !text.is_empty());
            of("OTEL_EXPORTER_OTLP_TRACES").or_else(|| of("OTEL_EXPORTER_OTLP"))
        };
        let Some(said) = self.otlp_endpoint.clone().or_else(|| variable("ENDPOINT")) else { return Ok(None) };
        let endpoint = said.parse::<Uri>().ok().filter(|uri| {
            uri.host().is_some_and(|host| !host.is_empty())
                && matches!(uri.scheme_str(), Some("http" | "https"))
        });
        let endpoint = endpoint.ok_or_else(|| RecordingError::Endpoint(said.clone()))?;
        let protocol = match (self.otlp_protocol, variable("PROTOCOL").as_deref()) {
            (Some(protocol), _) => protocol,
            (None, Some("grpc")) => OtlpProtocol::Grpc,
            (None, Some("http/protobuf")) => OtlpProtocol::Http,
            (None, Some(other)) => return Err(RecordingError::Protocol(other.to_owned())),
            (None, None) if endpoint.path() == "/" && endpoint.port_u16() != Some(HTTP_PORT) => {
                OtlpProtocol::Grpc
            }
            (None, None) => OtlpProtocol::Http,
        };
        let sampling = self.otlp_sampling.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&sampling) {
            return Err(RecordingError::Sampling(sampling));
        }
        let headers = match &self.otlp_headers_file {
            Some(path) => headers(&read("--otlp-headers-file", path)?, '\n', ':')?,
            None => headers(&variable("HEADERS").unwrap_or_default(), ',', '=')?,
        };
        let authority = self.otlp_ca_file.clone().or_else(|| variable("CERTIFICATE").map(PathBuf::from));
        let authority = authority.map(|path| read("--otlp-ca-file", &path)).transpose()?;
        Ok(Some(OtlpOptions {
            endpoint: with_path(endpoint, protocol),
            protocol,
            headers,
            authority: authority.map(String::into_bytes),
            sampling,
        }))
    }
}

/// The endpoint with the path of traces, if it is one of HTTP without a path.
fn with_path(endpoint: Uri, protocol: OtlpProtocol) -> Uri {
    if protocol == OtlpProtocol::Grpc || endpoint.path() != "/" {
        return endpoint;
    }
    let mut parts = endpoint.clone().into_parts();
    parts.path_and_query = Some(http::uri::PathAndQuery::from_static(HTTP_PATH));
    Uri::from_parts(parts).unwrap_or(endpoint)
}

fn size(text: &str) -> Result<u64, RecordingError> {
    let quantity = text.parse::<Quantity>().ok();
    let bytes = quantity.and_then(|quantity| u64::try_from(quantity.value()).ok());
    bytes.ok_or_else(|| RecordingError::Size(text.to_owned()))
}

/// A duration; a plain 0 is one, too.
fn duration(flag: &'static str, value: Option<&str>, default: Duration) -> Result<Duration, RecordingError> {
    let nanos = match value {
        None => return Ok(default),
        Some("0") => Some(0),
        Some(text) => parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok()),
    };
    let wrong = || RecordingError::Duration { flag, value: value.unwrap_or_default().to_owned() };
    nanos.map(Duration::from_nanos).ok_or_else(wrong)
}

fn read(flag: &'static str, path: &Path) -> Result<String, RecordingError> {
    std::fs::read_to_string(path).map_err(|source| RecordingError::Read { flag, path: path.into(), source })
}

fn headers(text: &str, between: char, after_name: char) -> Result<Vec<(String, String)>, RecordingError> {
    let lines = text.split(between).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let header = |line: &str| {
        let (name, value) = line.split_once(after_name)?;
        let name = http::HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let value = http::HeaderValue::from_str(value.trim()).ok()?;
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    // The value may be a secret.
    let name = |line: &str| line.split(after_name).next().unwrap_or_default().to_owned();
    lines.map(|line| header(line).ok_or_else(|| RecordingError::Header(name(line)))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(args: RecordingArgs, environment: &[(&str, &str)]) -> Result<Recording, RecordingError> {
        let of = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        args.resolve(&of)
    }

    fn otlp(endpoint: &str, environment: &[(&str, &str)]) -> OtlpOptions {
        let args = RecordingArgs {
            otlp_endpoint: Some(endpoint.to_owned()).filter(|endpoint| !endpoint.is_empty()),
            ..RecordingArgs::default()
        };
        resolved(args, environment).unwrap().otlp.unwrap()
    }

    #[test]
    fn spans_are_kept_for_a_day_unless_the_options_say_otherwise() {
        let usual = resolved(RecordingArgs::default(), &[]).unwrap();
        let limits = usual.limits.unwrap();
        assert_eq!((limits.bytes, limits.age.as_secs()), (64 << 20, 86400));
        assert_eq!(usual.slow.as_millis(), 500);
        assert!(usual.otlp.is_none());
        let args = |size: &str, slow: &str| RecordingArgs {
            trace_size: Some(size.into()),
            slow_request_threshold: Some(slow.into()),
            ..RecordingArgs::default()
        };
        let off = resolved(args("0", "0"), &[]).unwrap();
        assert!(off.limits.is_none() && off.slow.is_zero());
        assert!(resolved(args("many", "1s"), &[]).is_err());
        assert!(resolved(args("-1", "1s"), &[]).is_err());
        assert!(resolved(args("1Mi", "5"), &[]).is_err());
    }

    #[test]
    fn files_may_have_numbers() {
        let file =
            r#"{"traceSize": 0, "traceAge": "1h", "slowRequestThreshold": null, "otlpProtocol": "http"}"#;
        let args: RecordingArgs = serde_json::from_str(file).unwrap();
        assert_eq!((args.trace_size.as_deref(), args.trace_age.as_deref()), (Some("0"), Some("1h")));
        assert_eq!(args.otlp_protocol, Some(OtlpProtocol::Http));
        assert!(serde_json::from_str::<RecordingArgs>(r#"{"traceSize": []}"#).is_err());
    }

    #[test]
    fn port_and_path_of_the_endpoint_say_the_protocol() {
        let grpc = otlp("http://collector:4317", &[]);
        assert_eq!((grpc.protocol, grpc.endpoint.path()), (OtlpProtocol::Grpc, "/"));
        let http = otlp("http://collector:4318", &[]);
        assert_eq!((http.protocol, http.endpoint.path()), (OtlpProtocol::Http, "/v1/traces"));
        let http = otlp("https://collector/otlp/v1/traces", &[]);
        assert_eq!((http.protocol, http.endpoint.path()), (OtlpProtocol::Http, "/otlp/v1/traces"));
        let by_variable = otlp(
            "",
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret, tenant=a"),
            ],
        );
        assert_eq!(by_variable.protocol, OtlpProtocol::Http);
        assert_eq!(by_variable.headers[1], ("tenant".to_owned(), "a".to_owned()));
        for bad in ["collector:4317", "ftp://collector", "/v1/traces"] {
            let args = RecordingArgs { otlp_endpoint: Some(bad.into()), ..RecordingArgs::default() };
            assert!(resolved(args, &[]).is_err(), "{bad}");
        }
    }
}
