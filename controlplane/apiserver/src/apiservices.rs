//! Keeps an APIService for every group and version that this server serves: for built-in kinds from startup, for custom
//! resources as long as a definition serves them. APIServices without the label of this controller are not changed.

use coracle_cli::causes;
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_client::Client;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_fields::apiextensions::v1::CustomResourceDefinition;
use coracle_fields::apiregistration::v1::{APIService, APIServiceSpec};
use coracle_fields::{Made, Schema as _, View, make};
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_proto::status::ApiError;
use coracle_store::Revision;
use coracle_validation::tree::same;
use futures::future::join_all;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Says that the server keeps an APIService: `onstart` those of the table, `true` those of definitions.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Before another try after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// The group of APIServices is the one that needs none.
const OWN: &str = "apiregistration.k8s.io";
/// Group and version priority of custom resources.
const CUSTOM: (i64, i64) = (1000, 100);
/// Those of groups of the table that are not listed below: what a metrics server registers itself with.
const OTHER: (i64, i64) = (100, 100);

/// Upstream's priorities: of the group, and of the version within it.
const PRIORITIES: [(&str, &str, i64, i64); 21] = [
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v1", 17_500, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
];

/// The priorities of a group and version that is served here, also of the group that needs no APIService.
pub fn priority(group: &str, version: &str, custom: bool) -> (i64, i64) {
    let known = PRIORITIES.iter().find(|(g, v, ..)| (*g, *v) == (group, version));
    match known {
        Some((.., of_group, of_version)) => (*of_group, *of_version),
        None if group == OWN => (20_000, 100),
        None if custom => CUSTOM,
        None => OTHER,
    }
}

/// The desired spec of an APIService, and its `managed` label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    spec: Value,
    managed: &'static str,
}

impl Wanted {
    fn new(group: &str, version: &str, (of_group, of_version): (i64, i64), managed: &'static str) -> Self {
        let spec = make!(part APIServiceSpec {
            group: Some(group).filter(|group| !group.is_empty()),
            version,
            group_priority_minimum: of_group,
            version_priority: of_version,
        });
        Self { spec: spec.into_value(), managed }
    }

    /// Of a group and version of the table.
    fn of_table(group: &str, version: &str) -> Self {
        Self::new(group, version, priority(group, version, false), "onstart")
    }
}

/// One change of an APIService.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Create(String, Wanted),
    Correct(String, Value),
    Remove(String, String),
}

/// Computes the changes; `there` are the existing APIServices, `starting` is true for the first run.
fn plan(wanted: &BTreeMap<String, Wanted>, there: &[Arc<Object>], starting: bool) -> Vec<Step> {
    let named: HashMap<&str, &Arc<Object>> =
        there.iter().map(|object| (&*object.meta.name, object)).collect();
    let missing = wanted.iter().filter(|(name, _)| !named.contains_key(name.as_str()));
    let mut steps: Vec<Step> =
        missing.map(|(name, wanted)| Step::Create(name.clone(), wanted.clone())).collect();
    for object in there {
        let ours = match object.meta.labels.get(MANAGED).map(String::as_str) {
            Some("true") => true,
            Some("onstart") => starting,
            _ => false,
        };
        let (name, ending) = (&object.meta.name, object.meta.deletion_timestamp.is_some());
        match wanted.get(name).filter(|_| ours) {
            None if ours && !ending => steps.push(Step::Remove(name.clone(), object.meta.uid.clone())),
            Some(wanted) if !same(&object.doc().view::<APIService>().spec().as_value(), &wanted.spec) => {
                steps.push(Step::Correct(name.clone(), wanted.spec.clone()));
            }
            _ => {}
        }
    }
    steps
}

/// Controller of the APIServices of local group versions.
pub struct ApiServiceController {
    client: Client,
    kind: Arc<Kind>,
    services: Arc<Cache>,
    definitions: Arc<Cache>,
    table: BTreeMap<String, Wanted>,
    /// What each definition serves, and the revision that says so.
    served: HashMap<String, (Revision, Vec<(String, String)>)>,
    supervisor: Supervisor,
}

/// Task name in metrics and health checks.
const TASK: &str = "registrations";

impl ApiServiceController {
    /// Creates missing APIServices.
    pub async fn start(client: Client, supervisor: Supervisor) -> Self {
        let kind = client.kind(OWN, "apiservices");
        let definitions = client.cache(&client.kind("apiextensions.k8s.io", "customresourcedefinitions"));
        let rows = client.registry().all();
        let rows = rows.iter().filter(|row| row.custom.is_none() && row.group != OWN);
        let table = rows
            .map(|row| (format!("{}.{}", row.version, row.group), Wanted::of_table(&row.group, &row.version)))
            .collect();
        let services = client.cache(&kind);
        let served = HashMap::new();
        let mut all = Self { client, kind, services, definitions, table, served, supervisor };
        all.reconcile(true).await;
        all
    }

    /// Watches definitions and APIServices and reconciles them; does not return.
    pub async fn run(mut self) {
        loop {
            let (definitions, services) = (self.definitions.revision(), self.services.revision());
            let cursors = (self.definitions.subscribe(definitions), self.services.subscribe(services));
            let (Ok(mut definitions), Ok(mut services)) = cursors else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            loop {
                // What happened before the cursors, too.
                if !self.reconcile(false).await {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                let lost = tokio::select! {
                    event = definitions.next() => event.is_err(),
                    event = services.next() => event.is_err(),
                };
                // Many come at once, and one look is enough for all that is there by now.
                if lost || definitions.try_batch().is_err() || services.try_batch().is_err() {
                    break;
                }
            }
        }
    }

    /// Executes the changes; false if one failed.
    async fn reconcile(&mut self, starting: bool) -> bool {
        let steps = plan(&self.wanted(), &self.services.list(None), starting);
        join_all(steps.iter().map(|step| self.execute(step))).await.into_iter().all(|done| done)
    }

    fn wanted(&mut self) -> BTreeMap<String, Wanted> {
        let definitions = self.definitions.list(None);
        let names: HashSet<&str> = definitions.iter().map(|definition| &*definition.meta.name).collect();
        self.served.retain(|name, _| names.contains(name.as_str()));
        for definition in &definitions {
            let seen = self.served.get(&definition.meta.name).map(|(revision, _)| *revision);
            if seen != Some(definition.revision) {
                let subject = || Subject::new("customresourcedefinitions", "", &definition.meta.name);
                let read = || served(definition.doc().view());
                // What cannot be read serves nothing.
                let read = self.supervisor.isolate_sync(TASK, subject, read).unwrap_or_default();
                self.served.insert(definition.meta.name.clone(), (definition.revision, read));
            }
        }
        let custom = self.served.values().flat_map(|(_, versions)| versions).map(|(group, version)| {
            (format!("{version}.{group}"), Wanted::new(group, version, CUSTOM, "true"))
        });
        // A definition in a group of the table changes nothing about the group.
        custom.chain(self.table.clone()).collect()
    }

    async fn execute(&self, step: &Step) -> bool {
        let outcome = match step {
            Step::Create(name, wanted) => {
                let object = make!(part APIService {
                    metadata: { name, labels: [(MANAGED, wanted.managed)] },
                    spec: Made::new(wanted.spec.clone()),
                });
                self.client.create(&self.kind, "", object.into_value()).await
            }
            Step::Correct(name, spec) => {
                let change = |object: &mut Value| APIService::edit(object).spec().put(spec.clone());
                self.client.modify(&self.kind, "", name, "", change).await
            }
            Step::Remove(name, uid) => {
                let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
                let options = DeleteOptions { preconditions: Some(only), ..DeleteOptions::default() };
                self.client.delete(&self.kind, "", name, options).await
            }
        };
        match outcome {
            Err(error) if !is_race(&error) => {
                tracing::warn!(?step, error = %causes::chain(&error), "APIService update failed, will retry");
                false
            }
            _ => true,
        }
    }
}

/// Whether another writer changed the object; its event causes another run.
fn is_race(error: &ApiError) -> bool {
    error.is_already_exists() || error.is_conflict() || error.is_not_found()
}

/// Group and version of what a definition serves.
fn served(definition: View<'_, CustomResourceDefinition>) -> Vec<(String, String)> {
    let group = definition.spec().group().text();
    let versions = definition.spec().versions().items().filter(|version| version.served().flag());
    versions.map(|version| (group.to_owned(), version.name().text().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::registry::index::Registry;
    use serde_json::json;

    fn there(name: &str, label: Option<&str>, spec: Value) -> Arc<Object> {
        let kind = Kind::new(OWN, "v1", "APIService", "apiservices").cluster();
        let mut object = json!({"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
            "metadata": {"name": name, "uid": "u"}, "spec": spec});
        if let Some(label) = label {
            object["metadata"]["labels"] = json!({MANAGED: label});
        }
        let bytes = coracle_kinds::object::limits::rendered_bytes(&object);
        Arc::new(Object::from_stored(&kind.fields, &bytes, 7).expect("an object"))
    }

    #[test]
    fn every_group_of_the_table_has_its_priority() {
        for row in Registry::builtin().all() {
            let listed = PRIORITIES
                .iter()
                .any(|(group, version, ..)| (*group, *version) == (&*row.group, &*row.version));
            assert!(listed || row.group == OWN, "{}", row.api_version());
        }
        assert_eq!(
            Wanted::of_table("", "v1").spec,
            json!({"groupPriorityMinimum": 18000, "version": "v1", "versionPriority": 1})
        );
    }

    #[test]
    fn only_what_the_server_keeps_is_touched() {
        let (apps, custom) = (Wanted::of_table("apps", "v1"), Wanted::new("demo.io", "v1", CUSTOM, "true"));
        let wanted =
            BTreeMap::from([("v1.apps".to_owned(), apps.clone()), ("v1.demo.io".to_owned(), custom.clone())]);
        let other = json!({"version": "v1", "service": {"name": "s"}});
        let remove = |name: &str| Step::Remove(name.into(), "u".into());
        for (there, starting, want) in [
            (
                vec![there("v1.demo.io", Some("true"), custom.spec.clone())],
                false,
                vec![Step::Create("v1.apps".into(), apps.clone())],
            ),
            (
                vec![
                    there("v1.apps", Some("onstart"), other.clone()),
                    there("v1.demo.io", None, other.clone()),
                ],
                false,
                vec![],
            ),
            (
                vec![
                    there("v1.apps", Some("onstart"), other.clone()),
                    there("v1.demo.io", Some("true"), other.clone()),
                ],
                true,
                vec![
                    Step::Correct("v1.apps".into(), apps.spec.clone()),
                    Step::Correct("v1.demo.io".into(), custom.spec.clone()),
                ],
            ),
            (
                vec![
                    there("v1.apps", Some("onstart"), apps.spec.clone()),
                    there("v1.demo.io", Some("true"), custom.spec.clone()),
                    there("v1.gone.io", Some("true"), other.clone()),
                    there("v1.old.io", Some("onstart"), other.clone()),
                    there("v1.theirs.io", None, other.clone()),
                ],
                false,
                vec![remove("v1.gone.io")],
            ),
            (
                vec![
                    there("v1.apps", Some("onstart"), apps.spec.clone()),
                    there("v1.demo.io", Some("true"), custom.spec.clone()),
                    there("v1.old.io", Some("onstart"), other),
                ],
                true,
                vec![remove("v1.old.io")],
            ),
        ] {
            assert_eq!(plan(&wanted, &there, starting), want);
        }
    }

    #[test]
    fn definitions_serve_what_they_say() {
        let definition = json!({"spec": {"group": "demo.io", "versions": [{"name": "v1", "served": true}, {"name": "v0", "served": false}]}});
        assert_eq!(
            served(CustomResourceDefinition::of(&definition)),
            [("demo.io".to_owned(), "v1".to_owned())]
        );
    }
}
