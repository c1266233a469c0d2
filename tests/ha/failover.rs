//! A client that knows all servers and goes on with the next one when one fails, as client libraries with several addresses do.
//! It repeats what it may repeat: reads, and writes that no server has been sent.

use crate::client::{Connection, Target};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_millis(500);
/// How long a server may take for an answer before another one is asked: longer than an election of etcd, which a server waits for.
const ANSWER: Duration = Duration::from_millis(2500);
/// How long all servers are tried.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Between two rounds through all servers.
const PAUSE: Duration = Duration::from_millis(20);

/// What a server said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Which one, counted from 0.
    pub server: usize,
    /// The status.
    pub status: StatusCode,
    /// All of it.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// No server has the request.
    NotSent,
    /// This server had the request and did not answer it, or with an error of its own: nobody knows what became of it.
    Unknown(usize),
}

/// The client; it sends one request at a time.
pub struct Failover {
    targets: Arc<Vec<Target>>,
    at: usize,
    connection: Option<Connection>,
}

impl Failover {
    /// One that begins with a server.
    pub fn new(targets: Arc<Vec<Target>>, first: usize) -> Self {
        let at = first % targets.len();
        Self { targets, at, connection: None }
    }

    /// The server that is asked next.
    pub fn server(&self) -> usize {
        self.at
    }

    /// Leaves the server; the next one is asked from now on.
    pub fn leave(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.targets.len();
    }

    /// Reads, from whichever server answers first.
    pub async fn read(&mut self, path: &str) -> Result<Answer, Unanswered> {
        let begun = Instant::now();
        let mut failure = Unanswered::NotSent;
        while begun.elapsed() < GIVE_UP {
            match self.once("GET", path, "application/json", Bytes::new()).await {
                Ok(answer) if answers(answer.status) => return Ok(answer),
                Ok(answer) => failure = Unanswered::Unknown(answer.server),
                Err(failed) => failure = failed,
            }
            self.leave();
            tokio::time::sleep(PAUSE).await;
        }
        Err(failure)
    }

    /// Writes, once.
    pub async fn write(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Answer, Unanswered> {
        let begun = Instant::now();
        while begun.elapsed() < GIVE_UP {
            match self.once(method, path, content_type, body.clone()).await {
                Ok(answer) if answers(answer.status) => return Ok(answer),
                // Refused by flow control: nothing happened.
                Ok(answer) if answer.status == StatusCode::TOO_MANY_REQUESTS => {}
                Err(Unanswered::NotSent) => {}
                Ok(Answer { server, .. }) | Err(Unanswered::Unknown(server)) => {
                    self.leave();
                    return Err(Unanswered::Unknown(server));
                }
            }
            self.leave();
            tokio::time::sleep(PAUSE).await;
        }
        Err(Unanswered::NotSent)
    }

    /// A connection of its own to the server that is asked next.
    pub async fn connect(&mut self) -> Result<Connection, Unanswered> {
        match timeout(CONNECT, self.targets[self.at].connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            _ => Err(Unanswered::NotSent),
        }
    }

    async fn once(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Answer, Unanswered> {
        let server = self.at;
        let kept = match self.connection.take() {
            Some(mut kept) => kept.is_ready().await.then_some(kept),
            None => None,
        };
        let mut open = match kept {
            Some(kept) => kept,
            None => self.connect().await?,
        };
        let exchange = async {
            let response = open.open_as(method, path, content_type, body).await?;
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok(Answer { server, status, body })
        };
        match timeout(ANSWER, exchange).await {
            Ok(Ok(answer)) => {
                self.connection = Some(open);
                Ok(answer)
            }
            _ => Err(Unanswered::Unknown(server)),
        }
    }
}

/// Whether a status tells what became of a request.
fn answers(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}
