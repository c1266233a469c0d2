//! Plugins that register themselves: each has a socket in the directory of registrations, or below it, and is unregistered when
//! the socket goes.

use coracle_cli::causes;
use coracle_csi::pluginregistration::PluginInfo;
use coracle_csi::{CallError, Driver, Registrar};
use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::drivers::{Drivers, Registered};
use super::limits::{self, Periods};
use super::names::{self, Paths, is_driver_name};
use super::node_object::{NodeObject, NodeObjectError};
use crate::claims;
use crate::devices::registration::{self, PluginRegistration};

/// Types of plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Storage,
    Devices,
    Claims,
}

impl Kind {
    fn of(kind: &str) -> Option<Self> {
        match kind {
            "CSIPlugin" => Some(Self::Storage),
            "DevicePlugin" => Some(Self::Devices),
            "DRAPlugin" => Some(Self::Claims),
            _ => None,
        }
    }

    /// The version that this node needs, and whether a plugin has it.
    fn version(self, versions: &[String]) -> (&'static str, bool) {
        match self {
            Self::Storage => {
                let major = |version: &String| version.trim_start_matches('v').split('.').next() == Some("1");
                ("1.x", versions.iter().any(major))
            }
            Self::Devices => ("v1beta1", versions.iter().any(|version| version == "v1beta1")),
            Self::Claims => ("v1.DRAPlugin", versions.iter().any(|version| version == "v1.DRAPlugin")),
        }
    }
}

/// A plugin that is registered: type, name and socket.
type Known = Option<(Kind, String, PathBuf)>;
/// Sockets come with a few changes at once.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Changes that do not end are waited for no longer than this.
const MAX_DEBOUNCE: Duration = Duration::from_secs(1);
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// More sockets than this in the directory are ignored.
const MAX_PLUGINS: usize = 256;
/// More directories than this, and what is deeper in them, are ignored.
const MAX_DIRECTORIES: usize = 256;
const MAX_DEPTH: usize = 8;
/// After this many entries the rest is ignored.
const MAX_ENTRIES: usize = 10_000;

/// Why a plugin is not used; it is told.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// It did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A plugin for something else.
    #[error("plugin {name:?} has type {kind:?}; this node supports CSIPlugin, DevicePlugin and DRAPlugin")]
    Type {
        /// Name of the plugin.
        name: String,
        /// What it is.
        kind: String,
    },
    /// A name that cannot be part of a path.
    #[error("driver name {name:?} is invalid: letters and digits, with '-' and '.' between, at most 63")]
    Name {
        /// Name of the driver.
        name: String,
    },
    /// Another version of the API.
    #[error("driver {name:?} supports versions {versions:?}; this node needs {needed}")]
    Version {
        /// Name of the driver.
        name: String,
        /// What it supports.
        versions: Vec<String>,
        /// What this node needs.
        needed: &'static str,
    },
    /// A socket that is not an absolute path.
    #[error("driver {name:?} has endpoint {endpoint:?}, which is not an absolute path")]
    Endpoint {
        /// Name of the driver.
        name: String,
        /// Its socket.
        endpoint: String,
    },
    /// It does not know this node.
    #[error("driver {name:?} answered NodeGetInfo without a node id")]
    NodeId {
        /// Name of the driver.
        name: String,
    },
    /// A device plugin that cannot be used.
    #[error(transparent)]
    DevicePlugin(#[from] registration::RegistrationError),
    /// The cluster does not know it.
    #[error(transparent)]
    NodeObject(#[from] NodeObjectError),
}

/// Identifies a socket: one that was made again is another.
type Stamp = (u64, i64, i64);

struct Plugin {
    stamp: Stamp,
    /// What it is, once it is registered.
    driver: Arc<Mutex<Known>>,
    task: tokio::task::AbortHandle,
}

/// Follows the directory of registrations.
#[derive(Clone)]
pub struct Registration {
    paths: Paths,
    drivers: Drivers,
    object: NodeObject,
    device_plugins: PluginRegistration,
    claim_drivers: claims::Drivers,
    /// Outlives a task that is started again.
    plugins: Arc<Mutex<BTreeMap<PathBuf, Plugin>>>,
}

impl Registration {
    /// Registers storage drivers into `drivers` and into the node's objects, and others where they belong.
    pub fn new(
        paths: Paths,
        (drivers, object): (Drivers, NodeObject),
        device_plugins: PluginRegistration,
        claim_drivers: claims::Drivers,
    ) -> Self {
        Self { paths, drivers, object, device_plugins, claim_drivers, plugins: Arc::default() }
    }

    /// Follows the directory for ever.
    pub async fn run(self) {
        let dir = self.paths.registry();
        loop {
            match watch(&self.paths, &dir) {
                Ok(mut changes) => {
                    self.apply(&dir);
                    changed(&mut changes).await;
                }
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), error = %causes::chain(&error), "plugin registrations not watched, will retry");
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
            }
        }
    }

    /// Starts to register what came, and unregisters what went.
    fn apply(&self, dir: &Path) {
        let found = sockets(dir);
        let mut plugins = self.plugins.lock();
        let gone: Vec<PathBuf> = plugins
            .iter()
            .filter(|(path, plugin)| found.get(*path) != Some(&plugin.stamp))
            .map(|(path, _)| path.clone())
            .collect();
        for path in gone {
            if let Some(plugin) = plugins.remove(&path) {
                plugin.task.abort();
                match plugin.driver.lock().take() {
                    Some((Kind::Storage, name, socket)) => {
                        self.unregister(&name, &socket, found.contains_key(&path));
                    }
                    Some((Kind::Claims, name, socket)) => {
                        self.claim_drivers.remove(&name, &socket);
                        tracing::info!(driver = name, "DRA driver unregistered");
                    }
                    // Followed by its own connection.
                    Some((Kind::Devices, ..)) | None => {}
                }
            }
        }
        for (path, stamp) in found {
            plugins.entry(path.clone()).or_insert_with(|| {
                let driver = Arc::new(Mutex::new(None));
                let task = tokio::spawn(self.clone().register(path, driver.clone()));
                Plugin { stamp, driver, task: task.abort_handle() }
            });
        }
    }

    /// Removes a driver. One whose socket was made again stays in the CSINode: it registers in a moment.
    fn unregister(&self, name: &str, socket: &Path, restarts: bool) {
        if !self.drivers.remove(name, socket) {
            return;
        }
        tracing::info!(driver = name, "storage driver unregistered");
        if restarts {
            return;
        }
        let (this, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            let mut delay = FIRST_RETRY;
            while this.drivers.get(&name).is_none() {
                match this.object.remove(&name).await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::warn!(driver = name, error = %causes::chain(&error), "driver not removed from the CSINode, will retry")
                    }
                }
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LAST_RETRY);
            }
        });
    }

    /// Tries until the plugin is registered, then follows how many volumes fit; aborted when its socket goes.
    async fn register(self, socket: PathBuf, driver: Arc<Mutex<Known>>) {
        let registrar = Registrar::new(&socket);
        let mut delay = FIRST_RETRY;
        loop {
            let error = match self.try_register(&registrar, &socket, &driver).await {
                Ok(()) => match registrar.notify(None).await {
                    Ok(()) => break,
                    Err(error) => RegistrationError::Call(error),
                },
                Err(error) => {
                    let text = causes::chain(&error).to_string();
                    // It may not listen yet; it asks again by making its socket anew.
                    let _ = registrar.notify(Some(text)).await;
                    error
                }
            };
            tracing::warn!(socket = %socket.display(), error = %causes::chain(&error), "plugin not registered, will retry");
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(LAST_RETRY);
        }
        let known = driver.lock().clone();
        if let Some((Kind::Storage, name, _)) = known {
            let mut periods = Periods::new(self.object.client(), &name);
            loop {
                periods.passed().await;
                limits::update(&name, &self.drivers, &self.object).await;
            }
        }
    }

    async fn try_register(
        &self,
        registrar: &Registrar,
        socket: &Path,
        registered: &Mutex<Known>,
    ) -> Result<(), RegistrationError> {
        let info = registrar.info().await?;
        let (kind, endpoint) = check(&info, socket)?;
        match kind {
            Kind::Storage => self.register_storage(&info, &endpoint).await?,
            Kind::Devices => {
                let options = coracle_devices::Plugin::new(&endpoint).options().await?;
                self.device_plugins.add(&info.name, endpoint.clone(), Some(options)).await?;
            }
            Kind::Claims => {
                self.claim_drivers.insert(&info.name, &endpoint);
                tracing::info!(driver = info.name, "DRA driver registered");
            }
        }
        *registered.lock() = Some((kind, info.name, endpoint));
        Ok(())
    }

    async fn register_storage(&self, info: &PluginInfo, endpoint: &Path) -> Result<(), RegistrationError> {
        let driver = Driver::new(endpoint).observed(self.drivers.metrics().observer(&info.name));
        let node = driver.info().await?;
        if node.node_id.is_empty() {
            return Err(RegistrationError::NodeId { name: info.name.clone() });
        }
        let capabilities = driver.capabilities().await?;
        self.object.add(&info.name, &node).await?;
        self.drivers.insert(&info.name, Registered { driver, capabilities });
        tracing::info!(driver = info.name, node_id = node.node_id, "storage driver registered");
        Ok(())
    }
}

/// Checks what a plugin says of itself: its type, and the socket of its API.
fn check(info: &PluginInfo, socket: &Path) -> Result<(Kind, PathBuf), RegistrationError> {
    let name = info.name.clone();
    let Some(kind) = Kind::of(&info.r#type) else {
        return Err(RegistrationError::Type { name, kind: info.r#type.clone() });
    };
    // The name of a device plugin is that of its resource, which is checked with its devices.
    if kind != Kind::Devices && !is_driver_name(&name) {
        return Err(RegistrationError::Name { name });
    }
    let (needed, is_supported) = kind.version(&info.supported_versions);
    if !is_supported {
        return Err(RegistrationError::Version { name, versions: info.supported_versions.clone(), needed });
    }
    let endpoint = info.endpoint.strip_prefix("unix://").unwrap_or(&info.endpoint);
    match endpoint {
        "" => Ok((kind, socket.to_owned())),
        path if Path::new(path).is_absolute() => Ok((kind, path.into())),
        _ => Err(RegistrationError::Endpoint { name, endpoint: info.endpoint.clone() }),
    }
}

fn watch(paths: &Paths, dir: &Path) -> io::Result<impl futures::Stream + Unpin + use<>> {
    for dir in [dir.to_owned(), paths.plugins(), paths.pods()] {
        names::ensure_dir(&dir)?;
    }
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM | WatchMask::DELETE;
    let mask = mask | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF;
    inotify.watches().add(dir, mask)?;
    // Each before it is read: what comes later is an event. One that has gone meanwhile is one, too.
    visit(dir, &mut |path, metadata| {
        if metadata.is_dir() {
            let _ = inotify.watches().add(path, mask);
        }
    });
    inotify.into_event_stream([0; 1024])
}

/// Waits for a change and for those that come with it.
async fn changed(changes: &mut (impl futures::Stream + Unpin)) {
    changes.next().await;
    // A plugin may change files of its own all the time.
    let latest = tokio::time::Instant::now() + MAX_DEBOUNCE;
    while tokio::time::Instant::now() < latest
        && tokio::time::timeout(DEBOUNCE, changes.next()).await.is_ok_and(|event| event.is_some())
    {}
}

/// The sockets below a directory.
fn sockets(dir: &Path) -> BTreeMap<PathBuf, Stamp> {
    let mut found = BTreeMap::new();
    visit(dir, &mut |path, metadata| {
        if metadata.file_type().is_socket() && found.len() < MAX_PLUGINS {
            found.insert(path.to_owned(), (metadata.ino(), metadata.ctime(), metadata.ctime_nsec()));
        }
    });
    found
}

/// Calls `see` with everything below a directory, with each directory before its content. Hidden entries are not finished, and
/// links are not followed.
fn visit(dir: &Path, see: &mut impl FnMut(&Path, &std::fs::Metadata)) {
    let mut pending = vec![(dir.to_owned(), 0)];
    let (mut directories, mut left) = (0, MAX_ENTRIES);
    while let Some((dir, depth)) = pending.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if left == 0 {
                return;
            }
            left -= 1;
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let path = entry.path();
            let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
            let is_entered = metadata.is_dir() && depth < MAX_DEPTH && directories < MAX_DIRECTORIES;
            if metadata.is_dir() && !is_entered {
                continue;
            }
            see(&path, &metadata);
            if is_entered {
                directories += 1;
                pending.push((path, depth + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn info(kind: &str, name: &str, endpoint: &str, version: &str) -> PluginInfo {
        let supported_versions = vec![version.to_owned()];
        PluginInfo { r#type: kind.into(), name: name.into(), endpoint: endpoint.into(), supported_versions }
    }

    #[test]
    fn what_a_plugin_may_say() {
        let socket = Path::new("/r/d-reg.sock");
        for (info, want) in [
            (info("CSIPlugin", "d", "/p/csi.sock", "1.0.0"), Ok("/p/csi.sock")),
            (info("CSIPlugin", "d", "unix:///p/csi.sock", "v1.3.0"), Ok("/p/csi.sock")),
            (info("CSIPlugin", "d", "", "1.0.0"), Ok("/r/d-reg.sock")),
            (info("CSIPlugin", "d", "csi.sock", "1.0.0"), Err("not an absolute path")),
            (info("CSIPlugin", "../d", "/p/csi.sock", "1.0.0"), Err("\"../d\" is invalid")),
            (info("CSIPlugin", "d", "/p/csi.sock", "0.3.0"), Err("[\"0.3.0\"]; this node needs 1.x")),
            (info("CSIPlugin", "d", "/p/csi.sock", "10.0"), Err("this node needs 1.x")),
            (info("DevicePlugin", "v.example/gpu", "/p/x", "v1beta1"), Ok("/p/x")),
            (info("DevicePlugin", "v.example/gpu", "/p/x", "v1alpha"), Err("this node needs v1beta1")),
            (info("DRAPlugin", "gpu.example", "/p/dra.sock", "v1.DRAPlugin"), Ok("/p/dra.sock")),
            (
                info("DRAPlugin", "gpu.example", "/p/dra.sock", "v1alpha4.Node"),
                Err("this node needs v1.DRAPlugin"),
            ),
            (info("Other", "x", "/p/x", "1.0.0"), Err("\"x\" has type \"Other\"")),
        ] {
            match (check(&info, socket), want) {
                (Ok((_, got)), Ok(want)) => assert_eq!(got, Path::new(want)),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{got:?} {want:?}"),
            }
        }
    }

    #[test]
    fn only_finished_sockets_are_plugins() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        let bind = |name: &str| std::os::unix::net::UnixListener::bind(temp.path().join(name)).unwrap();
        let (_a, _b) = (bind("d-reg.sock"), bind(".hidden.sock"));
        let found = sockets(temp.path());
        assert_eq!(found.keys().collect::<Vec<_>>(), [&temp.path().join("d-reg.sock")]);
        std::fs::remove_file(temp.path().join("d-reg.sock")).unwrap();
        let _c = bind("d-reg.sock");
        assert_ne!(sockets(temp.path()), found, "made again, it is another");
    }

    #[test]
    fn plugins_may_have_directories_of_their_own() {
        let temp = tempfile::tempdir().unwrap();
        let deep = temp.path().join("a/b");
        for dir in [&deep, &temp.path().join(".c"), &temp.path().join("1/2/3/4/5/6/7/8/9")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::os::unix::fs::symlink(&deep, temp.path().join("link")).unwrap();
        let bind = |path: &str| std::os::unix::net::UnixListener::bind(temp.path().join(path)).unwrap();
        let _bound = ["a/x.sock", "a/b/y.sock", ".c/z.sock", "1/2/3/4/5/6/7/8/9/w.sock"].map(bind);
        let found: Vec<PathBuf> = sockets(temp.path()).into_keys().collect();
        assert_eq!(found, [deep.join("y.sock"), temp.path().join("a/x.sock")]);
    }

    #[test]
    fn a_directory_with_too_many_entries_is_not_read_to_its_end() {
        let temp = tempfile::tempdir().unwrap();
        for number in 0..MAX_ENTRIES + 10 {
            std::fs::write(temp.path().join(number.to_string()), "").unwrap();
        }
        let mut seen = 0;
        visit(temp.path(), &mut |_, _| seen += 1);
        assert_eq!(seen, MAX_ENTRIES);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_do_not_end_are_not_waited_for() {
        let often = |()| async {
            tokio::time::sleep(DEBOUNCE / 5).await;
            Some(((), ()))
        };
        let mut changes = Box::pin(futures::stream::unfold((), often));
        let waited = tokio::time::timeout(2 * MAX_DEBOUNCE, changed(&mut changes)).await;
        assert!(waited.is_ok());
    }

    #[tokio::test]
    async fn a_socket_in_a_directory_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let dir = paths.registry();
        std::fs::create_dir_all(dir.join("old")).unwrap();
        let mut changes = watch(&paths, &dir).unwrap();
        let _old = std::os::unix::net::UnixListener::bind(dir.join("old/a.sock")).unwrap();
        let noticed = tokio::time::timeout(Duration::from_secs(60), changes.next()).await;
        assert!(noticed.is_ok_and(|event| event.is_some()));
    }
}
