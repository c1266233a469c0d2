//! `coracle/v1/why`, which the proxy answers itself: root causes in the JSON of `coracle why -o json`, found with the rights of its user.
//!
//! An analysis reads lists of the cluster, so few run at a time, and an answer serves all who ask the same within seconds. One that
//! nobody waits for any more is given up.

use super::forward::{mark_data, plain};
use bytes::Bytes;
use coracle_apiserver::respond::{Body, JSON, full};
use coracle_why::kube_cluster::KubeCluster;
use coracle_why::question::Question;
use coracle_why::report::Report;
use coracle_why::target::Problem;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// The path that is not forwarded.
pub(super) const PATH: &str = "/coracle/v1/why";

/// Analyses at a time.
const AT_A_TIME: usize = 2;
/// Questions that may wait for their turn.
const IN_LINE: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(20);
/// Of one request: an API that does not answer must not cost the whole analysis.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer is good.
const KEPT: Duration = Duration::from_secs(5);
/// Answers that are kept.
const MOST_KEPT: usize = 200;

/// JSON, or why there is none.
type Answer = Result<Bytes, (StatusCode, String)>;
/// Locked while the analysis runs.
type Slot = Arc<tokio::sync::Mutex<Option<Kept>>>;

struct Kept {
    answer: Answer,
    since: Instant,
}

/// Analyses that run, wait, or ended just now.
pub(super) struct Analyses {
    client: kube::Client,
    /// Where no namespace is named.
    namespace: String,
    running: Arc<Semaphore>,
    line: Semaphore,
    slots: Mutex<HashMap<Question, Slot>>,
}

impl Analyses {
    pub(super) fn new(client: kube::Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            running: Arc::new(Semaphore::new(AT_A_TIME)),
            line: Semaphore::new(IN_LINE),
            slots: Mutex::default(),
        }
    }

    /// Answers a request with these parameters.
    pub(super) async fn respond(&self, method: &Method, query: &str) -> Response<Body> {
        let answer = if *method == Method::GET {
            match Question::from_query(query) {
                Ok(question) => self.ask(question).await,
                Err(problem) => Err((status(&problem), problem.to_string())),
            }
        } else {
            Err((StatusCode::METHOD_NOT_ALLOWED, "only GET is answered".to_owned()))
        };
        let mut response = match answer {
            Ok(json) => {
                let mut response = Response::new(full(json));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
                response
            }
            Err((status, text)) => plain(status, &text),
        };
        mark_data(response.headers_mut());
        response
    }

    /// The answer to a question: one that is kept, or that of an analysis as soon as it has its turn.
    async fn ask(&self, question: Question) -> Answer {
        let slot = self.slot(&question);
        if let Ok(kept) = slot.try_lock()
            && let Some(answer) = good(&kept, Instant::now())
        {
            return answer;
        }
        let busy = || (StatusCode::TOO_MANY_REQUESTS, "too many analyses wait for their turn".to_owned());
        let place = self.line.try_acquire().map_err(|_| busy())?;
        let mut kept = slot.lock().await;
        // Somebody else may have asked the same meanwhile.
        if let Some(answer) = good(&kept, Instant::now()) {
            return answer;
        }
        let turn = Arc::clone(&self.running).acquire_owned().await.map_err(|_| busy())?;
        drop(place);
        let answer = self.analyse(question, turn).await;
        *kept = Some(Kept { answer: answer.clone(), since: Instant::now() });
        answer
    }

    /// Where the answer to a question is. Answers that are not good any more are forgotten.
    fn slot(&self, question: &Question) -> Slot {
        let now = Instant::now();
        let mut slots = self.slots.lock();
        slots.retain(|_, slot| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|kept| good(&kept, now).is_some())
        });
        if slots.len() >= MOST_KEPT {
            slots.clear();
        }
        slots.entry(question.clone()).or_default().clone()
    }

    /// Runs an analysis on a thread of its own: that of a large cluster computes for a while, and forwarding must not wait for it.
    async fn analyse(&self, question: Question, turn: OwnedSemaphorePermit) -> Answer {
        let cluster = KubeCluster::new(self.client.clone(), REQUEST_TIMEOUT);
        let (namespace, runtime) = (self.namespace.clone(), Handle::current());
        let (mut sender, receiver) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let answer = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = sender.closed() => None,
                    result = timeout(TIMEOUT, question.ask(&cluster, &namespace)) => Some(answer(result)),
                }
            });
            if let Some(answer) = answer {
                // Whoever asked may be gone.
                let _ = sender.send(answer);
            }
        });
        let failed = |_| Err((StatusCode::INTERNAL_SERVER_ERROR, "the analysis failed".to_owned()));
        receiver.await.unwrap_or_else(failed)
    }
}

/// An answer that can be given again.
fn good(kept: &Option<Kept>, now: Instant) -> Option<Answer> {
    let kept = kept.as_ref().filter(|kept| now.saturating_duration_since(kept.since) < KEPT)?;
    Some(kept.answer.clone())
}

fn answer(result: Result<Result<Report, Problem>, Elapsed>) -> Answer {
    match result {
        Ok(Ok(report)) => Ok(report.json().into()),
        Ok(Err(problem)) => Err((status(&problem), problem.to_string())),
        Err(_) => Err((StatusCode::GATEWAY_TIMEOUT, format!("the analysis did not end within {TIMEOUT:?}"))),
    }
}

fn status(problem: &Problem) -> StatusCode {
    match problem {
        Problem::Usage(_) => StatusCode::BAD_REQUEST,
        Problem::UnknownKind { .. } | Problem::Missing { .. } | Problem::NamespaceMissing { .. } => {
            StatusCode::NOT_FOUND
        }
        Problem::Unreadable { .. } => StatusCode::BAD_GATEWAY,
    }
}

#[cfg(test)]
mod tests;
