//! The endpoints of etcd. One is used for everything. When it does not answer it is given up: its watches end, and the next
//! endpoint takes over.

use super::{error::EtcdError, options::EtcdOptions, search_state::Search};
use etcd_client::Client;
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// An endpoint that was given up is not used again for this long while there are others.
pub(super) const AVOID: Duration = Duration::from_secs(3);
/// How long the first endpoint may take to report its state before it is used again.
const STATE: Duration = Duration::from_secs(1);
/// How long a health check reports why an endpoint was given up.
const RECENT: Duration = Duration::from_secs(30);

/// One endpoint.
pub(super) struct Endpoint {
    pub url: String,
    /// The client and how often the endpoint had been given up when it was made.
    client: tokio::sync::Mutex<Option<(u64, Client)>>,
    /// How often it was given up.
    given_up: watch::Sender<u64>,
    /// How often watches were told to move.
    left: watch::Sender<u64>,
    avoided: Mutex<Option<Avoided>>,
}

struct Avoided {
    since: Instant,
    until: Instant,
    why: String,
}

impl Endpoint {
    pub fn new(url: &str) -> Arc<Self> {
        Arc::new(Self {
            url: url.to_owned(),
            client: tokio::sync::Mutex::default(),
            given_up: watch::Sender::new(0),
            left: watch::Sender::new(0),
            avoided: Mutex::default(),
        })
    }

    pub(super) fn is_avoided(&self) -> bool {
        self.avoided.lock().as_ref().is_some_and(|avoided| avoided.until > Instant::now())
    }

    /// How often it was given up.
    pub(super) fn generation(&self) -> u64 {
        *self.given_up.borrow()
    }

    /// Changes when the endpoint is given up.
    pub fn given_up(&self) -> watch::Receiver<u64> {
        self.given_up.subscribe()
    }

    /// Changes when watches have to move to the endpoint in use.
    pub fn left(&self) -> watch::Receiver<u64> {
        self.left.subscribe()
    }

    /// Ends what is under way on it, and its connection.
    fn give_up(&self) {
        self.given_up.send_modify(|count| *count += 1);
        self.leave();
    }

    fn leave(&self) {
        self.left.send_modify(|count| *count += 1);
    }

    /// A client of this endpoint. The files of the connection are read again after it was given up.
    pub async fn client(&self, options: &EtcdOptions) -> Result<Client, EtcdError> {
        let generation = self.generation();
        let mut slot = self.client.lock().await;
        if let Some((made, client)) = &*slot
            && *made == generation
        {
            return Ok(client.clone());
        }
        let client = Client::connect([&self.url], Some(options.connect_options()?)).await?;
        *slot = Some((generation, client.clone()));
        Ok(client)
    }
}

/// All endpoints.
pub(super) struct Endpoints {
    pub options: EtcdOptions,
    state: Mutex<State>,
    pub(super) search: Search,
    /// The newest term of etcd's leaders in any answer; 0 before the first.
    term: watch::Sender<u64>,
}

struct State {
    all: Vec<Arc<Endpoint>>,
    current: usize,
}

impl Endpoints {
    pub fn new(options: EtcdOptions) -> Self {
        let all = options.endpoints.iter().map(|url| Endpoint::new(url)).collect();
        Self {
            options,
            state: Mutex::new(State { all, current: 0 }),
            search: Search::default(),
            term: watch::Sender::new(0),
        }
    }

    pub fn all(&self) -> Vec<Arc<Endpoint>> {
        self.state.lock().all.clone()
    }

    pub(super) fn count(&self) -> usize {
        self.state.lock().all.len()
    }

    /// The endpoint in use.
    pub fn current(&self) -> Result<Arc<Endpoint>, EtcdError> {
        let state = self.state.lock();
        state.all.get(state.current).cloned().ok_or(EtcdError::NoEndpoint)
    }

    /// Why endpoints were given up lately.
    pub fn avoided(&self) -> Vec<(String, String)> {
        let reason = |endpoint: &Arc<Endpoint>| {
            let avoided = endpoint.avoided.lock();
            let avoided = avoided.as_ref().filter(|avoided| avoided.since.elapsed() < RECENT);
            avoided.map(|avoided| (endpoint.url.clone(), avoided.why.clone()))
        };
        self.state.lock().all.iter().filter_map(reason).collect()
    }

    /// Replaces the endpoints; those that stay keep their connections.
    pub fn replace(&self, urls: &[String]) {
        let mut state = self.state.lock();
        if urls.is_empty() || state.all.iter().map(|one| &one.url).eq(urls) {
            return;
        }
        let used = state.all.get(state.current).map(|one| one.url.clone());
        let known = std::mem::take(&mut state.all);
        let kept = |url: &String| known.iter().find(|one| one.url == *url).cloned();
        state.all = urls.iter().map(|url| kept(url).unwrap_or_else(|| Endpoint::new(url))).collect();
        state.current = state.all.iter().position(|one| Some(&one.url) == used.as_ref()).unwrap_or(0);
        tracing::info!(endpoints = urls.join(","), "endpoints of etcd have changed");
        // Nobody may stay connected to a member that has left.
        for gone in known.iter().filter(|one| !urls.contains(&one.url)) {
            gone.give_up();
        }
    }

    /// Uses another endpoint than this one for a while, and ends the watches on it.
    pub fn avoid(&self, endpoint: &Arc<Endpoint>, time: Duration, why: String) {
        let known = endpoint.is_avoided();
        endpoint.give_up();
        if !known {
            tracing::warn!(endpoint = %endpoint.url, why, "endpoint of etcd given up");
        }
        let since = Instant::now();
        *endpoint.avoided.lock() = Some(Avoided { since, until: since + time, why });
        let mut state = self.state.lock();
        let (count, current) = (state.all.len(), state.current);
        if state.all.get(current).is_some_and(|one| Arc::ptr_eq(one, endpoint)) {
            let others = (1..count).map(|step| (current + step) % count);
            let well = others.clone().find(|other| !state.all[*other].is_avoided());
            state.current = well.or(others.clone().next()).unwrap_or(current);
            if count > 1 {
                self.search.begin();
            }
        }
    }

    /// The endpoint may not answer any more: if it is the one in use, that is found out before the next request.
    pub(super) fn doubt(&self, endpoint: &Arc<Endpoint>) {
        let state = self.state.lock();
        let used = state.all.get(state.current).is_some_and(|one| Arc::ptr_eq(one, endpoint));
        if used && state.all.len() > 1 {
            self.search.doubt();
        }
    }

    /// Changes when there is another leader.
    pub(super) fn term(&self) -> watch::Receiver<u64> {
        self.term.subscribe()
    }

    /// Notes the term of an answer. A leader that was replaced answers nothing that was sent to it.
    pub(super) fn note_term(&self, term: u64) {
        self.term.send_if_modified(|known| {
            let before = std::mem::replace(known, term.max(*known));
            before != 0 && *known != before
        });
    }

    /// Uses an endpoint, which has answered.
    pub(super) fn prefer(&self, endpoint: &Arc<Endpoint>) {
        self.allow(endpoint);
        let mut state = self.state.lock();
        let place = state.all.iter().position(|one| Arc::ptr_eq(one, endpoint));
        state.current = place.unwrap_or(state.current);
    }

    /// The endpoint may be used again.
    pub fn allow(&self, endpoint: &Endpoint) {
        endpoint.avoided.lock().take();
    }

    /// Goes back to the first endpoint, if it is well. The watches move, too: a watch on an endpoint that nobody asks would be the
    /// last to notice that it does not answer any more.
    pub async fn prefer_first(&self) {
        let first = {
            let state = self.state.lock();
            let Some(first) = state.all.first().filter(|first| state.current != 0 && !first.is_avoided())
            else {
                return;
            };
            first.clone()
        };
        let asked = async { Ok::<_, EtcdError>(first.client(&self.options).await?.status().await?) };
        if let Ok(Ok(status)) = tokio::time::timeout(STATE, asked).await
            && status.leader() != 0
            && !status.is_learner()
        {
            let mut state = self.state.lock();
            let used = state.all.get(state.current).cloned();
            if state.all.first().is_some_and(|one| Arc::ptr_eq(one, &first)) {
                self.allow(&first);
                state.current = 0;
                for used in used.into_iter().filter(|used| !Arc::ptr_eq(used, &first)) {
                    used.leave();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn endpoints(urls: &[&str]) -> Endpoints {
        let endpoints = urls.iter().map(|url| format!("http://{url}")).collect();
        Endpoints::new(EtcdOptions { endpoints, ..EtcdOptions::default() })
    }

    fn current(endpoints: &Endpoints) -> String {
        endpoints.current().unwrap().url.clone()
    }

    #[test]
    fn the_next_that_is_well_takes_over_and_watches_end() {
        let all = endpoints(&["a:1", "b:1", "c:1"]);
        let (a, b) = (all.all()[0].clone(), all.all()[1].clone());
        let mut watch = a.given_up();
        all.avoid(&b, AVOID, "down".to_owned());
        assert_eq!(current(&all), "http://a:1");
        all.avoid(&a, AVOID, "down".to_owned());
        assert_eq!(current(&all), "http://c:1");
        assert!(watch.has_changed().unwrap() && *watch.borrow_and_update() == 1);
        assert_eq!(all.avoided().len(), 2);
        all.avoid(&all.all()[2].clone(), AVOID, "down".to_owned());
        // None is well: each gets its turn.
        assert_eq!(current(&all), "http://a:1");
    }

    #[test]
    fn replaced_endpoints_keep_the_connection_in_use() {
        let all = endpoints(&["a:1", "b:1"]);
        all.avoid(&all.all()[0].clone(), AVOID, "down".to_owned());
        let (a, b) = (all.all()[0].clone(), all.all()[1].clone());
        let gone = a.given_up();
        all.replace(&["http://c:1".to_owned(), "http://b:1".to_owned()]);
        assert_eq!(current(&all), "http://b:1");
        assert!(Arc::ptr_eq(&all.all()[1], &b) && gone.has_changed().unwrap());
        all.replace(&[]);
        assert_eq!(all.all().len(), 2, "an empty list is an answer that cannot be");
    }
}
