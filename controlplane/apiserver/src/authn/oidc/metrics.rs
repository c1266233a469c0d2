//! Metrics of one issuer, with upstream's names: how long its tokens took, and when its keys were fetched.

use coracle_proto::exposition::{Histogram, Page};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::Duration;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

const LATENCY: &str = "apiserver_authentication_jwt_authenticator_latency_seconds";
const FETCHED: &str = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds";
const KEY_SET: &str = "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info";

/// As upstream writes hashes into labels; nothing of nothing.
pub fn hash(text: &[u8]) -> String {
    if text.is_empty() {
        return String::new();
    }
    Sha256::digest(text).iter().fold("sha256:".to_owned(), |mut written, byte| {
        // Writing to a String cannot fail.
        let _ = write!(written, "{byte:02x}");
        written
    })
}

/// This moment, as gauges of times have it.
pub fn now() -> f64 {
    jiff::Timestamp::now().as_microsecond() as f64 / 1e6
}

/// `success` or `failure`, as labels.
pub const RESULTS: [&str; 2] = ["success", "failure"];

#[derive(Clone)]
struct Figures {
    latencies: [Histogram; 2],
    fetched: [Option<f64>; 2],
    key_set: Option<String>,
}

/// The figures of one issuer.
pub struct IssuerMetrics {
    issuer: String,
    figures: Mutex<Figures>,
}

impl IssuerMetrics {
    pub(super) fn new(issuer: &str) -> Self {
        let latencies = [Histogram::new(&BUCKETS), Histogram::new(&BUCKETS)];
        let figures = Figures { latencies, fetched: [None; 2], key_set: None };
        Self { issuer: hash(issuer.as_bytes()), figures: Mutex::new(figures) }
    }

    /// Counts a token of the issuer.
    pub(super) fn authenticated(&self, accepted: bool, took: Duration) {
        self.figures.lock().latencies[usize::from(!accepted)].observe(took.as_secs_f64());
    }

    /// Notes a set of keys.
    pub(super) fn fetched(&self, key_set: &[u8]) {
        let mut figures = self.figures.lock();
        figures.fetched[0] = Some(now());
        figures.key_set = Some(hash(key_set));
    }

    /// Notes that the keys could not be fetched.
    pub(super) fn not_fetched(&self) {
        self.figures.lock().fetched[1] = Some(now());
    }
}

/// Writes the figures of all issuers.
pub(super) fn render(page: &mut Page, all: &[std::sync::Arc<IssuerMetrics>], server: &str) {
    if all.is_empty() {
        return;
    }
    let all: Vec<(&str, Figures)> =
        all.iter().map(|one| (one.issuer.as_str(), one.figures.lock().clone())).collect();
    page.family(LATENCY, "histogram", "Latency of jwt authentication operations in seconds.");
    for (issuer, figures) in &all {
        for (result, latencies) in RESULTS.into_iter().zip(&figures.latencies) {
            if latencies.count() > 0 {
                page.histogram(LATENCY, &[("result", result), ("jwt_issuer_hash", *issuer)], latencies);
            }
        }
    }
    page.family(FETCHED, "gauge", "Timestamp of the last successful or failed JWKS fetch.");
    for (issuer, figures) in &all {
        for (result, at) in RESULTS.into_iter().zip(figures.fetched) {
            let labels = [("result", result), ("jwt_issuer_hash", *issuer), ("apiserver_id_hash", server)];
            if let Some(at) = at {
                page.value(FETCHED, &labels, at);
            }
        }
    }
    page.family(KEY_SET, "gauge", "Information about the last JWKS fetched, with hash as label.");
    for (issuer, figures) in &all {
        if let Some(hash) = &figures.key_set {
            let labels =
                [("jwt_issuer_hash", *issuer), ("apiserver_id_hash", server), ("hash", hash.as_str())];
            page.value(KEY_SET, &labels, 1);
        }
    }
}
