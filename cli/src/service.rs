//! Notifications to the service manager, as `sd_notify(3)` describes them: the state of the service, and signs of life for the
//! watchdog. Without a service manager that asks for them, nothing is sent.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use crate::causes;
use crate::health::Checks;

/// Variables that the service manager sets for this process alone: OCI runtimes and etcd would use them too.
pub const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The service manager of this process.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager {
    socket: Option<Arc<(UnixDatagram, SocketAddr)>>,
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names.
    pub fn of_environment() -> Self {
        let [socket, period, process] = VARIABLES.map(std::env::var_os);
        let number = |value: Option<&OsStr>| value.and_then(|value| value.to_str()?.parse::<u64>().ok());
        let is_ours =
            number(process.as_deref()).is_none_or(|process| process == u64::from(std::process::id()));
        let period = number(period.as_deref()).filter(|period| is_ours && *period > 0);
        Self::new(socket.as_deref(), period.map(Duration::from_micros))
    }

    fn new(socket: Option<&OsStr>, watchdog: Option<Duration>) -> Self {
        let open = |name: &OsStr| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok()?,
                _ => SocketAddr::from_pathname(name).ok()?,
            };
            Some(Arc::new((UnixDatagram::unbound().ok()?, address)))
        };
        Self { socket: socket.filter(|name| !name.is_empty()).and_then(open), watchdog }
    }

    /// The service has started.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The process executes a new program in its place, which says that it is ready again.
    pub fn reloading(&self) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call only writes the struct on this stack.
        #[allow(unsafe_code)]
        let known = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) } == 0;
        if known {
            let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
            self.send(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
        }
    }

    /// The service ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Sends signs of life as long as the runtime runs tasks and the program's checks of liveness succeed; returns at once if nobody
    /// wants them.
    pub async fn keep_alive(self, checks: Checks) {
        let Some(period) = self.watchdog.filter(|_| self.socket.is_some()) else { return };
        // Half of the period, as recommended: one that is late does no harm.
        let mut turns = tokio::time::interval(period / 2);
        loop {
            turns.tick().await;
            let failed =
                checks.ask("livez").into_iter().find_map(|check| Some((check.name, check.result.err()?)));
            match failed {
                None => self.send("WATCHDOG=1"),
                Some((check, error)) => {
                    tracing::error!(check, error = %causes::chain(&error), "no sign of life for the service manager: a health check fails");
                }
            }
        }
    }

    /// A service manager that does not read loses messages; the service goes on.
    fn send(&self, message: &str) {
        if let Some((socket, address)) = self.socket.as_deref() {
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::health::{CheckError, Scope};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn sockets_are_paths_or_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("coracle-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (socket, value) in [(by_path, path.into_os_string()), (by_name, format!("@{name}").into())] {
            let manager = ServiceManager::new(Some(&value), None);
            manager.ready();
            assert_eq!(received(&socket), "READY=1");
            manager.reloading();
            let text = received(&socket);
            let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(time.parse::<u64>().unwrap() > 0, "{text}");
        }
        // Nobody listens.
        ServiceManager::new(Some(OsStr::new("/nowhere/notify")), None).ready();
        ServiceManager::default().ready();
    }

    fn count(socket: &UnixDatagram) -> usize {
        socket.set_nonblocking(true).unwrap();
        std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_come_twice_per_period() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::new(Some(path.as_os_str()), Some(Duration::from_secs(60)));
        let alive = tokio::spawn(manager.keep_alive(Checks::default()));
        tokio::time::sleep(Duration::from_secs(119)).await;
        alive.abort();
        assert_eq!(count(&socket), 4, "at 0, 30, 60 and 90 s");
        // Without a period it ends.
        ServiceManager::new(Some(path.as_os_str()), None).keep_alive(Checks::default()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_unhealthy_program_shows_no_sign_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::new(Some(path.as_os_str()), Some(Duration::from_secs(60)));
        let (checks, ails) = (Checks::default(), Arc::new(AtomicBool::new(false)));
        let is_ill = ails.clone();
        checks.add("works", Scope::Live, move || {
            if is_ill.load(Ordering::Relaxed) { Err(CheckError::Dead("it does not".into())) } else { Ok(()) }
        });
        // What only concerns requests is no reason to restart the program.
        checks.add("serves", Scope::Ready, || Err(CheckError::Starting));
        let alive = tokio::spawn(manager.keep_alive(checks));
        for (is_ill, signs) in [(false, 2), (true, 0), (false, 2)] {
            ails.store(is_ill, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(59_990)).await;
            assert_eq!(count(&socket), signs, "{is_ill}");
        }
        alive.abort();
    }
}
