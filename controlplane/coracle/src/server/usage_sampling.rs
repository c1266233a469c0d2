//! Samples what containers use, for the admission plugin InitialResources, and keeps the history in a file over restarts.

use coracle_apiserver::actions::resource_metrics::ResourceMetrics;
use coracle_apiserver::admission::config::ConfigurationError;
use coracle_apiserver::admission::initial_resources::{NAME, Settings};
use coracle_apiserver::admission::plugins;
use coracle_apiserver::objects::Objects;
use coracle_apiserver::usage_history::{Saved, UsageHistory};
use coracle_cli::private_files;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The file, in the data directory.
const FILE: &str = "usage-history.json";
/// The size of the file is limited; a larger one is not read.
const MOST: u32 = 64 << 20;
/// How often the history is written.
const SAVE_EVERY: Duration = Duration::from_secs(600);

/// A history, and how it is filled.
#[derive(Clone)]
pub(super) struct UsageSampling {
    pub(super) history: Arc<UsageHistory>,
    interval: Duration,
    file: PathBuf,
}

impl UsageSampling {
    /// The history as it was when the server ended; none if the plugin is off.
    pub(super) fn of(
        options: &plugins::Options,
        data_dir: &Path,
    ) -> Result<Option<Self>, ConfigurationError> {
        if !options.enabled.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let settings = Settings::read(&options.configuration)?;
        let sampling = Self {
            history: Arc::new(settings.history()),
            interval: settings.sample_interval(),
            file: data_dir.join(FILE),
        };
        match read(&sampling.file) {
            Ok(Some(saved)) => sampling.history.restore(saved, now()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, file = %sampling.file.display(), "history of usage not read")
            }
        }
        Ok(Some(sampling))
    }

    /// Samples until it is dropped.
    pub(super) async fn run(self, usage: Arc<ResourceMetrics>, objects: Arc<Objects>) {
        let mut saved = Instant::now();
        loop {
            tokio::time::sleep(self.interval.max(Duration::from_secs(1))).await;
            match usage.samples(&objects).await {
                Ok(samples) => self.history.record(samples, now()),
                Err(error) => tracing::warn!(%error, "usage of containers not sampled"),
            }
            if saved.elapsed() >= SAVE_EVERY {
                saved = Instant::now();
                self.save().await;
            }
        }
    }

    async fn save(&self) {
        let (history, file) = (self.history.clone(), self.file.clone());
        let written = tokio::task::spawn_blocking(move || {
            private_files::write(&file, &serde_json::to_vec(&history.saved(MOST as usize))?)
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(%error, file = %self.file.display(), "history of usage not written, will retry");
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What was kept, if anything was.
fn read(path: &Path) -> std::io::Result<Option<Saved>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MOST.into()).read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_apiserver::usage_history::{Entry, Resource, Sample};

    #[tokio::test]
    async fn the_history_outlives_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let options = plugins::Options { enabled: vec![NAME.to_owned()], ..plugins::Options::default() };
        let of = Entry { image: "i".into(), container: "c".into(), namespace: "n".into() };
        let first = UsageSampling::of(&options, dir.path()).unwrap().unwrap();
        first.history.record(vec![Sample { of, milli_cpus: 5, kibibytes: 5 }], now());
        first.save().await;
        let samples = || {
            let again = UsageSampling::of(&options, dir.path()).unwrap().unwrap();
            let found = again.history.estimate(("i", "c"), None, Resource::Cpu, 90, now());
            found.map(|found| found.samples)
        };
        assert_eq!(samples(), Some(1));
        std::fs::write(dir.path().join(FILE), "no JSON").unwrap();
        assert_eq!(samples(), None, "begins anew");
        assert!(UsageSampling::of(&plugins::Options::default(), dir.path()).unwrap().is_none());
    }
}
