//! Delays a shutdown of the machine through logind until pods have ended, as kubelets do.

use coracle_cli::causes;
use futures::StreamExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zbus::proxy::{Builder, CacheProperties};
use zbus::zvariant::OwnedFd;
use zbus::{Connection, Proxy};

use super::{NodeShutdown, Periods};

const LOGIN: [&str; 3] =
    ["org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"];
const SYSTEMD: [&str; 3] =
    ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
/// Configuration of logind beside its main file.
const DROP_INS: &str = "/etc/systemd/logind.conf.d";
const RETRY: Duration = Duration::from_secs(10);
/// How long to wait for logind to read its configuration again: in steps, each twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const WAITS: u32 = 5;

/// Why shutdowns of the machine are not delayed; tried again.
#[derive(Debug, thiserror::Error)]
pub enum InhibitError {
    /// The bus, logind or systemd failed.
    #[error("D-Bus")]
    Bus(#[from] zbus::Error),
    /// The configuration of logind was not written.
    #[error("writing {}", path.display())]
    DropIn {
        /// The file or its directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Something else limits the delay.
    #[error("InhibitDelayMaxSec of logind stays at {current:?}; a shutdown of this node takes {wanted:?}")]
    Delay {
        /// What pods need.
        wanted: Duration,
        /// What logind grants.
        current: Duration,
    },
    /// The bus is gone.
    #[error("the connection to D-Bus has ended")]
    Ended,
}

/// Holds a delay lock of logind, and ends pods when it says that the machine goes down.
#[derive(Clone)]
pub struct Inhibitor {
    /// Ends pods.
    pub shutdown: Arc<NodeShutdown>,
    /// How long they have.
    pub periods: Periods,
}

impl Inhibitor {
    /// Follows logind for ever.
    pub async fn run(self) {
        loop {
            let followed = async { self.follow(&Connection::system().await?, Path::new(DROP_INS)).await };
            let Err(error) = followed.await;
            tracing::warn!(error = %causes::chain(&error), "shutdowns of the machine are not delayed, will retry");
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn follow(
        &self,
        bus: &Connection,
        drop_ins: &Path,
    ) -> Result<std::convert::Infallible, InhibitError> {
        let login = manager(bus, LOGIN).await?;
        self.extend_delay(bus, &login, drop_ins).await?;
        // Before the lock is taken: whoever sees the lock may shut down the machine.
        let mut shutdowns = login.receive_signal("PrepareForShutdown").await?;
        let mut lock = Some(inhibit(&login).await?);
        tracing::info!("shutdowns of the machine wait for pods");
        while let Some(signal) = shutdowns.next().await {
            let begins: bool = signal.body().deserialize()?;
            if begins {
                self.shutdown.run(&self.periods).await;
                // The machine goes down.
                drop(lock.take());
            } else {
                self.shutdown.cancel();
                lock = Some(inhibit(&login).await?);
            }
        }
        Err(InhibitError::Ended)
    }

    /// Has logind wait as long as pods may take.
    async fn extend_delay(
        &self,
        bus: &Connection,
        login: &Proxy<'_>,
        drop_ins: &Path,
    ) -> Result<(), InhibitError> {
        let wanted = self.periods.longest();
        let mut current = delay(login).await?;
        if current >= wanted {
            return Ok(());
        }
        write_delay(drop_ins, wanted)?;
        let systemd = manager(bus, SYSTEMD).await?;
        systemd.call_method("KillUnit", &("systemd-logind.service", "all", libc::SIGHUP)).await?;
        for wait in 0..WAITS {
            tokio::time::sleep(FIRST_WAIT * 2u32.pow(wait)).await;
            current = delay(login).await?;
            if current >= wanted {
                return Ok(());
            }
        }
        Err(InhibitError::Delay { wanted, current })
    }
}

async fn manager(
    bus: &Connection,
    [name, path, interface]: [&'static str; 3],
) -> zbus::Result<Proxy<'static>> {
    let builder = Builder::new(bus).destination(name)?.path(path)?.interface(interface)?;
    // logind does not tell when its configuration changes.
    builder.cache_properties(CacheProperties::No).build().await
}

/// Takes the lock, which ends when the descriptor is closed.
async fn inhibit(login: &Proxy<'_>) -> zbus::Result<OwnedFd> {
    login.call("Inhibit", &("shutdown", "coracle-agent", "Pods need time to end", "delay")).await
}

async fn delay(login: &Proxy<'_>) -> zbus::Result<Duration> {
    Ok(Duration::from_micros(login.get_property("InhibitDelayMaxUSec").await?))
}

fn write_delay(dir: &Path, delay: Duration) -> Result<(), InhibitError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| InhibitError::DropIn { path, source }
    };
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    let path = dir.join("99-coracle.conf");
    let seconds = delay.as_secs();
    let text =
        format!("# Of coracle-agent, for --shutdown-inhibitor.\n[Login]\nInhibitDelayMaxSec={seconds}\n");
    std::fs::write(&path, text).map_err(failed(&path))
}

#[cfg(test)]
mod tests;
