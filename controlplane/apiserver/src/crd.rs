//! Registers and unregisters kinds as CustomResourceDefinitions change, sets the `NamesAccepted` and `Established`
//! conditions, and deletes the instances of a definition that is being deleted.

use crate::objects::Objects;
use coracle_cli::causes;
use coracle_cli::supervise::{Subject, Supervisor};
use coracle_client::Client;
use coracle_client::options::DeleteOptions;
use coracle_fields::apiextensions::v1::{CustomResourceDefinition, CustomResourceDefinitionCondition};
use coracle_fields::{Schema as _, View, make};
use coracle_kinds::object::Object;
use coracle_kinds::registry::custom::rows;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use coracle_kinds::watch::event::EventType;
use coracle_proto::status::ApiError;
use coracle_validation::api_approval::{self, Conformance};
use coracle_validation::conversion::broken_bundle;
use coracle_validation::meta::CLEANUP;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Retry interval, and poll interval while instances are deleted.
const PAUSE: Duration = Duration::from_millis(300);

/// A registered definition.
struct RegisteredCrd {
    generation: i64,
    ending: bool,
    rows: Vec<Arc<Kind>>,
}

/// Controller of CustomResourceDefinitions.
pub struct CrdController {
    /// Where kinds are registered.
    objects: Arc<Objects>,
    client: Client,
    kind: Arc<Kind>,
    cache: Arc<Cache>,
    registered: HashMap<String, RegisteredCrd>,
    supervisor: Supervisor,
}

/// The condition of definitions whose group belongs to the Kubernetes community.
const APPROVAL: &str = "KubernetesAPIApprovalPolicyConformant";
/// Task name in metrics and health checks.
const TASK: &str = "definitions";

impl CrdController {
    /// Registers all existing definitions.
    pub async fn start(objects: Arc<Objects>, client: Client, supervisor: Supervisor) -> Self {
        let kind = client.kind("apiextensions.k8s.io", "customresourcedefinitions");
        let cache = client.cache(&kind);
        let mut definitions = Self { objects, client, kind, cache, registered: HashMap::new(), supervisor };
        definitions.resync().await;
        definitions
    }

    /// Watches definitions; does not return.
    pub async fn run(mut self) {
        loop {
            let Ok(mut cursor) = self.cache.subscribe(self.cache.revision()) else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            // What happened before the cursor.
            let mut again = self.resync().await;
            loop {
                let next =
                    tokio::time::timeout(if again { PAUSE } else { Duration::from_secs(300) }, cursor.next());
                match next.await {
                    Ok(Ok(event)) if event.what == EventType::Deleted => self.forget(&event.object.meta.name),
                    Ok(Ok(event)) => again |= self.reconcile(&event.object).await,
                    Ok(Err(_)) => break,
                    Err(_) => again = self.resync().await,
                }
            }
        }
    }

    /// Reconciles all definitions; true if another run is needed soon.
    async fn resync(&mut self) -> bool {
        let mut again = false;
        let all = self.cache.list(None);
        let gone: Vec<String> = self
            .registered
            .keys()
            .filter(|name| !all.iter().any(|d| d.meta.name == **name))
            .cloned()
            .collect();
        gone.iter().for_each(|name| self.forget(name));
        for definition in &all {
            again |= self.reconcile(definition).await;
        }
        again
    }

    /// Reconciles one definition; true if another run is needed soon.
    async fn reconcile(&mut self, definition: &Arc<Object>) -> bool {
        let plural = self.kind.plural.clone();
        let supervisor = self.supervisor.clone();
        let subject = || Subject::new(&plural, "", &definition.meta.name);
        match supervisor.isolate(TASK, subject, self.apply(definition)).await {
            // Tried again when it changes, and when all are looked at.
            Err(_) => false,
            Ok(Ok(again)) => again,
            Ok(Err(error)) => {
                if !error.is_conflict() && !error.is_not_found() {
                    tracing::warn!(definition = definition.meta.name, error = %causes::chain(&error), "CustomResourceDefinition not applied, will retry");
                }
                true
            }
        }
    }

    async fn apply(&mut self, definition: &Arc<Object>) -> Result<bool, ApiError> {
        let value = definition.value();
        let name = definition.meta.name.clone();
        let ending = definition.meta.deletion_timestamp.is_some();
        let view = CustomResourceDefinition::of(&value);
        let conflict = self.conflict(&name, view);
        if !ending {
            self.report_status(&name, view, conflict.as_deref()).await?;
        }
        if conflict.is_none() && (!lacks_authority(view) || condition(view, "Established") == Some("True")) {
            self.register(&name, &value, definition.meta.generation, ending).await?;
        }
        if ending && definition.meta.finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            return self.delete_instances(&name, view).await;
        }
        Ok(false)
    }

    /// The name that another definition or a built-in kind uses already.
    fn conflict(&self, name: &str, definition: View<'_, CustomResourceDefinition>) -> Option<String> {
        let (group, names) = (definition.spec().group().get()?, definition.spec().names());
        let ours = |row: &Kind| {
            self.registered.get(name).is_some_and(|registered| {
                registered.rows.iter().any(|own| own.plural == row.plural && own.group == row.group)
            })
        };
        let all = self.client.registry().all();
        all.iter().filter(|row| row.group == group && !ours(row)).find_map(|row| {
            let (plural, kind) = (names.plural().get()?, names.kind().get()?);
            if row.plural == plural {
                Some(format!("{plural:?} is already in use"))
            } else if row.kind == kind {
                Some(format!("{kind:?} is already in use"))
            } else {
                None
            }
        })
    }

    /// Sets the conditions `NamesAccepted`, `Established` and, where it applies, `KubernetesAPIApprovalPolicyConformant`.
    async fn report_status(
        &self,
        name: &str,
        definition: View<'_, CustomResourceDefinition>,
        conflict: Option<&str>,
    ) -> Result<(), ApiError> {
        let before = if condition(definition, "Established") == Some("True") { "True" } else { "False" };
        let (accepted, established) = match conflict {
            None if lacks_authority(definition) => ("True", before),
            None => ("True", "True"),
            Some(_) => ("False", before),
        };
        let approval = api_approval::conformance(definition);
        let (names, known) = (definition.spec().names(), definition.status().accepted_names());
        let same = condition(definition, "NamesAccepted") == Some(accepted)
            && condition(definition, "Established") == Some(established)
            && (conflict.is_some() || known.same_as(names))
            && is_reported(definition, approval.as_ref());
        if same {
            return Ok(());
        }
        let conflict = conflict.map(str::to_owned);
        let change = move |object: &mut Value| {
            let now = crate::metadata::now();
            let mut set = |kind: &str, status: &str, reason: &str, message: &str| {
                let mut definition = CustomResourceDefinition::edit(object);
                let mut of = definition.status();
                of.conditions().retain(|condition| condition.type_() != kind);
                of.conditions().push(make!(part CustomResourceDefinitionCondition {
                    type_: kind,
                    status,
                    reason,
                    message,
                    last_transition_time: &now,
                }));
            };
            if let Some(approval) = &approval {
                set(APPROVAL, approval.status, approval.reason, &approval.message);
            }
            match &conflict {
                None => {
                    set("NamesAccepted", "True", "NoConflicts", "no conflicts found");
                    let (reason, message) = match established {
                        "True" => ("InitialNamesAccepted", "the initial names have been accepted"),
                        _ => ("InvalidCABundle", "The conversion webhook CABundle is invalid"),
                    };
                    set("Established", established, reason, message);
                    let names = CustomResourceDefinition::of(object).spec().names().to_value();
                    CustomResourceDefinition::edit(object).status().accepted_names().put(names);
                }
                Some(why) => {
                    set("NamesAccepted", "False", "PluralConflict", why);
                    if established == "False" {
                        set("Established", "False", "NotAccepted", "not all names are accepted");
                    }
                }
            }
        };
        self.client.modify(&self.kind, "", name, "status", change).await.map(|_| ())
    }

    /// Puts the rows in place; versions that are no longer served go.
    async fn register(
        &mut self,
        name: &str,
        value: &Value,
        generation: i64,
        ending: bool,
    ) -> Result<(), ApiError> {
        if self
            .registered
            .get(name)
            .is_some_and(|registered| registered.generation == generation && registered.ending == ending)
        {
            return Ok(());
        }
        let objects = self.objects.clone();
        let mut rows = Vec::new();
        for row in rows::of(value) {
            // Who finds the row must find its objects.
            // What selectors read differs between versions: it is read where it is asked for.
            objects
                .reflector
                .register(Arc::new(row.clone().fields(Vec::new())))
                .await
                .map_err(ApiError::internal)?;
            rows.push(objects.registry.register(row));
        }
        let old =
            self.registered.insert(name.to_owned(), RegisteredCrd { generation, ending, rows: rows.clone() });
        for row in old.into_iter().flat_map(|registered| registered.rows) {
            if !rows.iter().any(|new| new.version == row.version) {
                objects.registry.unregister(&row.group, &row.version, &row.plural);
            }
        }
        Ok(())
    }

    /// Takes the objects of a definition away, then its finalizer; whether there is more to do.
    async fn delete_instances(
        &self,
        name: &str,
        definition: View<'_, CustomResourceDefinition>,
    ) -> Result<bool, ApiError> {
        let (group, plural) = (definition.spec().group().text(), definition.spec().names().plural().text());
        if let Some(kind) = self.client.find_kind(group, plural)
            && let Some(cache) = self.client.find_cache(&kind)
        {
            let left = cache.list(None);
            for object in left.iter().filter(|object| object.meta.deletion_timestamp.is_none()) {
                let (namespace, name) = (&object.meta.namespace, &object.meta.name);
                match self.client.delete(&kind, namespace, name, DeleteOptions::default()).await {
                    Err(error) if !error.is_not_found() => return Err(error),
                    _ => {}
                }
            }
            if !cache.list(None).is_empty() {
                return Ok(true);
            }
        }
        let change = |object: &mut Value| {
            let mut definition = CustomResourceDefinition::edit(object);
            definition.metadata().finalizers().retain(|finalizer| finalizer != CLEANUP);
        };
        self.client.modify(&self.kind, "", name, "", change).await.map(|_| false)
    }

    /// A definition is gone, and with it its rows.
    fn forget(&mut self, name: &str) {
        let Some(registered) = self.registered.remove(name) else { return };
        let objects = self.objects.clone();
        for row in &registered.rows {
            objects.registry.unregister(&row.group, &row.version, &row.plural);
        }
        if let Some(row) = registered.rows.first() {
            objects.reflector.remove(row);
        }
    }
}

/// Whether the status of a definition says how it conforms.
fn is_reported(definition: View<'_, CustomResourceDefinition>, approval: Option<&Conformance>) -> bool {
    let Some(approval) = approval else { return true };
    let mut conditions = definition.status().conditions().items();
    conditions.any(|condition| {
        condition.type_() == APPROVAL
            && condition.status() == approval.status
            && condition.message() == approval.message.as_str()
    })
}

/// What a condition of a definition says.
fn condition<'v>(definition: View<'v, CustomResourceDefinition>, kind: &str) -> Option<&'v str> {
    let mut all = definition.status().conditions().items();
    all.find(|condition| condition.type_() == kind)?.status().get()
}

/// Whether the webhook that converts could never be trusted.
fn lacks_authority(definition: View<'_, CustomResourceDefinition>) -> bool {
    broken_bundle(&definition.spec().conversion().webhook().client_config().as_value())
}
