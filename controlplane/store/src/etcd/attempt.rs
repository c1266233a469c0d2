//! Requests to the endpoint in use: one attempt, and reads that are repeated until one answers.

use super::{
    endpoints::{AVOID, Endpoint, Endpoints},
    error::{EtcdError, Standing},
};
use etcd_client::{Client, Error};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch::Receiver;

/// How long etcd may take for an answer if there is no other endpoint to ask.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long an endpoint may take for a small answer before another is asked.
pub(super) const QUICK: Duration = Duration::from_secs(1);
/// The same for a large answer.
pub(super) const LARGE: Duration = Duration::from_secs(5);
/// Reads are repeated for this long: an election of etcd takes less.
const REPEAT: Duration = Duration::from_secs(5);
/// Between two attempts if none of the endpoints is well.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts at a member that has no leader.
const ELECTING: Duration = Duration::from_millis(20);
/// How long a request that the leader before may have had is waited for: if it was replicated, its member answers as soon as it
/// follows the new leader.
const SUPERSEDED: Duration = Duration::from_millis(300);

impl Endpoints {
    /// Asks the endpoint in use once; if that is not known to answer, one that does is looked for first, and also while the
    /// request takes long. What was asked for may have happened if it fails.
    pub async fn attempt<T, F: Future<Output = Result<T, Error>>>(
        &self,
        limit: Duration,
        call: impl FnOnce(Client) -> F,
    ) -> Result<(T, Arc<Endpoint>), EtcdError> {
        self.find().await?;
        let endpoint = self.current()?;
        let generation = endpoint.generation();
        let limit = if self.count() > 1 { limit } else { PATIENCE };
        // Also of a large answer: whether the endpoint answers anything does not depend on its size.
        let long = (limit / 2).min(QUICK);
        let lost = Box::pin(self.lost(&endpoint, (endpoint.given_up(), self.term()), long));
        let asked = async { Ok::<_, EtcdError>(call(endpoint.client(&self.options).await?).await?) };
        let answer = tokio::select! {
            biased;
            answer = tokio::time::timeout(limit, asked) => answer.unwrap_or(Err(EtcdError::Timeout(limit))),
            () = lost => Err(EtcdError::GivenUp(endpoint.url.clone())),
        };
        // Others that asked it at the same time may have given it up already.
        if let Err(error) = &answer
            && endpoint.generation() == generation
        {
            match error.standing() {
                // It may answer others, and this request never.
                Standing::Doubtful if matches!(error, EtcdError::Timeout(_)) && limit > QUICK => {
                    self.avoid(&endpoint, AVOID, error.to_string());
                }
                Standing::Gone => self.avoid(&endpoint, AVOID, error.to_string()),
                Standing::Doubtful => self.doubt(&endpoint),
                Standing::Well => {}
            }
        }
        Ok((answer?, endpoint))
    }

    /// Returns when a request to the endpoint is not answered any more: the endpoint was given up, no majority is reached, or
    /// there is another leader, and the one before had the request. Looks for an endpoint that answers if it takes long.
    async fn lost(
        &self,
        endpoint: &Arc<Endpoint>,
        (mut given_up, mut term): (Receiver<u64>, Receiver<u64>),
        long: Duration,
    ) {
        let superseded = async {
            if term.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(SUPERSEDED).await;
        };
        let searched = async {
            tokio::time::sleep(long).await;
            self.doubt(endpoint);
            if self.find().await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = given_up.changed() => {}
            () = superseded => {}
            () = searched => {}
        }
    }

    /// Reads: asks until there is an answer.
    pub async fn read<T, F: Future<Output = Result<T, Error>>>(
        &self,
        limit: Duration,
        call: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError> {
        let (begun, mut limit) = (Instant::now(), limit);
        loop {
            match self.attempt(limit, &call).await {
                Ok((answer, _)) => return Ok(answer),
                Err(error) if error.is_transient() && begun.elapsed() < REPEAT => {
                    limit = self.pause(&error, limit).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits a moment before what failed is repeated, if that can help. Returns the limit of the next attempt.
    pub async fn pause(&self, error: &EtcdError, limit: Duration) -> Duration {
        if self.current().is_ok_and(|current| current.is_avoided()) {
            tokio::time::sleep(PAUSE).await;
        } else if error.standing() == Standing::Doubtful {
            tokio::time::sleep(ELECTING).await;
        }
        match error {
            // All of them may be slow.
            EtcdError::Timeout(_) => (limit * 2).min(LARGE),
            _ => limit,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::EtcdOptions;

    fn endpoints(urls: &[&str]) -> Endpoints {
        let endpoints = urls.iter().map(|url| format!("http://{url}")).collect();
        Endpoints::new(EtcdOptions { endpoints, ..EtcdOptions::default() })
    }

    #[tokio::test]
    async fn requests_end_with_the_endpoint_that_they_wait_for() {
        // It accepts connections and says nothing.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let all = endpoints(&[&address, "127.0.0.1:1"]);
        let get = || all.attempt(LARGE, |client| async move { client.kv_client().get("a", None).await });
        let (error, _held) = tokio::join!(get(), async {
            // When somebody waits for it.
            let held = silent.accept().await.unwrap();
            all.avoid(&all.all()[0].clone(), AVOID, "down".to_owned());
            held
        });
        assert!(matches!(error, Err(EtcdError::GivenUp(_))), "{:?}", error.err());
        // A connection that is refused is given up at once, and nobody is left.
        let error = all.read(QUICK, |client| async move { client.kv_client().get("a", None).await }).await;
        assert!(matches!(error, Err(EtcdError::NoQuorum(_))), "{:?}", error.err());
    }

    /// A list does not wait for half of its time before the other endpoints are asked.
    #[tokio::test]
    async fn a_silent_endpoint_is_noticed_as_soon_by_large_requests() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let all = endpoints(&[&address, "127.0.0.1:1"]);
        let begun = Instant::now();
        let error = all.attempt(LARGE, |client| async move { client.kv_client().get("a", None).await }).await;
        // The search for another one has ended without success.
        assert!(matches!(error, Err(EtcdError::GivenUp(_))), "{:?}", error.err());
        assert!(begun.elapsed() < LARGE - QUICK, "{:?}", begun.elapsed());
        drop(silent);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_do_not_wait_for_a_leader_that_was_replaced() {
        let all = endpoints(&["127.0.0.1:1"]);
        all.note_term(1);
        let never = |_| std::future::pending::<Result<(), Error>>();
        let begun = tokio::time::Instant::now();
        let (error, ()) = tokio::join!(all.attempt(PATIENCE, never), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            all.note_term(1);
            tokio::time::sleep(Duration::from_secs(1)).await;
            all.note_term(2);
        });
        assert!(matches!(error, Err(EtcdError::GivenUp(_))), "{:?}", error.err());
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_secs(2) + SUPERSEDED && waited < PATIENCE / 2, "{waited:?}");
    }
}
