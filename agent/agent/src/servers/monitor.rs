//! Finds out whether a server is alive: one connection to it is kept open. The kernel reports at once when the process is gone and
//! within seconds when the machine is (keepalive); a server that is in use is also asked whether it is ready, every few seconds,
//! because one that hangs or has lost its store keeps its connections.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rand::RngExt;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

use super::dial::{Keepalive, PATIENCE};
use super::table::Health;
use super::{Address, Servers, ServersError};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(3);
/// How often a server in use is asked, and how much later for each node: every agent asks.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_PER_NODE: Duration = Duration::from_millis(1);
/// How often the others are asked: often enough for servers to keep the connection.
const STANDBY_INTERVAL: Duration = Duration::from_secs(60);
/// A server that says it is not ready is asked again after this time.
const CONFIRM: Duration = Duration::from_secs(1);
/// Between attempts to reach a dead server; the pause doubles.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// Longest answer that is read.
const MAX_BODY: usize = 64 * 1024;

/// Watches over a server until it is dropped.
pub(super) async fn run(servers: Servers, server: Address) {
    let mut pause = FIRST_RETRY;
    loop {
        let (begun, mut answered) = (Instant::now(), false);
        let ended = watch_over(&servers, &server, &mut answered).await;
        if answered {
            pause = FIRST_RETRY;
        }
        match ended {
            // As idle connections are. If the server is gone, the next connection says so.
            Err(ServersError::Closed { .. }) if answered && begun.elapsed() > CONFIRM => continue,
            Err(ServersError::Closed { .. }) if answered => {}
            Err(error) => {
                tracing::debug!(%server, error = %coracle_cli::causes::chain(&error), "API server does not answer");
                let untrusted = matches!(error, ServersError::Untrusted { .. });
                servers.report(&server, if untrusted { Health::Untrusted } else { Health::Dead });
            }
            Ok(never) => match never {},
        }
        let check = servers.0.table.lock().check(&server);
        let checked = async {
            check.notified().await;
            // Not at once: many connections may fail together.
            tokio::time::sleep(FIRST_RETRY).await;
        };
        tokio::select! {
            () = tokio::time::sleep(jitter(pause)) => {}
            () = checked => {}
        }
        if !answered {
            pause = (pause * 2).min(MAX_RETRY);
        }
    }
}

/// Keeps a connection open and asks over it, until the server closes it or does not answer. Says whether it has answered.
async fn watch_over(
    servers: &Servers,
    server: &Address,
    answered: &mut bool,
) -> Result<Infallible, ServersError> {
    let mut session = Session::open(servers, server).await?;
    let mut was_ready = true;
    loop {
        let mut ready = session.is_ready().await?;
        *answered = true;
        if was_ready && !ready {
            // If this one has lost its store, the others may have, too.
            servers.0.table.lock().check_others(server);
            tokio::time::sleep(CONFIRM).await;
            ready = session.is_ready().await?;
        }
        was_ready = ready;
        servers.report(server, if ready { Health::Live } else { Health::Unready });
        let (check, interval) = {
            let table = servers.0.table.lock();
            let asked_often = table.is_current(server) || !ready;
            (table.check(server), if asked_often { interval(servers.nodes()) } else { STANDBY_INTERVAL })
        };
        tokio::select! {
            _ = &mut session.connection => return Err(ServersError::Closed { server: server.clone() }),
            () = check.notified() => {}
            () = tokio::time::sleep(jitter(interval)) => {}
        }
    }
}

fn interval(nodes: usize) -> Duration {
    INTERVAL + INTERVAL_PER_NODE.saturating_mul(u32::try_from(nodes).unwrap_or(u32::MAX)).min(INTERVAL)
}

/// Up to a fifth more or less.
fn jitter(time: Duration) -> Duration {
    time.mul_f64(rand::rng().random_range(0.8..1.2))
}

struct Session {
    server: Address,
    sender: SendRequest<Empty<Bytes>>,
    connection: AbortOnDropHandle<()>,
}

impl Session {
    async fn open(servers: &Servers, server: &Address) -> Result<Self, ServersError> {
        let closed = || ServersError::Closed { server: server.clone() };
        let dialer = servers.0.dialer.load_full().ok_or_else(closed)?;
        let transport = dialer.dial((server, servers.source(server)), Some(PATIENCE), Keepalive::On).await?;
        let (sender, connection) = handshake(TokioIo::new(transport)).await.map_err(|_| closed())?;
        // How it ends does not matter: the next request fails, or the next connection.
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        Ok(Self { server: server.clone(), sender, connection })
    }

    /// Whether the server says that it is ready. One that does not tell this agent counts as ready.
    async fn is_ready(&mut self) -> Result<bool, ServersError> {
        let late = |_| ServersError::TimedOut { server: self.server.clone(), patience: ANSWER };
        let closed = |_| ServersError::Closed { server: self.server.clone() };
        let request = Request::get("/readyz").header(http::header::HOST, self.server.to_string());
        let request = request.body(Empty::new()).map_err(|error| ServersError::Unreachable {
            server: self.server.clone(),
            source: error.into(),
        })?;
        let sender = &mut self.sender;
        let ask = async {
            sender.ready().await?;
            let response = sender.send_request(request).await?;
            let status = response.status();
            // Read to its end, so that the connection can be used again.
            let body = http_body_util::Limited::new(response.into_body(), MAX_BODY);
            let whole = http_body_util::BodyExt::collect(body).await.is_ok();
            Ok::<_, hyper::Error>((status, whole))
        };
        let (status, whole) = tokio::time::timeout(ANSWER, ask).await.map_err(late)?.map_err(closed)?;
        if !whole {
            self.connection.abort();
        }
        Ok(status < StatusCode::INTERNAL_SERVER_ERROR)
    }
}
