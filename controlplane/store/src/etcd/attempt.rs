//! Requests to the endpoint in use: one attempt, and reads that are repeated until one answers.

use super::{
    endpoints::{AVOID, Endpoint, Endpoints},
    error::EtcdError,
};
use etcd_client::{Client, Error};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long etcd may take for an answer if there is no other endpoint to ask.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long an endpoint may take for a small answer before another is asked.
pub(super) const QUICK: Duration = Duration::from_secs(1);
/// The same for a large answer.
pub(super) const LARGE: Duration = Duration::from_secs(5);
/// Reads are repeated for this long: an election of etcd takes less.
const REPEAT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

impl Endpoints {
    /// Asks the endpoint in use once; after another one was given up, one that answers is looked for first. If it does not
    /// answer within the limit and there are others, it is given up. What was asked for may have happened then.
    pub async fn attempt<T, F: Future<Output = Result<T, Error>>>(
        &self,
        limit: Duration,
        call: impl FnOnce(Client) -> F,
    ) -> Result<(T, Arc<Endpoint>), EtcdError> {
        self.find().await?;
        let endpoint = self.current()?;
        let generation = endpoint.generation();
        let limit = if self.count() > 1 { limit } else { PATIENCE };
        let asked = async { Ok::<_, EtcdError>(call(endpoint.client(&self.options).await?).await?) };
        let answer = tokio::time::timeout(limit, asked).await.unwrap_or(Err(EtcdError::Timeout(limit)));
        match answer {
            Ok(answer) => Ok((answer, endpoint)),
            Err(error) => {
                // Others that asked it at the same time may have given it up already.
                if error.is_transient() && endpoint.generation() == generation {
                    self.avoid(&endpoint, AVOID, error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Reads: asks one endpoint after the other until one answers.
    pub async fn read<T, F: Future<Output = Result<T, Error>>>(
        &self,
        limit: Duration,
        call: impl Fn(Client) -> F,
    ) -> Result<T, EtcdError> {
        let (begun, mut limit) = (Instant::now(), limit);
        loop {
            match self.attempt(limit, &call).await {
                Ok((answer, _)) => return Ok(answer),
                Err(error) if error.is_transient() && begun.elapsed() < REPEAT => self.pause().await,
                Err(error) => return Err(error),
            }
            // All of them may be slow.
            limit = (limit * 2).min(LARGE);
        }
    }

    /// Waits a moment if the next endpoint has failed, too.
    pub async fn pause(&self) {
        if self.current().is_ok_and(|current| current.is_avoided()) {
            tokio::time::sleep(PAUSE).await;
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

    fn current(endpoints: &Endpoints) -> String {
        endpoints.current().unwrap().url.clone()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_endpoint_that_does_not_answer_costs_its_limit_once() {
        // It accepts connections and says nothing.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let all = endpoints(&[&address, "127.0.0.1:1"]);
        let begun = Instant::now();
        let limit = Duration::from_millis(300);
        let error = all.attempt(limit, |client| async move { client.kv_client().get("a", None).await }).await;
        assert!(matches!(error, Err(EtcdError::Timeout(_))));
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(current(&all), "http://127.0.0.1:1");
    }
}
