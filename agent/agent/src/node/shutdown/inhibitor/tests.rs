#![allow(clippy::unwrap_used)]
use super::*;
use crate::lifecycle::table::PodTable;
use crate::status::report::Reporter;
use crate::trace::NodeTrace;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use tokio::sync::Notify;
use zbus::object_server::SignalEmitter;
use zbus::{Guid, interface};

/// Locks that were taken: the other ends of their descriptors.
type Locks = Arc<Mutex<Vec<UnixStream>>>;

struct Login {
    locks: Locks,
    drop_ins: PathBuf,
}

#[interface(name = "org.freedesktop.login1.Manager")]
impl Login {
    fn inhibit(&self, what: &str, who: &str, _why: &str, mode: &str) -> OwnedFd {
        assert_eq!([what, who, mode], ["shutdown", "coracle-agent", "delay"]);
        let (own, held) = UnixStream::pair().unwrap();
        self.locks.lock().push(own);
        OwnedFd::from(std::os::fd::OwnedFd::from(held))
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> u64 {
        let text = std::fs::read_to_string(self.drop_ins.join("99-coracle.conf")).unwrap_or_default();
        let seconds = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec="));
        seconds.map_or(5, |seconds| seconds.parse().unwrap()) * 1_000_000
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

struct Systemd;

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    fn kill_unit(&self, unit: &str, whom: &str, signal: i32) {
        assert_eq!((unit, whom, signal), ("systemd-logind.service", "all", 1));
    }
}

fn inhibitor() -> Inhibitor {
    let service = tower::service_fn(|_: Request<Body>| async {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
    });
    let client = kube::Client::new(service, "default");
    let shutdown = NodeShutdown {
        node: "n".into(),
        facts: Default::default(),
        changed: Arc::new(Notify::new()),
        pods: PodTable::default(),
        reporter: Reporter::new(client, NodeTrace::new(coracle_trace::Recorder::OFF)),
    };
    let seconds = Duration::from_secs;
    Inhibitor {
        shutdown: Arc::new(shutdown),
        periods: Periods::ordinary_and_critical(seconds(30), seconds(10)),
    }
}

async fn eventually(what: &str, check: impl Fn() -> bool) {
    for _ in 0..500 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not {what}");
}

/// Whether the descriptor of a lock was closed.
fn is_released(lock: &mut UnixStream) -> bool {
    lock.set_nonblocking(true).unwrap();
    matches!(lock.read(&mut [0]), Ok(0))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_waits_for_pods_and_a_shutdown_may_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (locks, drop_ins) = (Locks::default(), dir.path().join("logind.conf.d"));
    let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
    let login = Login { locks: locks.clone(), drop_ins: drop_ins.clone() };
    let server = zbus::connection::Builder::unix_stream(theirs).server(Guid::generate()).unwrap().p2p();
    let server = server.serve_at(LOGIN[1], login).unwrap().serve_at(SYSTEMD[1], Systemd).unwrap();
    let client = zbus::connection::Builder::unix_stream(ours).p2p();
    let (server, client) = tokio::try_join!(server.build(), client.build()).unwrap();

    let inhibitor = inhibitor();
    let facts = inhibitor.shutdown.facts.clone();
    let place = drop_ins.clone();
    let task = tokio::spawn(async move { inhibitor.follow(&client, &place).await.unwrap_err() });
    eventually("locked", || locks.lock().len() == 1).await;
    let text = std::fs::read_to_string(drop_ins.join("99-coracle.conf")).unwrap();
    assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=32\n"), "{text}");
    assert!(!facts.read().shutting_down && !is_released(&mut locks.lock()[0]));

    let emitter = SignalEmitter::new(&server, LOGIN[1]).unwrap();
    Login::prepare_for_shutdown(&emitter, true).await.unwrap();
    eventually("released", || is_released(&mut locks.lock()[0])).await;
    assert!(facts.read().shutting_down);

    Login::prepare_for_shutdown(&emitter, false).await.unwrap();
    eventually("locked again", || locks.lock().len() == 2).await;
    assert!(!facts.read().shutting_down && !is_released(&mut locks.lock()[1]));

    drop((emitter, server));
    assert!(matches!(task.await.unwrap(), InhibitError::Ended));
    assert!(is_released(&mut locks.lock()[1]));
}
