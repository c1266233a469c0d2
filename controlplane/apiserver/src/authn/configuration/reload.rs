//! Uses the file again when it changed. A file that cannot be used changes nothing.

use super::{Configuration, ConfigurationError, text};
use crate::authn::anonymous::Anonymous;
use crate::authn::oidc::Issuers;
use crate::authn::oidc::metrics::{RESULTS, hash, now};
use coracle_client::diagnostics::MetricsSource;
use coracle_proto::exposition::Page;
use coracle_proto::status::FieldError;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const TOTAL: &str = "apiserver_authentication_config_controller_automatic_reloads_total";
const LAST: &str = "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds";
const INFO: &str = "apiserver_authentication_config_controller_last_config_info";

/// What is known of the file.
struct State {
    /// The last text, used or not.
    seen: String,
    /// The hash of the text that is used.
    used: String,
    counts: [u64; 2],
    times: [Option<f64>; 2],
}

/// The file, and the issuers that it configures.
pub struct Reloader {
    path: PathBuf,
    own_issuers: Vec<String>,
    /// Those of the first file: whoever may come without credentials does not change while the server runs.
    anonymous: Option<Anonymous>,
    issuers: Arc<Issuers>,
    server: String,
    state: Mutex<State>,
}

impl Reloader {
    /// Uses a configuration that was read. `server` is the name of this API server.
    pub fn new(path: PathBuf, configuration: Configuration, own_issuers: Vec<String>, server: &str) -> Self {
        let used = hash(configuration.text.as_bytes());
        let state = State { seen: configuration.text, used, counts: [0; 2], times: [None; 2] };
        Self {
            path,
            own_issuers,
            anonymous: configuration.anonymous,
            issuers: Arc::new(Issuers::new(server, configuration.issuers)),
            server: hash(server.as_bytes()),
            state: Mutex::new(state),
        }
    }

    /// The issuers of the file.
    pub fn issuers(&self) -> Arc<Issuers> {
        self.issuers.clone()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; whether it changed. An error is told and counted once for each text that cannot be used.
    pub fn reload(&self) -> Result<bool, ConfigurationError> {
        let mut state = self.state.lock();
        let outcome = text(&self.path).and_then(|text| {
            if text == state.seen {
                return Ok(false);
            }
            state.seen.clone_from(&text);
            self.replace(text).map(|used| {
                state.used = used;
                true
            })
        });
        if !matches!(outcome, Ok(false)) {
            let result = usize::from(outcome.is_err());
            state.counts[result] += 1;
            state.times[result] = Some(now());
        }
        outcome
    }

    /// Uses a text; its hash.
    fn replace(&self, text: String) -> Result<String, ConfigurationError> {
        let configuration = Configuration::parse(&self.path, text, &self.own_issuers)?;
        if configuration.anonymous != self.anonymous {
            let why = "changed from initial configuration file";
            let problems = vec![FieldError::forbidden("anonymous", why)];
            return Err(ConfigurationError::Invalid { path: self.path.clone(), problems });
        }
        self.issuers.replace(configuration.issuers);
        Ok(hash(configuration.text.as_bytes()))
    }
}

impl MetricsSource for Reloader {
    fn render(&self, page: &mut Page) {
        let state = self.state.lock();
        let labels = |result: &'static str| [("status", result), ("apiserver_id_hash", &*self.server)];
        page.family(TOTAL, "counter", "Total number of automatic reloads of authentication configuration.");
        for (result, count) in RESULTS.into_iter().zip(state.counts) {
            page.value(TOTAL, &labels(result), count);
        }
        page.family(LAST, "gauge", "Timestamp of the last automatic reload of authentication configuration.");
        for (result, at) in RESULTS.into_iter().zip(state.times) {
            if let Some(at) = at {
                page.value(LAST, &labels(result), at);
            }
        }
        page.family(INFO, "gauge", "Information about the last applied authentication configuration.");
        page.value(INFO, &[("apiserver_id_hash", &self.server), ("hash", &state.used)], 1);
    }
}
