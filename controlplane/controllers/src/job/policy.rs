//! Pod failure policy and success policy. No clock, no tasks.

use super::indexes::Indexes;
use super::view::{FailurePolicy, FailureRule, JobPod, SuccessPolicy};

/// What a failure means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailureAction {
    /// The job fails, and why.
    FailJob(String),
    /// The pod's index fails.
    FailIndex,
    /// It does not count.
    Ignore,
    /// It counts.
    Count,
}

/// What a failed pod means by the policy.
pub fn evaluate(policy: Option<&FailurePolicy>, pod: &JobPod) -> FailureAction {
    let Some(policy) = policy else { return FailureAction::Count };
    for (at, rule) in policy.rules.iter().enumerate() {
        if let Some(why) = matches(rule, pod, at) {
            return match rule.action.as_str() {
                "FailJob" => FailureAction::FailJob(why),
                "FailIndex" => FailureAction::FailIndex,
                "Ignore" => FailureAction::Ignore,
                _ => FailureAction::Count,
            };
        }
    }
    FailureAction::Count
}

fn matches(rule: &FailureRule, pod: &JobPod, at: usize) -> Option<String> {
    let name = format!("{}/{}", pod.pod.object.meta.namespace, pod.pod.name());
    if let Some(codes) = &rule.on_exit_codes {
        let asked = |container: &str| codes.container_name.as_ref().is_none_or(|n| n == container);
        let fits = |code: i64| code != 0 && (codes.values.contains(&code) == (codes.operator == "In"));
        let (container, code) = pod.exits.iter().find(|(container, code)| asked(container) && fits(*code))?;
        return Some(format!(
            "Container {container} for pod {name} failed with exit code {code} matching {} rule at index {at}",
            rule.action
        ));
    }
    let pattern = rule.on_pod_conditions.iter().find(|pattern| {
        let status = if pattern.status.is_empty() { "True" } else { &pattern.status };
        pod.conditions.iter().any(|c| c.kind == pattern.type_ && c.status == status)
    })?;
    Some(format!("Pod {name} has condition {} matching {} rule at index {at}", pattern.type_, rule.action))
}

/// Whether the indexes that succeeded are enough, and why.
pub fn succeeded_early(policy: Option<&SuccessPolicy>, completions: i32, done: &Indexes) -> Option<String> {
    let rules = &policy?.rules;
    let met = |rule: &&super::view::SuccessRule| {
        let asked = match &rule.succeeded_indexes {
            Some(text) => Indexes::parse(text, completions),
            None => Indexes::below(completions),
        };
        let have = asked.common(done);
        let need = rule.succeeded_count.and_then(|c| usize::try_from(c).ok()).unwrap_or(asked.len());
        have >= need && need > 0
    };
    let at = rules.iter().position(|rule| met(&rule))?;
    Some(format!("Matched rules at index {at}"))
}
