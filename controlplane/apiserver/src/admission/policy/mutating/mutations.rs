//! Compiles and evaluates the expressions of one policy. Pure: no cluster access, no clock.

use super::MutationError;
use crate::admission::policy::scope::{Expression, Facts, RuleError, Scope};
use coracle_expressions::{self as expressions, PatchForm, to_cel};
use coracle_fields::View;
use coracle_fields::admissionregistration::v1;
use serde_json::Value;

/// The expressions of one policy.
pub struct Mutations {
    scope: Scope,
    mutations: Vec<(PatchForm, Expression)>,
    ignores_failure: bool,
    reinvokes: bool,
}

impl Mutations {
    /// Those of a policy's spec. Expressions that do not compile fail when they are evaluated.
    pub fn of(spec: View<'_, v1::MutatingAdmissionPolicySpec>) -> Self {
        let mutation = |one: View<'_, v1::Mutation>| {
            let (form, text) = match one.patch_type().text() {
                "JSONPatch" => (PatchForm::JsonPatch, one.json_patch().expression()),
                _ => (PatchForm::ApplyConfiguration, one.apply_configuration().expression()),
            };
            (form, Expression::patch(text.text(), form))
        };
        Self {
            scope: Scope::of(spec.match_conditions(), spec.variables(), spec.param_kind()),
            mutations: spec.mutations().items().map(mutation).collect(),
            ignores_failure: spec.failure_policy() == "Ignore",
            reinvokes: spec.reinvocation_policy() == "IfNeeded",
        }
    }

    /// How many mutations there are.
    pub fn len(&self) -> usize {
        self.mutations.len()
    }

    /// Whether a request goes on without a mutation that failed.
    pub fn ignores_failure(&self) -> bool {
        self.ignores_failure
    }

    /// Whether the policy is applied again to an object that was changed after it.
    pub fn reinvokes(&self) -> bool {
        self.reinvokes
    }

    /// Whether the match conditions hold.
    pub fn wanted(&self, facts: &Facts<'_>) -> Result<bool, Vec<RuleError>> {
        expressions::evaluate_blocking(expressions::CONDITIONS, |budget| {
            let context = self.scope.context(facts, budget);
            self.scope.wanted(&context, budget)
        })
    }

    /// The patch of one mutation. Variables are evaluated for each: the object is what the mutations before it left.
    pub fn patch(&self, index: usize, facts: &Facts<'_>) -> Result<(PatchForm, Value), MutationError> {
        let (form, expression) = &self.mutations[index];
        let value = expressions::evaluate_blocking(expressions::VALIDATION, |budget| {
            let mut context = self.scope.context(facts, budget);
            context.add_variable_from_value("namespaceObject", to_cel(facts.namespace));
            let failed = self.scope.set_variables(&mut context, budget);
            expression.evaluate(&context, &failed, budget)
        })?;
        Ok((*form, form.patch(&value)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_expressions::authorizer::ResourceTarget;
    use coracle_fields::Schema as _;
    use serde_json::json;
    use std::sync::Arc;

    fn with_facts<T>(spec: &Value, ask: impl Fn(&Mutations, &Facts<'_>) -> T) -> T {
        let facts = Facts {
            request: &json!({"operation": "CREATE"}),
            object: &json!({"metadata": {"name": "web"}, "spec": {"replicas": 2}}),
            old: &Value::Null,
            namespace: &json!({"metadata": {"name": "space"}}),
            params: &json!({"data": {"most": "5"}}),
            checks: &Arc::default(),
            resource: &ResourceTarget::default(),
        };
        ask(&Mutations::of(v1::MutatingAdmissionPolicySpec::of(spec)), &facts)
    }

    #[test]
    fn patches_know_the_request() {
        let spec = json!({"paramKind": {"kind": "ConfigMap"}, "variables": [
                {"name": "n", "expression": "object.spec.replicas + 1"}],
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{spec: Object.spec{replicas: variables.n, most: int(params.data.most)}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/x', value: namespaceObject.metadata.name + request.operation}]"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/x', value: variables.none}]"}}]});
        let patch = |index| with_facts(&spec, |mutations, facts| mutations.patch(index, facts));
        assert_eq!(patch(0).unwrap().1, json!({"spec": {"replicas": 3, "most": 5}}));
        assert_eq!(patch(1).unwrap().1, json!([{"op": "add", "path": "/x", "value": "spaceCREATE"}]));
        assert!(patch(2).unwrap_err().to_string().contains("no such key: none"));
    }

    #[test]
    fn conditions_decide() {
        let wanted = |condition: &str| {
            let spec = json!({"matchConditions": [{"name": "c", "expression": condition}]});
            with_facts(&spec, |mutations, facts| mutations.wanted(facts).map_err(|all| all.len()))
        };
        assert_eq!(wanted("object.spec.replicas == 2"), Ok(true));
        assert_eq!(wanted("object.spec.replicas == 3"), Ok(false));
        assert_eq!(wanted("object.nothing"), Err(1));
    }
}
