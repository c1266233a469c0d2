//! Finds an endpoint that answers, after the one in use was given up: all are asked at the same time, so that members that are
//! cut off cost no time of their own. An election of etcd is waited for. If no majority of the endpoints is reached, nobody
//! elects anything: requests fail at once until that changes, so that clients go on at another server.

use super::{
    endpoints::{Endpoint, Endpoints},
    error::EtcdError,
    search_state::Known,
    shared::kv,
};
use etcd_client::{Error, GetOptions};
use futures::{StreamExt, stream::FuturesUnordered};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How long one search takes at most. A member that is reached reports its status at once.
const SEARCH: Duration = Duration::from_millis(1500);
/// How long members may take to be reached: if it is no majority then, an election is not waited for.
const REACH: Duration = Duration::from_millis(700);
/// Between two requests to a member that has no leader.
const PAUSE: Duration = Duration::from_millis(50);
/// How long others may take when one answers that was given up lately.
const OTHERS: Duration = Duration::from_millis(200);
/// How long one that did not answer is the last to be used.
const SILENT: Duration = Duration::from_secs(3);

/// What an endpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// It reads linearizably: it has a leader that has a majority.
    Answers,
    /// It is there, and has no leader.
    Reached,
    Silent,
}

impl Endpoints {
    /// Waits until the endpoint in use is one that answered. Fails if no majority is reached.
    pub(super) async fn find(&self) -> Result<(), EtcdError> {
        let search = &self.search;
        if !search.is_due()? {
            return Ok(());
        }
        let lost = match *search.known.lock() {
            Known::Lost { reached, of, .. } => Some(EtcdError::NoMajority { reached, of }),
            _ => None,
        };
        let _running = match (search.running.try_lock(), lost) {
            (Ok(running), _) => running,
            // One request tries it for all others.
            (Err(_), Some(lost)) => return Err(lost),
            (Err(_), None) => search.running.lock().await,
        };
        // Another request may have searched meanwhile.
        if !search.is_due()? {
            return Ok(());
        }
        let all = self.all();
        let of = all.len();
        // Two endpoints need not be all members.
        let enough = if of > 2 { of / 2 + 1 } else { 1 };
        let reached = self.ask(&all, enough).await;
        let known = match reached >= enough {
            true => Known::Answers,
            false => Known::Lost { at: Instant::now(), reached, of },
        };
        let before = std::mem::replace(&mut *search.known.lock(), known);
        match (before, known) {
            (_, Known::Lost { .. }) => {
                if !matches!(before, Known::Lost { .. }) {
                    tracing::error!(reached, members = of, "no majority of etcd is reached: requests fail");
                }
                Err(EtcdError::NoMajority { reached, of })
            }
            (Known::Lost { .. }, _) => {
                tracing::info!("a majority of etcd is reached again");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Asks all endpoints at the same time, and uses the first that answers; one that was given up lately only if no other
    /// does. Returns how many were reached, or all if one answers. Ends early if it is not enough of them.
    async fn ask(&self, all: &[Arc<Endpoint>], enough: usize) -> usize {
        let reached = &AtomicUsize::new(0);
        let asked = all.iter().map(|endpoint| async move { (endpoint, self.probe(endpoint, reached).await) });
        let mut probes: FuturesUnordered<_> = asked.collect();
        let (mut given_up, mut until) = (None, tokio::time::Instant::now() + REACH);
        loop {
            let next = match tokio::time::timeout_at(until, probes.next()).await {
                Ok(next) => next,
                Err(_) if given_up.is_none() && reached.load(Relaxed) >= enough => probes.next().await,
                Err(_) => None,
            };
            let Some((endpoint, probe)) = next else { break };
            match probe {
                Probe::Answers if !endpoint.is_avoided() => {
                    self.prefer(endpoint);
                    return all.len();
                }
                Probe::Answers => {
                    given_up = Some(endpoint);
                    until = tokio::time::Instant::now() + OTHERS;
                }
                Probe::Reached => {}
                // The next attempt is made on a connection of its own.
                Probe::Silent => self.avoid(endpoint, SILENT, "it does not answer".to_owned()),
            }
        }
        match given_up {
            Some(endpoint) => {
                self.prefer(endpoint);
                all.len()
            }
            None => reached.load(Relaxed),
        }
    }

    /// Asks one endpoint until it answers, and counts it once it is reached.
    async fn probe(&self, endpoint: &Endpoint, count: &AtomicUsize) -> Probe {
        let key = format!("{}/", self.options.prefix);
        let mut reached = false;
        let mut reach = |is_answer: bool| {
            if is_answer && !std::mem::replace(&mut reached, true) {
                count.fetch_add(1, Relaxed);
            }
            reached
        };
        let asked = async {
            loop {
                if let Ok(client) = endpoint.client(&self.options).await {
                    if !reach(false) {
                        let status = client.clone().status().await;
                        reach(status.map_or_else(|error| is_answer(&error), |_| true));
                    }
                    let options = GetOptions::new().with_count_only();
                    match kv(&client).get(key.as_str(), Some(options)).await {
                        Ok(_) => return,
                        Err(error) => {
                            reach(is_answer(&error));
                        }
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match tokio::time::timeout(SEARCH, asked).await {
            Ok(()) => Probe::Answers,
            Err(_) if reached => Probe::Reached,
            Err(_) => Probe::Silent,
        }
    }
}

/// Whether an error is what a member says, not what happened to the connection.
fn is_answer(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().starts_with("etcdserver:"))
}
