//! Status conditions of FlowSchemas: whether their priority level exists.

use async_trait::async_trait;
use coracle_fields::flowcontrol::v1::FlowSchema;
use coracle_informer::conditions::{self, Condition};
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use jiff::Timestamp;
use serde_json::{Value, json};

const FLOWS: &str = "api-priority-and-fairness-config-consumer-v1";
const IDENTITY: Identity = Identity::without_account(Account::Server, FLOWS).with_manager(FLOWS);

/// The status with the condition in it, or `None` when it says so already.
fn with(mut list: Vec<Condition>, condition: Condition) -> Option<Value> {
    conditions::put(&mut list, condition).then(|| json!({"conditions": list}))
}

struct Flows {
    schemas: Resource,
    levels: Resource,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let schemas = setup.resource(IDENTITY, "flowcontrol.apiserver.k8s.io", "flowschemas");
    let levels = setup.resource(IDENTITY, "flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations");
    let all = schemas.cache.clone();
    let mut handlers = setup.enqueue_on_change(&schemas);
    // A level may come or go for any schema.
    handlers.on_change(&levels.kind, &levels.cache, move |_, add| {
        all.list(None).iter().for_each(|schema| add(Name::of(schema)));
    });
    let queue = handlers.queue.clone();
    setup.run(Flows { schemas, levels }, &queue, 1);
}

fn dangling(level: &str, exists: bool, now: Timestamp) -> Condition {
    let names = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    if exists {
        Condition::new("Dangling", false, "Found", format!("{names} and it exists"), now)
    } else {
        Condition::new("Dangling", true, "NotFound", format!("{names} but there is no such object"), now)
    }
}

#[async_trait]
impl Controller for Flows {
    fn name(&self) -> &'static str {
        FLOWS
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(schema) = self.schemas.get(name) else { return Ok(Requeue::No) };
        let doc = schema.doc();
        let object = doc.view::<FlowSchema>();
        let level = object.spec().priority_level_configuration().name().text();
        let exists = self.levels.cache.get("", level).is_some();
        let list = object.status().conditions().read().unwrap_or_default();
        if let Some(status) = with(list, dangling(level, exists, now)) {
            self.schemas.set_status(&schema, status).await?;
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde::Deserialize as _;

    #[test]
    fn a_condition_is_written_once() {
        let now = Timestamp::UNIX_EPOCH;
        let list = |status: &Value| Vec::<Condition>::deserialize(&status["conditions"]).unwrap();
        let status = with(Vec::new(), dangling("x", false, now)).unwrap();
        assert_eq!(status["conditions"][0]["status"], "True");
        assert_eq!(with(list(&status), dangling("x", false, now)), None);
        let status = with(list(&status), dangling("x", true, now)).unwrap();
        let found = &status["conditions"][0];
        assert_eq!((found["status"].as_str(), found["reason"].as_str()), (Some("False"), Some("Found")));
    }
}
