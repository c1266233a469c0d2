//! Encryption at rest of a running server: which keys are in use, a configuration file that changes, and stored values that are
//! encrypted again.

use coracle_cli::causes;
use coracle_store::encryption::config::{Config, FormatError};
use coracle_store::encryption::rewrite::Progress;
use coracle_store::encryption::{EncryptedStore, usage};
use coracle_store::{Store, StoreError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(2);
/// A larger file is none.
const MAX_FILE: u64 = 1 << 20;

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is too large.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(PathBuf),
    /// It is none.
    #[error("{0} is no EncryptionConfiguration: {1}")]
    Format(PathBuf, FormatError),
    /// Its keys cannot be used, or one that stored values need is missing.
    #[error("{0} is not used")]
    Keys(PathBuf, #[source] Box<StoreError>),
}

/// The providers of some resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The resources.
    pub resources: Vec<String>,
    /// The providers in their order; the first one encrypts.
    pub providers: Vec<String>,
}

/// How many values are encrypted with which key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredValues {
    /// The resource.
    pub resource: String,
    /// The provider.
    pub provider: String,
    /// How many.
    pub count: u64,
    /// Whether the provider is the one that encrypts new values of the resource.
    pub current: bool,
}

/// How far stored values are encrypted again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RewriteState {
    /// How many rewrites were begun since the server started.
    pub number: u64,
    /// Whether one runs.
    pub running: bool,
    /// Values that were looked at.
    pub seen: u64,
    /// Values that were written.
    pub written: u64,
    /// Why the last one failed.
    pub error: Option<String>,
}

/// The state of encryption at rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EncryptionStatus {
    /// `EncryptionStatus`.
    pub kind: String,
    /// `coracle/v1`.
    pub api_version: String,
    /// Whether the server has a configuration.
    pub enabled: bool,
    /// The file of the configuration.
    pub config_file: Option<PathBuf>,
    /// What is configured.
    pub entries: Vec<Entry>,
    /// What is stored.
    pub stored: Vec<StoredValues>,
    /// The rewrite of stored values.
    pub rewrite: RewriteState,
    /// Why the file as it is now is not used.
    pub problem: Option<String>,
}

impl EncryptionStatus {
    /// Of a server without a configuration.
    pub fn disabled() -> Self {
        Self { kind: "EncryptionStatus".into(), api_version: "coracle/v1".into(), ..Self::default() }
    }
}

struct Rewriting {
    state: RewriteState,
    progress: Arc<Progress>,
}

/// Encryption at rest of this server.
pub struct Encryption {
    store: Arc<EncryptedStore>,
    /// The store with encrypted values.
    stored: Arc<dyn Store>,
    path: PathBuf,
    /// The text of the configuration in use.
    loaded: tokio::sync::Mutex<String>,
    problem: Mutex<Option<String>>,
    rewriting: Mutex<Rewriting>,
}

impl Encryption {
    /// With the configuration that was read from a file as `text`.
    pub fn new(store: Arc<EncryptedStore>, stored: Arc<dyn Store>, path: PathBuf, text: String) -> Self {
        let rewriting = Rewriting { state: RewriteState::default(), progress: Arc::default() };
        Self {
            store,
            stored,
            path,
            loaded: tokio::sync::Mutex::new(text),
            problem: Mutex::default(),
            rewriting: Mutex::new(rewriting),
        }
    }

    /// The state now.
    pub async fn status(&self) -> Result<EncryptionStatus, StoreError> {
        // Before values are counted: those that a rewrite has ended with are all counted.
        let rewrite = self.rewrite_state();
        let config = self.store.config();
        let entries =
            config.entries().into_iter().map(|(resources, providers)| Entry { resources, providers });
        let mut stored = Vec::new();
        for usage::Usage { resource, provider, count } in usage::count(&*self.stored, &config).await? {
            let first = config.providers(&format!("/registry/{resource}/")).first();
            let current = first.map_or_else(|| "identity".to_owned(), |first| first.name()) == provider;
            stored.push(StoredValues { resource, provider, count, current });
        }
        Ok(EncryptionStatus {
            enabled: true,
            config_file: Some(self.path.clone()),
            entries: entries.collect(),
            stored,
            rewrite,
            problem: self.problem.lock().clone(),
            ..EncryptionStatus::disabled()
        })
    }

    fn rewrite_state(&self) -> RewriteState {
        let rewriting = self.rewriting.lock();
        RewriteState {
            seen: rewriting.progress.seen.load(Ordering::Relaxed),
            written: rewriting.progress.written.load(Ordering::Relaxed),
            ..rewriting.state.clone()
        }
    }

    /// Uses the file as it is now. Fails, and uses the configuration from before, if the file is none or lacks a key of a
    /// stored value.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let read = read.map_err(|error| ReloadError::Read(self.path.clone(), std::io::Error::other(error)));
        let used = async {
            let text = read??;
            let mut loaded = self.loaded.lock().await;
            if *loaded == text {
                return Ok(false);
            }
            let config = Config::parse(&text).map_err(|why| ReloadError::Format(self.path.clone(), why))?;
            let replaced = self.store.replace(config).await;
            replaced.map_err(|why| ReloadError::Keys(self.path.clone(), Box::new(why)))?;
            *loaded = text;
            Ok::<bool, ReloadError>(true)
        };
        let used = used.await;
        *self.problem.lock() = used.as_ref().err().map(|error: &ReloadError| causes::chain(error));
        if used? {
            let entries = self.store.config().entries();
            let first: Vec<_> = entries.iter().filter_map(|(_, providers)| providers.first()).collect();
            tracing::info!(path = %self.path.display(), ?first, "encryption configuration reloaded");
        }
        Ok(())
    }

    /// Reloads the file when it changes; does not return.
    pub async fn follow(self: Arc<Self>) {
        let mut said = None;
        loop {
            tokio::time::sleep(PERIOD).await;
            let problem = self.reload().await.err().map(|error| causes::chain(&error));
            if let Some(problem) = problem.as_ref().filter(|problem| said.as_ref() != Some(*problem)) {
                tracing::error!(error = problem, "the encryption configuration is not reloaded");
            }
            said = problem;
        }
    }

    /// Encrypts stored values again, unless that is being done.
    pub fn start_rewrite(self: &Arc<Self>) {
        let mut rewriting = self.rewriting.lock();
        if rewriting.state.running {
            return;
        }
        let number = rewriting.state.number + 1;
        rewriting.state = RewriteState { number, running: true, ..RewriteState::default() };
        rewriting.progress = Arc::default();
        let (own, progress) = (self.clone(), rewriting.progress.clone());
        tokio::spawn(async move {
            let ended = own.store.rewrite(&progress).await;
            let mut rewriting = own.rewriting.lock();
            rewriting.state.running = false;
            rewriting.state.error = ended.err().map(|error| causes::chain(&error));
        });
    }
}

/// The text of the file.
pub fn read(path: &Path) -> Result<String, ReloadError> {
    let failed = |error| ReloadError::Read(path.into(), error);
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_FILE {
        return Err(ReloadError::TooLarge(path.into()));
    }
    std::fs::read_to_string(path).map_err(failed)
}
