//! Prevents privilege escalation: the rules of a written role or binding must be covered by the rules of its writer,
//! unless the writer has the verb `escalate` or `bind`. Always enabled, like the check in upstream's RBAC storage.

use super::{Attributes, Operation, Phase, Plugin};
use crate::authz::cover::{missing, printed};
use crate::authz::rbac::{RoleRef, RoleRules, Rule};
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use coracle_client::user::MASTERS;
use coracle_fields::Schema as _;
use coracle_fields::rbac::v1::{ClusterRole, RoleBinding};
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::sync::Arc;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Its name in the chain; it cannot be turned off.
pub const NAME: &str = "RoleEscalation";

/// The plugin.
pub struct RoleEscalation {
    /// Decides who has the verbs `escalate` and `bind`.
    pub authz: Arc<dyn Authorizer>,
    /// The rules of roles and writers.
    pub roles: Arc<dyn RoleRules>,
}

#[async_trait]
impl Plugin for RoleEscalation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.kind.group == GROUP
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if at.kind.group != GROUP || !matches!(at.operation, Operation::Create | Operation::Update) {
            return Ok(());
        }
        if at.user.in_group(MASTERS) {
            return Ok(());
        }
        match at.kind.plural.as_str() {
            "roles" | "clusterroles" => self.role(at, object).await,
            "rolebindings" | "clusterrolebindings" => self.binding(at, object).await,
            _ => Ok(()),
        }
    }
}

impl RoleEscalation {
    async fn role(&self, at: &Attributes<'_>, role: &Value) -> Result<(), ApiError> {
        let (role, old) = (ClusterRole::of(role), at.old.map(ClusterRole::of));
        let same_sum = old.is_some_and(|old| old.aggregation_rule().same_as(role.aggregation_rule()));
        let aggregates = role.aggregation_rule().is_set();
        if old.is_some_and(|old| old.rules().same_as(role.rules())) && (!aggregates || same_sum) {
            return Ok(());
        }
        let name = role.metadata().name().text();
        if self.may(at, Verb::Escalate, &at.kind.plural, name).await {
            return Ok(());
        }
        // Whatever labels somebody thinks of later flow into an aggregate: only who has all may make one.
        if aggregates && !same_sum {
            let all = Rule {
                verbs: vec!["*".into()],
                api_groups: vec!["*".into()],
                resources: vec!["*".into()],
                ..Rule::default()
            };
            if !missing(&self.roles.held(at.user, at.namespace), &[all]).is_empty() {
                return Err(at.forbidden("must have cluster-admin privileges to use the aggregationRule"));
            }
        }
        let rules: Vec<Rule> = role.rules().read().unwrap_or_default();
        self.covered(at, &rules)
    }

    async fn binding(&self, at: &Attributes<'_>, binding: &Value) -> Result<(), ApiError> {
        let (binding, old) = (RoleBinding::of(binding), at.old.map(RoleBinding::of));
        let same_role = old.is_some_and(|old| old.role_ref().same_as(binding.role_ref()));
        if same_role && old.is_some_and(|old| old.subjects().same_as(binding.subjects())) {
            return Ok(());
        }
        let reference: RoleRef = binding.role_ref().read().unwrap_or_default();
        let plural = if reference.kind == "ClusterRole" { "clusterroles" } else { "roles" };
        if self.may(at, Verb::Bind, plural, &reference.name).await {
            return Ok(());
        }
        let Some(rules) = self.roles.role_rules(&reference, at.namespace) else {
            return Err(ApiError::not_found(GROUP, plural, &reference.name));
        };
        self.covered(at, &rules)
    }

    async fn may(&self, at: &Attributes<'_>, verb: Verb, plural: &str, name: &str) -> bool {
        let request = RequestInfo {
            is_resource: true,
            verb,
            group: GROUP.into(),
            version: "v1".into(),
            resource: plural.into(),
            namespace: at.namespace.into(),
            name: name.into(),
            ..RequestInfo::default()
        };
        self.authz.authorize(at.user, &request).await == Decision::Allow
    }

    fn covered(&self, at: &Attributes<'_>, wanted: &[Rule]) -> Result<(), ApiError> {
        let lacking = missing(&self.roles.held(at.user, at.namespace), wanted);
        if lacking.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = at.user.groups.iter().map(|group| format!("{group:?}")).collect();
        let lines: Vec<String> = lacking.iter().map(printed).collect();
        Err(at.forbidden(format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            at.user.name,
            groups.join(" "),
            lines.join("\n")
        )))
    }
}
