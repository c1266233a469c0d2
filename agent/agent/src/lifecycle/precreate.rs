//! Creates a new pod's first container in parallel with its sandbox's network.
//!
//! Only for containers that need neither the pod's addresses nor an image pull. Errors here are ignored: the container
//! is then created the usual way, which reports them.

use coracle_cli::causes;
use coracle_engine::runtime::FirstConfig;
use coracle_trace::{Span, Stage, tracked, within};
use std::time::Duration;

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use tokio::sync::oneshot;

use super::execute::job::Job;
use super::execute::outcome::Outcome;
use super::execute::{container_span, has_own_users};
use crate::events::pod_reference;
use crate::image::ImageRequest;
use crate::pod::observed;
use crate::pod::plan::Start;
use crate::pod::spec::{self, Role};
use crate::volume::prepare::{PrepareError, Prepared};

/// How long a sandbox waits for the configuration of its first container.
const FIRST_CONTAINER_TIMEOUT: Duration = Duration::from_millis(100);

impl Job {
    /// Prepares the volumes and then the first container's configuration, whose span goes on if the sandbox took it.
    pub(super) async fn volumes_and_first(
        &self,
        offer: oneshot::Sender<FirstConfig>,
    ) -> (Option<Result<Prepared, PrepareError>>, Option<Span>) {
        let made = self.volumes().await;
        let mut taken = None;
        if let Some(Ok(prepared)) = &made {
            // The sandbox waits for it, so a slow configuration would not gain time.
            let config = tokio::time::timeout(FIRST_CONTAINER_TIMEOUT, self.first_config(prepared)).await;
            if let Ok(Some((config, mut span))) = config {
                match offer.send(FirstConfig { config, scope: span.scope() }) {
                    Ok(()) => taken = Some(span),
                    Err(_) => span.failed(),
                }
            }
        }
        (made, taken)
    }

    async fn first_config(&self, prepared: &Prepared) -> Option<(cri::ContainerConfig, Span)> {
        let attempt = self.create_sandbox.filter(|n| *n == 0 && self.executor.runtime.can_precreate())?;
        let spec = spec::spec(&self.pod);
        let (start, container) = first(&spec)?;
        if !self.observed.instances.is_empty() || has_own_users(&self.pod) || self.cancel.is_cancelled() {
            return None;
        }
        // A plugin that has to be called first is called once per start.
        if self.executor.devices.wants_pre_start(&self.pod) {
            return None;
        }
        let image = container.image.as_deref().unwrap_or_default();
        let images = &self.executor.images;
        let credentials = self.credentials(image).await;
        let sandbox = self.sandbox_config(attempt).ok()?;
        let about = pod_reference(&self.pod, Some(&start.name));
        let request = ImageRequest {
            pod: &self.pod,
            about: &about,
            image,
            policy: container.image_pull_policy.as_deref(),
            credentials: &credentials,
            sandbox: &sandbox,
        };
        if !images.is_at_hand(request).await {
            return None;
        }
        let present = images.ensure(request).await.ok()?;
        let mut span = container_span(&start);
        let configure = self.configure(start.role, container, &start, present, Some(prepared), &sandbox);
        let configure = tracked(Stage::ContainerConfig, &start.name, configure);
        let Ok(config) = within(span.scope(), configure).await else {
            span.failed();
            return None;
        };
        Some((config, span))
    }

    /// Starts the container after the pod got its addresses.
    pub(super) async fn start_first(
        &mut self,
        sandbox: &str,
        id: &str,
        span: Option<Span>,
        outcome: &mut Outcome,
    ) {
        let (scope, failures) =
            (span.as_ref().map_or_else(coracle_trace::current, Span::scope), outcome.failures.len());
        within(scope, Box::pin(self.start_precreated(sandbox, id, outcome))).await;
        if let Some(mut span) = span
            && outcome.failures.len() > failures
        {
            span.failed();
        }
    }

    async fn start_precreated(&mut self, sandbox: &str, id: &str, outcome: &mut Outcome) {
        let pod = self.pod.clone();
        let spec = spec::spec(&pod);
        let Some((start, container)) = first(&spec) else { return };
        let ready = self.is_ready_for(sandbox, outcome).await;
        if !ready || self.cancel.is_cancelled() {
            if let Err(error) = self.executor.runtime.remove_container(id).await {
                tracing::warn!(uid = spec::uid(&pod), id, error = %causes::chain(&error), "container not removed, will be removed with its sandbox");
            }
            return;
        }
        match self.launch(container, &start, id).await {
            Ok(()) => outcome.started.push(start),
            Err(failure) => outcome.failures.push(failure),
        }
    }

    /// Prepares what was not available at creation: the hosts file with the pod's addresses, and network policies.
    async fn is_ready_for(&mut self, sandbox: &str, outcome: &mut Outcome) -> bool {
        let status = self.executor.runtime.pod_sandbox_status(sandbox, false).await;
        let Some(status) = status.ok().and_then(|answer| answer.status) else { return false };
        self.addresses = Some(observed::sandbox(&status).ips);
        if self.prepared.is_none() || self.hosts_file().is_err() {
            return false;
        }
        match self.wait_for_policies().await {
            Ok(()) => true,
            Err(failure) => {
                outcome.failures.push(failure);
                false
            }
        }
    }
}

/// The first container of a new pod, if it can be created before the pod has addresses.
fn first(spec: &PodSpec) -> Option<(Start, &Container)> {
    let init = spec.init_containers.iter().flatten().next();
    let container = init.or_else(|| spec.containers.first())?;
    let role = match init {
        Some(container) if spec::is_sidecar(container) => Role::Sidecar,
        Some(_) => Role::Init,
        None => Role::Regular,
    };
    let field = |path: &str| path.starts_with("status.podIP");
    let asks_address = container.env.iter().flatten().any(|variable| {
        let from = variable.value_from.as_ref().and_then(|from| from.field_ref.as_ref());
        from.is_some_and(|from| field(&from.field_path))
    });
    let pulls_more = spec.volumes.iter().flatten().any(|volume| volume.image.is_some());
    if asks_address || pulls_more || spec.host_network == Some(true) {
        return None;
    }
    Some((Start { name: container.name.clone(), role, attempt: 0, failed_at: None }, container))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_needs_no_address_and_no_pull_is_made_first() {
        let address =
            json!([{ "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIPs" } } }]);
        let name = json!([{ "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]);
        let always = "Always";
        for (spec, expected) in [
            (json!({ "containers": [{ "name": "a" }, { "name": "b" }] }), Some(("a", Role::Regular))),
            (
                json!({ "initContainers": [{ "name": "i" }], "containers": [{ "name": "a" }] }),
                Some(("i", Role::Init)),
            ),
            (
                json!({ "initContainers": [{ "name": "s", "restartPolicy": always }], "containers": [] }),
                Some(("s", Role::Sidecar)),
            ),
            (json!({ "containers": [{ "name": "a", "env": name }] }), Some(("a", Role::Regular))),
            (json!({ "containers": [{ "name": "a", "env": address }] }), None),
            (
                json!({ "containers": [{ "name": "a" }], "volumes": [{ "name": "v", "image": { "reference": "x" } }] }),
                None,
            ),
            (json!({ "containers": [{ "name": "a" }], "hostNetwork": true }), None),
            (json!({ "containers": [] }), None),
        ] {
            let spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            let found = first(&spec).map(|(start, _)| (start.name, start.role));
            assert_eq!(found, expected.map(|(name, role)| (name.to_owned(), role)), "{spec:?}");
        }
    }
}
