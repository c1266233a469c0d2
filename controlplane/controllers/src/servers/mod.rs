//! The API servers of a cluster. Each keeps an identity Lease, and each sees to it that the Endpoints and EndpointSlices of the
//! Service `default/kubernetes` list the servers that run: one that stops leaves at once, one that dies within ten seconds.

// The Lease of one server.
pub mod lease;
// The kinds that are read and written.
mod objects;
// Who runs, judged by the Leases.
mod peers;
// The Endpoints and EndpointSlices.
mod published;
#[cfg(test)]
mod tests;

use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use coracle_client::identity_lease::NAMESPACE;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_fields::Schema as _;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use lease::Identity;
use objects::Objects;
use peers::{PeerState, Peers};
use published::Step;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often a server renews its Lease: two renewals may fail before others take it for dead.
const RENEW: Duration = Duration::from_secs(2);
/// How soon a server tries again what failed.
const RETRY: Duration = Duration::from_millis(500);
/// How long a server rests between turns: who writes something else again and again is not answered as fast.
const REST: Duration = Duration::from_millis(200);
/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
// A renewal that was due and failed is noticed before others' Leases seem to expire.
const _: () = assert!(RENEW.as_millis() + RETRY.as_millis() + ANSWER.as_millis() < lease::HOLDS.as_millis());

/// How this server stops.
#[derive(Clone, Default)]
pub struct Shutdown {
    /// Cancelled when it stops.
    pub stop: CancellationToken,
    /// Whether a new process takes over the address: then the server stays published.
    pub restart: Arc<AtomicBool>,
}

/// Publishes this server and keeps what is published about all of them right, until the server ends. `shared` says whether
/// other servers may be on the same store. It is published, or a failure logged, when this returns.
pub async fn announce(
    client: &Client,
    own: Identity,
    shared: bool,
    supervisor: &Supervisor,
    shutdown: &Shutdown,
) -> JoinSet<()> {
    let parts = (client.clone(), own, shutdown.clone());
    let start = move || {
        let (client, own, shutdown) = parts.clone();
        async move {
            let mut announcement = Announcement::new(client, own, shared);
            announcement.turn().await;
            (announcement, shutdown)
        }
    };
    let mut first = Some(start().await);
    let mut tasks = JoinSet::new();
    tasks.spawn(supervisor.clone().finish("api-servers", move || {
        let (first, again) = (first.take(), start());
        async move {
            let (announcement, shutdown) = match first {
                Some(started) => started,
                None => again.await,
            };
            announcement.keep(shutdown).await;
        }
    }));
    tasks
}

/// What one server says about itself and about the others.
struct Announcement {
    client: Client,
    own: Identity,
    shared: bool,
    leases: Objects,
    endpoints: Objects,
    slices: Objects,
    peers: Peers,
    /// When the own Lease was last written.
    renewed: Option<Instant>,
    /// What went wrong at the last turn; logged when it changes.
    failure: Option<String>,
}

impl Announcement {
    fn new(client: Client, own: Identity, shared: bool) -> Self {
        Self {
            leases: Objects::new(&client, "coordination.k8s.io", "leases"),
            endpoints: Objects::new(&client, "", "endpoints"),
            slices: Objects::new(&client, "discovery.k8s.io", "endpointslices"),
            client,
            own,
            shared,
            peers: Peers::default(),
            renewed: None,
            failure: None,
        }
    }

    /// Takes turns until the server ends, then withdraws it.
    async fn keep(mut self, shutdown: Shutdown) {
        while shutdown.stop.run_until_cancelled(self.wait(Instant::now())).await.is_some() {
            self.turn().await;
        }
        // Without another server nobody reads it, and the next start writes it anew.
        if self.shared
            && !shutdown.restart.load(Ordering::Acquire)
            && let Err(error) = self.withdraw(Instant::now()).await
        {
            tracing::warn!(lease = self.own.name, error = %causes::chain(&error), "server not withdrawn: it stays published until its lease expires");
        }
    }

    /// Returns when there may be something to do: an object that matters changed, or something is due.
    async fn wait(&mut self, now: Instant) {
        let due = self.due(now);
        tokio::time::sleep(REST).await;
        let Self { leases, endpoints, slices, own, shared, .. } = self;
        // The renewals of this server are its own.
        let matters = |lease: &Object| lease::is_identity(lease) && !(*shared && lease.meta.name == own.name);
        tokio::select! {
            () = tokio::time::sleep_until(due.unwrap_or(now).into()), if due.is_some() => {}
            () = leases.changed(matters) => {}
            () = endpoints.changed(published::concerns) => {}
            () = slices.changed(published::concerns) => {}
        }
    }

    /// When the next turn is due though nothing changes.
    fn due(&self, now: Instant) -> Option<Instant> {
        if self.failure.is_some() {
            return Some(now + RETRY);
        }
        let renewal = self.renewed.filter(|_| self.shared).map(|renewed| renewed + RENEW);
        let judgement = self.peers.next(now).filter(|_| self.shared);
        renewal.into_iter().chain(judgement).min()
    }

    /// One turn; a failure is logged and left to the next one.
    async fn turn(&mut self) {
        let failure = self.reconcile(Instant::now()).await.err().map(|error| error.to_string());
        if failure != self.failure
            && let Some(error) = &failure
        {
            tracing::warn!(lease = self.own.name, error, "endpoints of the API servers may be out of date");
        }
        self.failure = failure;
    }

    /// Renews the own Lease when it is due and publishes the servers that run. A server that cannot renew its Lease judges
    /// nobody: the fault may be its own.
    async fn reconcile(&mut self, mut now: Instant) -> Result<(), ApiError> {
        if self.is_due(now) {
            let (due, begun) = (now, Instant::now());
            let renewed = answered(self.renew()).await;
            // What the others wrote meanwhile is seen now, not when the store was asked.
            now += begun.elapsed();
            if let Err(error) = renewed {
                self.peers.extend(now);
                return Err(error);
            }
            self.renewed = Some(due);
        }
        let leases = self.look(now);
        self.collect_garbage(&leases, now).await?;
        self.publish(self.own.address, &self.peer_states(&leases, now)).await
    }

    /// Whether the own Lease is to be written. On a store of its own it is not renewed, only put right.
    fn is_due(&self, now: Instant) -> bool {
        let Some(renewed) = self.renewed else { return true };
        if self.shared {
            return now.saturating_duration_since(renewed) >= RENEW;
        }
        let lease = self.leases.cache.get(NAMESPACE, &self.own.name);
        lease.and_then(|lease| Identity::read(&lease)).as_ref() != Some(&self.own)
    }

    async fn renew(&self) -> Result<(), ApiError> {
        let (kind, name) = (&self.leases.kind, &self.own.name);
        let current = self.leases.cache.get(NAMESPACE, name);
        let lease = self.own.lease(current.as_deref(), self.shared, Timestamp::now());
        // Who waits for the audit log is late, and others take this server for dead.
        let client = self.client.skipping_slow_audit();
        match current {
            None => client.create(kind, NAMESPACE, lease).await?,
            Some(_) => client.update(kind, NAMESPACE, name, "", lease).await?,
        };
        Ok(())
    }

    /// The Leases of the other servers.
    fn look(&mut self, now: Instant) -> Vec<Arc<Object>> {
        let mut leases = lease::all(&self.leases.cache);
        leases.retain(|lease| lease.meta.name != self.own.name);
        self.peers.look(&leases, now);
        leases
    }

    /// How the server with this Lease stands. On a store of its own any other Lease is of this server's past.
    fn state(&self, lease: &Object, now: Instant) -> PeerState {
        match self.shared {
            true => self.peers.state(&lease.meta.name, now),
            false => PeerState::Garbage,
        }
    }

    fn peer_states(&self, leases: &[Arc<Object>], now: Instant) -> Vec<(Identity, PeerState)> {
        let servers =
            leases.iter().filter_map(|lease| Some((Identity::read(lease)?, self.state(lease, now))));
        servers.collect()
    }

    /// Deletes Leases that have not been renewed for long; one that was renewed since is kept.
    async fn collect_garbage(&self, leases: &[Arc<Object>], now: Instant) -> Result<(), ApiError> {
        for lease in leases.iter().filter(|lease| self.state(lease, now) == PeerState::Garbage) {
            let (name, version) = (&lease.meta.name, lease.revision.to_string());
            self.remove(&self.leases.kind, NAMESPACE, (name, &lease.meta.uid, &version)).await?;
            tracing::info!(lease = name, "lease of an API server deleted: not renewed for long");
        }
        Ok(())
    }

    /// Publishes the servers that run. An empty list is never published: a client that fails has no use for it.
    async fn publish(
        &self,
        own: Option<SocketAddr>,
        others: &[(Identity, PeerState)],
    ) -> Result<(), ApiError> {
        let endpoints = self.endpoints.cache.get(published::NAMESPACE, published::NAME);
        let before = published::published(endpoints.as_deref());
        let servers = published::plan_addresses(own, others, &before);
        if servers.is_empty() {
            return Ok(());
        }
        let mut changed = false;
        for step in published::plan_slices(&servers, &self.slices.cache.list(Some(published::NAMESPACE))) {
            changed = true;
            self.take(&self.slices.kind, step).await?;
        }
        if let Some(step) = published::plan_endpoints(&servers, endpoints.as_deref()) {
            changed = true;
            self.take(&self.endpoints.kind, step).await?;
        }
        if changed {
            tracing::info!(?servers, "API servers published");
        }
        Ok(())
    }

    /// Takes one step. Who was overtaken by another server looks again at the next turn.
    async fn take(&self, kind: &Kind, step: Step) -> Result<(), ApiError> {
        let namespace = published::NAMESPACE;
        let outcome = match step {
            Step::Create(object) => answered(self.client.create(kind, namespace, object)).await,
            Step::Update(object) => {
                let name = PartialObjectMetadata::of(&object).metadata().name().text().to_owned();
                answered(self.client.update(kind, namespace, &name, "", object)).await
            }
            Step::Remove(name, uid, version) => {
                return self.remove(kind, namespace, (&name, &uid, &version)).await;
            }
        };
        settled(outcome)
    }

    /// Deletes an object of exactly this uid and version.
    async fn remove(
        &self,
        kind: &Kind,
        namespace: &str,
        (name, uid, version): (&str, &str, &str),
    ) -> Result<(), ApiError> {
        let only = Preconditions { uid: Some(uid.into()), resource_version: Some(version.into()) };
        let options = DeleteOptions { preconditions: Some(only), ..DeleteOptions::default() };
        settled(answered(self.client.delete(kind, namespace, name, options)).await)
    }

    /// Withdraws this server: deletes its Lease, then its address.
    async fn withdraw(&mut self, now: Instant) -> Result<(), ApiError> {
        let options = DeleteOptions::default();
        let deletion = self.client.delete(&self.leases.kind, NAMESPACE, &self.own.name, options);
        settled(answered(deletion).await)?;
        let leases = self.look(now);
        self.publish(None, &self.peer_states(&leases, now)).await
    }
}

/// An answer of the store, or why there is none in time.
async fn answered<T>(work: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    let answer = tokio::time::timeout(ANSWER, work).await;
    answer.unwrap_or_else(|_| Err(ApiError::unavailable("the store does not answer")))
}

/// A write conflict is no failure.
fn settled(outcome: Result<Arc<Object>, ApiError>) -> Result<(), ApiError> {
    match outcome {
        Err(error) if !(error.is_already_exists() || error.is_conflict() || error.is_not_found()) => {
            Err(error)
        }
        _ => Ok(()),
    }
}
