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
        atomic::{AtomicBool, Ordering::Relaxed},
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
        let reached = self.ask(&all).await;
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
    /// does. Returns how many were reached, or all if one answers. Ends early if a minority was reached.
    async fn ask(&self, all: &[Arc<Endpoint>]) -> usize {
        let members: Vec<_> = all.iter().map(|endpoint| (endpoint, AtomicBool::new(false))).collect();
        let reached = || members.iter().filter(|(_, reached)| reached.load(Relaxed)).count();
        let asked = members.iter().map(|(endpoint, reached)| async move {
            let probe = self.probe(endpoint, reached).await;
            (*endpoint, probe)
        });
        let mut probes: FuturesUnordered<_> = asked.collect();
        let (mut given_up, mut until) = (None, tokio::time::Instant::now() + REACH);
        loop {
            let next = match tokio::time::timeout_at(until, probes.next()).await {
                Ok(next) => next,
                // Two endpoints need not be all members.
                Err(_) if given_up.is_none() && (all.len() < 3 || reached() * 2 >= all.len()) => {
                    probes.next().await
                }
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
                Probe::Reached | Probe::Silent => {}
            }
        }
        if let Some(endpoint) = given_up {
            self.prefer(endpoint);
            return all.len();
        }
        // The next attempt is made on a connection of its own.
        for (endpoint, _) in members.iter().filter(|(_, reached)| !reached.load(Relaxed)) {
            self.avoid(endpoint, SILENT, "it does not answer".to_owned());
        }
        reached()
    }

    /// Asks one endpoint until it answers, and notes that it was reached.
    async fn probe(&self, endpoint: &Endpoint, reached: &AtomicBool) -> Probe {
        let key = format!("{}/", self.options.prefix);
        let asked = async {
            loop {
                if let Ok(client) = endpoint.client(&self.options).await {
                    if !reached.load(Relaxed) {
                        let status = client.clone().status().await;
                        reached.store(status.map_or_else(|error| is_answer(&error), |_| true), Relaxed);
                    }
                    let options = GetOptions::new().with_count_only();
                    match kv(&client).get(key.as_str(), Some(options)).await {
                        Ok(_) => return,
                        Err(error) => {
                            reached.fetch_or(is_answer(&error), Relaxed);
                        }
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match tokio::time::timeout(SEARCH, asked).await {
            Ok(()) => Probe::Answers,
            Err(_) if reached.load(Relaxed) => Probe::Reached,
            Err(_) => Probe::Silent,
        }
    }
}

/// Whether an error is what a member says, not what happened to the connection.
fn is_answer(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().starts_with("etcdserver:"))
}
