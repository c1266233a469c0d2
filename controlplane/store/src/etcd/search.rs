//! Finds an endpoint that answers, after the one in use was given up or has not answered for a while: all are asked at the same
//! time, so that members that are cut off cost no time of their own. An election of etcd is waited for, and the endpoint in use
//! stays in use if it answers afterwards. If no majority of the endpoints is reached, nobody elects anything: requests fail at
//! once until that changes, so that clients go on at another server.

use super::{
    endpoints::{AVOID, Endpoint, Endpoints},
    error::EtcdError,
    no_quorum::NoQuorum,
    reason,
    search_state::Known,
    shared::kv,
};
use etcd_client::{GetOptions, ResponseHeader};
use futures::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How long one round through the endpoints takes at most. A member that is reached reports its status at once.
const ROUND: Duration = Duration::from_millis(1500);
/// How long members may take to be reached: if it is no majority then, an election is not waited for.
const REACH: Duration = Duration::from_millis(700);
/// How long an election is waited for.
const ELECTION: Duration = Duration::from_secs(4);
/// Between two requests to a member that has no leader.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a better one may take when one answers: that in use, or one that was not given up lately.
const OTHERS: Duration = Duration::from_millis(300);
/// How long one that did not answer is the last to be used.
const SILENT: Duration = Duration::from_secs(3);
/// What is said of one that does not even fail.
const NO_ANSWER: &str = "it does not answer";

/// An endpoint that is asked.
struct Asked<'a> {
    endpoint: &'a Arc<Endpoint>,
    /// It has said something.
    reached: AtomicBool,
    /// Why it was not reached, as far as that is known.
    why: Mutex<Option<String>>,
}

impl Asked<'_> {
    fn is_reached(&self) -> bool {
        self.reached.load(Relaxed)
    }

    fn why(&self) -> String {
        self.why.lock().clone().unwrap_or_else(|| NO_ANSWER.to_owned())
    }

    /// Notes an error: of the member, or of the way to it.
    fn failed(&self, error: &EtcdError) {
        let why = match error {
            _ if error.is_answer() => return self.reached.store(true, Relaxed),
            EtcdError::Client(error) => reason::of_client(error),
            other => other.to_string(),
        };
        *self.why.lock() = Some(why);
    }
}

impl Endpoints {
    /// Waits until the endpoint in use is one that answered. Fails if no majority is reached, or has no leader.
    pub(super) async fn find(&self) -> Result<(), EtcdError> {
        let search = &self.search;
        if !search.is_due()? {
            return Ok(());
        }
        let _running = match (search.running.try_lock(), search.lost()) {
            (Ok(running), _) => running,
            // One request tries it for all others.
            (Err(_), Some(lost)) => return Err(EtcdError::NoQuorum(lost)),
            (Err(_), None) => search.running.lock().await,
        };
        // Another request may have searched meanwhile.
        if !search.is_due()? {
            return Ok(());
        }
        let begun = Instant::now();
        let found = loop {
            match self.ask(&self.all()).await {
                Err(why) if why.is_election() && begun.elapsed() < ELECTION => {}
                found => break found,
            }
        };
        let known = match &found {
            Ok(()) => Known::Answers,
            Err(why) => Known::Lost { at: Instant::now(), why: why.clone() },
        };
        let before = std::mem::replace(&mut *search.known.lock(), known);
        match (&before, &found) {
            (Known::Lost { .. }, Err(_)) => {}
            (_, Err(why)) => tracing::error!(%why, "no quorum of etcd: requests fail"),
            (Known::Lost { .. }, Ok(())) => tracing::info!("a majority of etcd is reached again"),
            (_, Ok(())) => {}
        }
        found.map_err(EtcdError::NoQuorum)
    }

    /// Asks all endpoints at the same time and uses one that answers: that in use if it is not far behind the others, one that
    /// was given up lately only if no other answers. Ends early if a minority was reached.
    async fn ask(&self, all: &[Arc<Endpoint>]) -> Result<(), NoQuorum> {
        let used = self.search.is_doubtful().then(|| self.current().ok()).flatten();
        let is_used =
            |endpoint: &Arc<Endpoint>| used.as_ref().is_some_and(|used| Arc::ptr_eq(used, endpoint));
        let asked: Vec<_> = all
            .iter()
            .map(|endpoint| Asked { endpoint, reached: AtomicBool::new(false), why: Mutex::default() })
            .collect();
        let reached = || asked.iter().filter(|one| one.is_reached()).count();
        let mut probes: FuturesUnordered<_> =
            asked.iter().map(|one| async move { (one, self.probe(one).await) }).collect();
        let mut until = tokio::time::Instant::now() + REACH;
        let mut best: Option<&Asked<'_>> = None;
        loop {
            let next = match tokio::time::timeout_at(until, probes.next()).await {
                Ok(next) => next,
                // Two endpoints need not be all members.
                Err(_) if best.is_none() && (all.len() < 3 || reached() * 2 >= all.len()) => {
                    probes.next().await
                }
                Err(_) => None,
            };
            let Some((one, answers)) = next else { break };
            if !answers {
                continue;
            }
            if is_used(one.endpoint) || (used.is_none() && !one.endpoint.is_avoided()) {
                best = Some(one);
                break;
            }
            if best.is_none() {
                until = tokio::time::Instant::now() + OTHERS;
            }
            if best.is_none_or(|best| best.endpoint.is_avoided()) {
                best = Some(one);
            }
        }
        if let Some(best) = best {
            if let Some(left) = asked.iter().find(|one| is_used(one.endpoint) && !is_used(best.endpoint)) {
                let why = if left.is_reached() { "it has no leader".to_owned() } else { left.why() };
                self.avoid(left.endpoint, AVOID, why);
            }
            self.prefer(best.endpoint);
            return Ok(());
        }
        let silent = || asked.iter().filter(|one| !one.is_reached());
        // The next attempt is made on a connection of its own.
        silent().for_each(|one| self.avoid(one.endpoint, SILENT, one.why()));
        let why: Vec<_> = silent().map(|one| format!("{}: {}", one.endpoint.url, one.why())).collect();
        Err(NoQuorum { reached: reached(), of: all.len(), why: why.join("; ").into() })
    }

    /// Asks one endpoint until it answers a linearizable read: then it has a leader that has a majority.
    async fn probe(&self, one: &Asked<'_>) -> bool {
        let key = format!("{}/", self.options.prefix);
        let asked = async {
            loop {
                match self.ask_once(one, &key).await {
                    Ok(()) => return,
                    Err(error) => one.failed(&error),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(ROUND, asked).await.is_ok()
    }

    async fn ask_once(&self, one: &Asked<'_>, key: &str) -> Result<(), EtcdError> {
        let client = one.endpoint.client(&self.options).await?;
        if !one.is_reached() {
            client.clone().status().await?;
            one.reached.store(true, Relaxed);
        }
        match kv(&client).get(key, Some(GetOptions::new().with_count_only())).await {
            Ok(answer) => {
                self.note_term(answer.header().map_or(0, ResponseHeader::raft_term));
                Ok(())
            }
            Err(error) => {
                let error = EtcdError::Client(error);
                // Who may not read it is answered, too.
                if error.is_answer() && !error.is_transient() { Ok(()) } else { Err(error) }
            }
        }
    }
}
