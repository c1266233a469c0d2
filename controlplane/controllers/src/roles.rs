//! Aggregated ClusterRoles: their rules are those of the roles they select.

use async_trait::async_trait;
use coracle_fields::rbac::v1::{AggregationRule, ClusterRole};
use coracle_fields::{fields, make};
use coracle_informer::identity::Identity;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::selector::Selector;
use coracle_informer::setup::Setup;
use coracle_informer::template::same;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: &str = "clusterrole-aggregation-controller";
const IDENTITY: Identity = Identity::of(NAME).with_manager(NAME);

struct Roles {
    roles: Resource,
}

fields! {
    struct Role: ClusterRole {
        aggregation_rule: Rule,
        rules: Vec<Value>,
    }

    struct Rule: AggregationRule {
        cluster_role_selectors: Vec<Selector>,
    }
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let roles = setup.resource(IDENTITY, "rbac.authorization.k8s.io", "clusterroles");
    let all = roles.cache.clone();
    let mut handlers = setup.enqueue_on_change(&roles);
    // Any role may be part of any aggregate.
    handlers.on_change(&roles.kind, &roles.cache, move |_, add| {
        let aggregates =
            all.list(None).into_iter().filter(|r| r.doc().view::<ClusterRole>().aggregation_rule().is_set());
        aggregates.for_each(|r| add(Name::of(&r)));
    });
    let queue = handlers.queue.clone();
    setup.run(Roles { roles }, &queue, 1);
}

/// The rules of the selected roles, each once, in the order of the roles' names.
fn collected(own: &str, selectors: &[Selector], roles: &[Arc<Object>]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let mut chosen: Vec<&Arc<Object>> =
            roles.iter().filter(|r| r.meta.name != own && selector.matches(&r.meta.labels)).collect();
        chosen.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        for role in chosen {
            let role: Role = role.typed().unwrap_or_default();
            for rule in role.rules {
                if !rules.iter().any(|r| same(r, &rule)) {
                    rules.push(rule);
                }
            }
        }
    }
    rules
}

#[async_trait]
impl Controller for Roles {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(role) = self.roles.get(name) else { return Ok(Requeue::No) };
        let Role { aggregation_rule, rules: old } = role.typed()?;
        let selectors = &aggregation_rule.cluster_role_selectors;
        if selectors.is_empty() {
            return Ok(Requeue::No);
        }
        let rules = json!(collected(&name.name, selectors, &self.roles.all()));
        if !same(&rules, &json!(old)) {
            let mut config = make!(ClusterRole { metadata: { name: &name.name, uid: &role.meta.uid } });
            config.edit().rules().put(rules);
            self.roles.apply(NAME, name, "", config).await?;
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rules_are_applied_and_follow_the_roles_that_are_gathered() {
        let cluster = crate::test_cluster::Cluster::without_nodes().await;
        let group = "rbac.authorization.k8s.io";
        let selector = json!({"matchLabels": {"to": "all"}});
        let all = json!({"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []});
        let uid = cluster.create(group, "clusterroles", "", all).await.meta.uid.clone();
        let rule = |verb: &str| json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]});
        for verb in ["get", "list"] {
            let part = json!({"metadata": {"name": verb, "labels": {"to": "all"}}, "rules": [rule(verb)]});
            cluster.create(group, "clusterroles", "", part).await;
        }
        let kind = "rbac.authorization.k8s.io/clusterroles";
        let role = |c: &crate::test_cluster::Cluster| c.get(kind, &Name::new("", "all"));
        cluster.until("two rules", |c| role(c)["rules"] == json!([rule("get"), rule("list")])).await;
        let made = role(&cluster);
        let entries = made["metadata"]["managedFields"].as_array().unwrap();
        let applied = entries.iter().find(|entry| entry["manager"] == NAME).unwrap();
        assert_eq!((&applied["operation"], &made["metadata"]["uid"]), (&json!("Apply"), &json!(uid)));
        assert!(applied["fieldsV1"]["f:rules"].is_object(), "{applied}");
        cluster.delete(kind, &Name::new("", "list"), "Background").await;
        cluster.until("one rule", |c| role(c)["rules"] == json!([rule("get")])).await;
        cluster.delete(kind, &Name::new("", "get"), "Background").await;
        cluster.until("no rule", |c| role(c)["rules"].as_array().is_none_or(Vec::is_empty)).await;
    }

    #[test]
    fn rules_are_gathered_once() {
        let rule = |verb: &str| json!({"verbs": [verb], "resources": ["pods"]});
        let role = |name: &str, label: &str, verbs: &[&str]| {
            let rules: Vec<Value> = verbs.iter().map(|v| rule(v)).collect();
            object(json!({"metadata": {"name": name, "labels": {"to": label}}, "rules": rules}))
        };
        let roles =
            [role("z", "edit", &["get"]), role("a", "edit", &["get", "list"]), role("x", "view", &["watch"])];
        let selector = Selector::of([("to".to_owned(), "edit".to_owned())].into());
        assert_eq!(collected("edit", &[selector], &roles), [rule("get"), rule("list")]);
    }
}
