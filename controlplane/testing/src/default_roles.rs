//! The default roles as a check: controllers write in the same process without being authorized, but only what their accounts may
//! write in Kubernetes.

use async_trait::async_trait;
use coracle_apiserver::authz::rbac::Rule;
use coracle_apiserver::in_process::InProcess;
use coracle_apiserver::request_info::RequestInfo;
use coracle_apiserver::verb::Verb;
use coracle_client::options::{DeleteOptions, WriteOptions};
use coracle_client::patch::Patch;
use coracle_client::pipeline::{Change, Pipeline, Placement, Reply, Target};
use coracle_client::user::{MASTERS, User};
use coracle_fields::rbac::v1::{ClusterRole, RoleBinding};
use coracle_fields::{Schema as _, View};
use coracle_kinds::object::Object;
use coracle_kinds::registry::bootstrap;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use coracle_trace::Recorder;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a binding grants.
struct Grant {
    /// Users and groups.
    subjects: Vec<String>,
    /// Where it holds; everywhere if empty.
    namespace: String,
    rules: Vec<Rule>,
}

/// Writes that no default role allows. Dropping it panics if there were any.
pub(crate) struct DeniedWrites(Arc<Mutex<BTreeSet<String>>>);

impl Drop for DeniedWrites {
    fn drop(&mut self) {
        let denied = self.0.lock();
        assert!(std::thread::panicking() || denied.is_empty(), "no default role allows these: {denied:#?}");
    }
}

/// The API, with notes of writes that no default role allows. They are carried out nevertheless.
pub(crate) struct CheckedWrites {
    api: InProcess,
    grants: Vec<Grant>,
    denied: Arc<Mutex<BTreeSet<String>>>,
}

impl CheckedWrites {
    /// Checks what goes to `api`.
    pub(crate) fn new(api: InProcess) -> (Self, DeniedWrites) {
        let denied: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        (Self { api, grants: grants(), denied: denied.clone() }, DeniedWrites(denied))
    }

    fn check(&self, verb: &str, target: &Target<'_>) {
        let (kind, place) = (target.kind, (target.namespace, target.name));
        let resource = (kind.group.as_str(), kind.plural.as_str(), target.subresource);
        self.check_request(target.user, verb, resource, place);
    }

    /// Checks a request for a resource: its group, name and subresource, and the namespace and name of an object.
    fn check_request(&self, user: &User, verb: &str, resource: (&str, &str, &str), place: (&str, &str)) {
        let verb = Verb::from(verb);
        if verb.reads() || user.in_group(MASTERS) {
            return;
        }
        let request = RequestInfo {
            verb,
            is_resource: true,
            group: resource.0.to_owned(),
            resource: resource.1.to_owned(),
            subresource: resource.2.to_owned(),
            namespace: place.0.to_owned(),
            name: place.1.to_owned(),
            ..RequestInfo::default()
        };
        let has_user = |subject: &String| *subject == user.name || user.in_group(subject);
        let allows = |grant: &Grant| {
            (grant.namespace.is_empty() || grant.namespace == request.namespace)
                && grant.subjects.iter().any(has_user)
                && grant.rules.iter().any(|rule| rule.allows(&request))
        };
        if !self.grants.iter().any(allows) {
            let (group, plural, subresource) = resource;
            let what = format!("{} {} {group}/{plural}/{subresource}", user.name, request.verb.as_str());
            self.denied.lock().insert(what);
        }
    }
}

/// What the bindings of a new cluster grant.
fn grants() -> Vec<Grant> {
    let ranges = ["10.43.0.0/16".to_owned()];
    let cluster = bootstrap::Cluster { service_ranges: &ranges, service_address: "10.43.0.1", port: 6443 };
    let objects = bootstrap::objects(&cluster);
    let bindings = objects.iter().map(RoleBinding::of).filter(|binding| binding.role_ref().is_set());
    bindings.map(|binding| grant(&objects, binding)).collect()
}

fn grant(objects: &[Value], binding: View<'_, RoleBinding>) -> Grant {
    let (role, namespace) = (binding.role_ref(), binding.metadata().namespace().text());
    let is_role = |object: &View<'_, ClusterRole>| {
        object.kind() == role.kind().text()
            && object.metadata().name() == role.name().text()
            && (role.kind() == "ClusterRole" || object.metadata().namespace() == namespace)
    };
    let found = objects.iter().map(ClusterRole::of).find(is_role);
    let subjects = binding.subjects().items().map(|subject| match subject.kind().text() {
        "ServiceAccount" => User::service_account(subject.namespace().text(), subject.name().text()).name,
        _ => subject.name().text().to_owned(),
    });
    Grant {
        subjects: subjects.collect(),
        namespace: namespace.to_owned(),
        rules: found.and_then(|role| role.rules().read().ok()).unwrap_or_default(),
    }
}

#[async_trait]
impl Pipeline for CheckedWrites {
    fn registry(&self) -> &Arc<Registry> {
        self.api.registry()
    }

    fn recorder(&self) -> Recorder {
        self.api.recorder()
    }

    fn cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.api.cache(kind)
    }

    fn whole_cache(&self, kind: &Kind) -> Option<Arc<Cache>> {
        self.api.whole_cache(kind)
    }

    async fn view(&self, kind: &Kind, object: &Arc<Object>) -> Result<Value, ApiError> {
        self.api.view(kind, object).await
    }

    async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.api.get(kind, namespace, name).await
    }

    async fn get_whole(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Arc<Object>, ApiError> {
        self.api.get_whole(kind, namespace, name).await
    }

    async fn create(&self, target: &Target<'_>, object: Value) -> Result<Arc<Object>, ApiError> {
        self.check("create", target);
        self.api.create(target, object).await
    }

    async fn change(&self, target: &Target<'_>, change: &Change<'_>) -> Result<Arc<Object>, ApiError> {
        self.check("update", target);
        self.api.change(target, change).await
    }

    async fn scale(&self, target: &Target<'_>, replicas: i64) -> Result<Arc<Object>, ApiError> {
        self.check("update", target);
        self.api.scale(target, replicas).await
    }

    async fn patch(&self, target: &Target<'_>, patch: &Patch) -> Result<Arc<Object>, ApiError> {
        self.check("patch", target);
        self.api.patch(target, patch).await
    }

    async fn remove(&self, target: &Target<'_>, options: &DeleteOptions) -> Result<Arc<Object>, ApiError> {
        self.check("delete", target);
        self.api.remove(target, options).await
    }

    async fn remove_unreadable(&self, target: &Target<'_>) -> Result<(), ApiError> {
        self.check("deletecollection", target);
        self.api.remove_unreadable(target).await
    }

    async fn bind(
        &self,
        user: &User,
        options: &WriteOptions,
        placements: &[Placement<'_>],
    ) -> Vec<Result<(), ApiError>> {
        for placement in placements {
            let place = (placement.namespace, placement.name);
            self.check_request(user, "create", ("", "pods", "binding"), place);
        }
        self.api.bind(user, options, placements).await
    }

    async fn take_fence(&self, lease: &Object) -> Result<u64, ApiError> {
        self.api.take_fence(lease).await
    }

    async fn call(&self, target: &Target<'_>, verb: &str, body: Value) -> Result<Reply, ApiError> {
        self.check(verb, target);
        self.api.call(target, verb, body).await
    }
}

#[cfg(test)]
mod tests {
    use crate::Cluster;
    use coracle_client::patch::Patch;
    use serde_json::json;
    use tokio::task::JoinSet;

    async fn patched_by(account: &str) -> Cluster {
        let mut controller = None;
        let start = |parts: &crate::Parts| {
            controller = Some(parts.client.controller(account));
            JoinSet::new()
        };
        let cluster = Cluster::build(start).await;
        cluster.create("", "nodes", "", json!({"metadata": {"name": "n"}})).await;
        let client = controller.expect("the cluster has started");
        let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        let patched = client.patch(&client.kind("", "nodes"), "", "n", "", patch).await;
        patched.unwrap_or_else(|e| panic!("{account}: {e}"));
        cluster
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_write_that_a_role_allows_passes() {
        drop(patched_by("node-controller").await);
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic = "system:serviceaccount:kube-system:deployment-controller patch /nodes/"]
    async fn a_write_that_no_role_allows_fails_the_test() {
        drop(patched_by("deployment-controller").await);
    }
}
