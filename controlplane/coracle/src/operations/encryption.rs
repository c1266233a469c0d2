//! Encryption at rest of a running server: which keys are in use, a configuration file that changes, and stored values that are
//! encrypted again. With several servers the configuration is that of the cluster: a file that is changed on one server is given
//! to the others, and what another server has published is written to the file of this one.

use super::distribution::Distribution;
use super::reload_error::{MAX_FILE, ReloadError};
use super::shared_files::SharedFiles;
use coracle_cli::causes;
use coracle_store::encryption::config::Config;
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

/// The configuration in use, and the file.
struct InUse {
    /// The configuration; `None` if the cluster has none.
    text: Option<String>,
    /// What the file had when it was last used or written here. What is different now is an operator's change.
    file: Option<String>,
}

/// Servers that share a configuration.
struct Shared {
    distribution: Distribution,
    files: SharedFiles,
    /// Why the configuration of the cluster is not used.
    problem: Mutex<Option<String>>,
}

/// Encryption at rest of this server.
pub struct Encryption {
    store: Arc<EncryptedStore>,
    /// The store with encrypted values.
    stored: Arc<dyn Store>,
    path: PathBuf,
    in_use: tokio::sync::Mutex<InUse>,
    shared: Option<Shared>,
    problem: Mutex<Option<String>>,
    rewriting: Mutex<Rewriting>,
}

impl Encryption {
    /// With the configuration that was read from a file as `text`.
    pub fn new(store: Arc<EncryptedStore>, stored: Arc<dyn Store>, path: PathBuf, text: String) -> Self {
        let in_use = InUse { text: Some(text.clone()), file: Some(text) };
        let rewriting = Rewriting { state: RewriteState::default(), progress: Arc::default() };
        Self {
            store,
            stored,
            path,
            in_use: tokio::sync::Mutex::new(in_use),
            shared: None,
            problem: Mutex::default(),
            rewriting: Mutex::new(rewriting),
        }
    }

    /// With the configuration of the cluster. `file` is what the file has, which may be out of date if it cannot be written.
    pub(crate) fn shared(
        (store, stored): (Arc<EncryptedStore>, Arc<dyn Store>),
        (text, file): (Option<String>, Option<String>),
        files: SharedFiles,
        distribution: Distribution,
    ) -> Self {
        let path = files.path().to_owned();
        Self {
            in_use: tokio::sync::Mutex::new(InUse { text, file }),
            shared: Some(Shared { distribution, files, problem: Mutex::default() }),
            ..Self::new(store, stored, path, String::new())
        }
    }

    /// The file for backups, if it is not the copy beside the keys.
    pub(crate) fn file_of_its_own(&self) -> Option<&Path> {
        self.shared.is_none().then_some(&*self.path)
    }

    /// The state now.
    pub async fn status(&self) -> Result<EncryptionStatus, StoreError> {
        // Before values are counted: those that a rewrite has ended with are all counted.
        let rewrite = self.rewrite_state();
        let config = self.store.config();
        let shared = self.shared.as_ref().and_then(|shared| shared.problem.lock().clone());
        let problem = self.problem.lock().clone().or(shared);
        if self.shared.is_some() && config.entries().is_empty() {
            return Ok(EncryptionStatus { problem, ..EncryptionStatus::disabled() });
        }
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
            problem,
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
    /// stored value. With several servers, all of them get it; it is refused if it encrypts with a key that they may not have.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let used = self.use_file().await;
        *self.problem.lock() = used.as_ref().err().map(|error: &ReloadError| causes::chain(error));
        if used? {
            self.announce("encryption configuration reloaded");
        }
        Ok(())
    }

    async fn use_file(&self) -> Result<bool, ReloadError> {
        let mut in_use = self.in_use.lock().await;
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read(&path)).await;
        let read = read.map_err(|error| ReloadError::Read(self.path.clone(), std::io::Error::other(error)));
        let text = match read? {
            Err(ReloadError::Read(_, error))
                if error.kind() == std::io::ErrorKind::NotFound && in_use.file.is_none() =>
            {
                return Ok(false);
            }
            text => text?,
        };
        if in_use.file.as_deref() == Some(&*text) {
            return Ok(false);
        }
        let path = || self.path.clone();
        let config = Config::parse(&text).map_err(|why| ReloadError::Format(path(), why))?;
        let checked = self.store.check(&config).await;
        checked.map_err(|why| ReloadError::Keys(path(), Box::new(why)))?;
        if let Some(Shared { distribution, files, .. }) = &self.shared {
            if let Some((resource, provider)) = config.unreadable_by(&self.store.config()) {
                return Err(ReloadError::TooEarly { path: path(), resource, provider });
            }
            let published = distribution.publish(in_use.text.as_deref(), &text).await;
            published.map_err(|why| ReloadError::Distribution(path(), Box::new(why)))?;
            files.keep(Some(&text), false)?;
        }
        self.store.set(config);
        *in_use = InUse { text: Some(text.clone()), file: Some(text) };
        Ok(true)
    }

    /// Uses what another server has published, and writes it to the file of this one.
    async fn adopt(&self, Shared { files, .. }: &Shared, text: Option<String>) -> Result<(), ReloadError> {
        let mut in_use = self.in_use.lock().await;
        if in_use.text == text {
            return Ok(());
        }
        let path = || self.path.clone();
        let config = text.as_deref().map(Config::parse).transpose();
        let config = config.map_err(|why| ReloadError::Format(path(), why))?.unwrap_or_default();
        let checked = self.store.check(&config).await;
        checked.map_err(|why| ReloadError::Keys(path(), Box::new(why)))?;
        self.store.set(config);
        in_use.text.clone_from(&text);
        self.announce("encryption configuration of the cluster has changed");
        files.keep(text.as_deref(), true)?;
        in_use.file = text;
        Ok(())
    }

    fn announce(&self, what: &str) {
        let entries = self.store.config().entries();
        let first: Vec<_> = entries.iter().filter_map(|(_, providers)| providers.first()).collect();
        tracing::info!(path = %self.path.display(), ?first, "{what}");
    }

    /// Uses the file when it changes, and the configuration of the cluster when that does; does not return.
    pub async fn follow(self: Arc<Self>) {
        let cluster = async {
            match &self.shared {
                Some(shared) => self.follow_cluster(shared).await,
                None => std::future::pending().await,
            }
        };
        tokio::join!(self.follow_file(), cluster);
    }

    async fn follow_file(&self) {
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

    async fn follow_cluster(&self, shared: &Shared) {
        let (mut following, mut said) = (shared.distribution.following(), None);
        loop {
            let problem = match following.next().await {
                Ok(text) => self.adopt(shared, text).await.err().map(|error| causes::chain(&error)),
                Err(error) => Some(causes::chain(&error)),
            };
            shared.problem.lock().clone_from(&problem);
            let Some(problem) = problem else {
                said = None;
                continue;
            };
            if said.as_ref() != Some(&problem) {
                tracing::error!(
                    error = problem,
                    "the encryption configuration of the cluster is not used, will retry"
                );
                said = Some(problem);
            }
            following.again();
            tokio::time::sleep(PERIOD).await;
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
