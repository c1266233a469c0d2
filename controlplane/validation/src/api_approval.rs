//! Approval of definitions whose group belongs to the Kubernetes community.

use crate::field_ref::walk_as;
use coracle_fields::apiextensions::v1::CustomResourceDefinition;
use coracle_fields::{Schema as _, View};
use coracle_proto::status::FieldError;
use serde_json::Value;

const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// What the annotation of a definition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Missing,
    Invalid,
    Unapproved,
    Approved,
}

/// A condition of a definition.
#[derive(Debug, PartialEq, Eq)]
pub struct Conformance {
    /// `True` or `False`.
    pub status: &'static str,
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|own| group == *own || group.strip_suffix(own).is_some_and(|rest| rest.ends_with('.')))
}

/// Whether a text is an absolute URL with a host.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    named && !host.is_empty() && !text.contains(|c: char| c.is_ascii_control() || c == ' ')
}

fn state(definition: View<'_, CustomResourceDefinition>) -> (State, String) {
    let text = definition.metadata().annotations().key(ANNOTATION).text();
    if text.is_empty() {
        let message = format!("protected groups must have approval annotation {ANNOTATION:?}, {SEE}");
        (State::Missing, message)
    } else if text.starts_with("unapproved") {
        (State::Unapproved, format!("not approved: {text:?}"))
    } else if is_url(text) {
        (State::Approved, format!("approved in {text}"))
    } else {
        let message = format!(
            "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \
             \"unapproved\", {SEE}"
        );
        (State::Invalid, message)
    }
}

/// The condition `KubernetesAPIApprovalPolicyConformant`; none for groups that need no approval.
pub fn conformance(definition: View<'_, CustomResourceDefinition>) -> Option<Conformance> {
    if !is_protected(definition.spec().group().text()) {
        return None;
    }
    let (state, message) = state(definition);
    let (status, reason) = match state {
        State::Missing => ("False", "MissingAnnotation"),
        State::Invalid => ("False", "InvalidAnnotation"),
        State::Unapproved => ("False", "UnapprovedAnnotation"),
        State::Approved => ("True", "ApprovedAnnotation"),
    };
    Some(Conformance { status, reason, message })
}

/// A new definition of a protected group says who has approved it.
pub fn new_definition(object: &Value, errors: &mut Vec<FieldError>) {
    check(object, None, errors);
}

/// An update may leave the annotation as it is.
pub fn changed(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    check(new, Some(old), errors);
}

fn check(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    walk_as::<CustomResourceDefinition>(new, errors, |root| {
        if !is_protected(root.view().spec().group().text()) {
            return;
        }
        let (now, why) = state(root.view());
        let before = old.map(|old| state(CustomResourceDefinition::of(old)).0);
        if before == Some(now) {
            return;
        }
        let annotation = root.metadata().annotations().key(ANNOTATION);
        match now {
            State::Missing => annotation.required(&why),
            State::Invalid => annotation.invalid(why),
            State::Unapproved | State::Approved => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{changes, errors};
    use serde_json::json;

    fn definition(group: &str, approval: &str) -> Value {
        json!({"metadata": {"annotations": {ANNOTATION: approval}}, "spec": {"group": group}})
    }

    #[test]
    fn definitions_of_the_community_need_approval() {
        let none: Vec<String> = Vec::new();
        let refused = |group: &str, approval: &str| errors(new_definition, &definition(group, approval));
        for fine in ["https://github.com/kubernetes/enhancements/pull/1", "unapproved, for tests"] {
            assert_eq!(refused("x.k8s.io", fine), none);
        }
        assert_eq!(refused("example.com", ""), none);
        assert_eq!(refused("xk8s.io", ""), none);
        assert_eq!(
            refused("kubernetes.io", ""),
            [
                "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
              annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
            ]
        );
        for wrong in ["yes", "https://", "1http://a", "http://a b"] {
            let refused = refused("x.k8s.io", wrong);
            assert!(refused.len() == 1 && refused[0].contains("Invalid value"), "{wrong} {refused:?}");
        }
        let (missing, bad) = (definition("x.k8s.io", ""), definition("x.k8s.io", "yes"));
        assert_eq!(changes(changed, &missing, &missing), none, "what was stored without it can be updated");
        assert_eq!(changes(changed, &bad, &missing).len(), 1);
        let conform = |approval: &str| {
            conformance(CustomResourceDefinition::of(&definition("x.k8s.io", approval))).map(|c| c.reason)
        };
        assert_eq!(conform("http://a/b"), Some("ApprovedAnnotation"));
        assert_eq!(conform("unapproved"), Some("UnapprovedAnnotation"));
        assert_eq!(conformance(CustomResourceDefinition::of(&definition("example.com", ""))), None);
    }
}
