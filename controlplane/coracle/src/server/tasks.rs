//! Tasks of the server besides scheduler and controllers: they follow objects, and renew certificates.

use super::authentication_config;
use super::build::Built;
use super::node_role::NodeRole;
use super::open::Opened;
use super::operator_cas::OperatorCaFiles;
use super::renewal::Renewal;
use crate::config::Config;
use coracle_apiserver::aggregation;
use coracle_apiserver::apiservices::ApiServiceController;
use coracle_apiserver::crd::CrdController;
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use std::convert::identity;
use std::future::ready;
use tokio::task::{JoinHandle, JoinSet};

/// The tasks; those that follow objects end when this is dropped.
pub(super) struct Tasks {
    followers: JoinSet<()>,
    renewal: JoinHandle<()>,
    memory: JoinHandle<()>,
}

impl Tasks {
    /// Registers the kinds of CustomResourceDefinitions, and starts what runs before the server answers.
    pub(super) async fn start(config: &Config, opened: &Opened, built: &Built) -> Self {
        let (client, supervisor) = (&built.client, &opened.supervisor);
        let objects = opened.objects.clone();
        let definitions = CrdController::start(objects.clone(), client.clone(), supervisor.clone()).await;
        let mut followers = JoinSet::new();
        let parts = (client.clone(), supervisor.clone());
        let start = move |client, supervisor| CrdController::start(objects, client, supervisor);
        let run = CrdController::run;
        followers.spawn(keep_following("definitions", definitions, parts, start, run));
        let (revocations, maps) =
            (built.tls.revocations.clone(), client.cache(&client.kind("", "configmaps")));
        let follow = move || revocations.clone().follow(maps.clone());
        followers.spawn(supervisor.clone().keep("revocations", follow));
        let renewal = Renewal {
            pki: opened.pki.clone(),
            serving: built.serving.clone(),
            kubeconfig: opened.kubeconfig.clone(),
            url: opened.url.clone(),
            tls: built.tls.clone(),
            nodes: built.nodes.clone(),
            client: client.clone(),
            delegation: built.front_proxy.clone(),
        };
        let renewal = supervisor.spawn("certificate-renewal", move || renewal.clone().run());
        let security = &config.security;
        if security.client_ca_file.is_some() || security.requestheader_client_ca_file.is_some() {
            let files = OperatorCaFiles {
                clients: security.client_ca_file.clone(),
                proxies: security.requestheader_client_ca_file.clone(),
                pki: opened.pki.clone(),
                tls: built.tls.clone(),
                client: client.clone(),
                delegation: built.front_proxy.clone(),
            };
            followers.spawn(supervisor.clone().keep("operator-cas", move || files.clone().follow()));
        }
        if let Some(reloader) = built.authentication.clone() {
            let follow = move || authentication_config::follow(reloader.clone());
            followers.spawn(supervisor.clone().keep("authentication-config", follow));
        }
        if let Some(sampling) = built.usage_sampling.clone() {
            let (usage, objects) = (built.usage.clone(), opened.objects.clone());
            let run = move || sampling.clone().run(usage.clone(), objects.clone());
            followers.spawn(supervisor.clone().keep("usage-sampling", run));
        }
        let role =
            NodeRole { client: client.clone(), pki: opened.pki.clone(), data_dir: config.data_dir.clone() };
        followers.spawn(supervisor.clone().keep("node-role", move || role.clone().follow()));
        let ca = built.ca.clone();
        followers.spawn(supervisor.clone().keep("cluster-ca", move || ca.clone().follow()));
        if let Some(encryption) = opened.encryption.clone() {
            followers
                .spawn(supervisor.clone().keep("encryption-config", move || encryption.clone().follow()));
        }
        let memory = supervisor.spawn("memory", coracle_cli::memory::release_unused);
        Self { followers, renewal, memory }
    }

    /// Starts what needs the objects of a bootstrapped cluster. Aggregated API servers that are known by now are in the
    /// table before this server says that it is ready.
    pub(super) async fn follow_servers(&mut self, opened: &Opened, built: &Built) {
        let parts = (built.client.clone(), opened.supervisor.clone());
        let (client, supervisor) = parts.clone();
        let registrations = ApiServiceController::start(client.clone(), supervisor.clone()).await;
        let (start, run) = (ApiServiceController::start, ApiServiceController::run);
        self.followers.spawn(keep_following("registrations", registrations, parts.clone(), start, run));
        let known = built.extensions.clone();
        let first = aggregation::watch_availability(known.clone(), client, supervisor);
        let start =
            move |client, supervisor| ready(aggregation::watch_availability(known, client, supervisor));
        self.followers.spawn(keep_following("aggregation", first, parts, start, identity));
    }

    /// Ends the tasks that do not follow objects.
    pub(super) fn stop(&self) {
        self.renewal.abort();
        self.memory.abort();
    }
}

/// Keeps a follower of objects running: the `first`, which has looked at what there is, and after a failure one that is
/// started anew and looks at everything again.
fn keep_following<T, S, F>(
    task: &'static str,
    first: T,
    (client, supervisor): (Client, Supervisor),
    start: impl FnOnce(Client, Supervisor) -> S + Clone + Send,
    run: impl FnOnce(T) -> F + Clone + Send,
) -> impl Future<Output = ()> + Send
where
    T: Send,
    S: Future<Output = T> + Send,
    F: Future<Output = ()> + Send,
{
    let (mut first, parts) = (Some(first), (client, supervisor.clone()));
    supervisor.keep(task, move || {
        let (first, (client, supervisor)) = (first.take(), parts.clone());
        let (start, run) = (start.clone(), run.clone());
        async move {
            let follower = match first {
                Some(follower) => follower,
                None => start(client, supervisor).await,
            };
            run(follower).await;
        }
    })
}
