//! Field rules of reviews of access.

use super::field_ref::{Field, FieldRef, walk_as};
use super::meta;
use coracle_fields::authorization::v1::SubjectAccessReview;
use coracle_fields::{List, Text};
use coracle_proto::status::FieldError;
use serde_json::Value;

/// The selectors that a SubjectAccessReview, or one of the kinds like it, asks about.
pub fn selectors(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<SubjectAccessReview>(object, errors, |root| {
        let resource = root.spec().resource_attributes();
        let (fields, labels) = (resource.field_selector(), resource.label_selector());
        one_form(&fields, &fields.raw_selector(), &fields.requirements());
        for term in fields.requirements().items() {
            if term.key().text().is_empty() {
                term.key().required("must be specified");
            }
            meta::match_values(term.operator().text(), &term.values());
        }
        one_form(&labels, &labels.raw_selector(), &labels.requirements());
        labels.requirements().items().for_each(|term| meta::requirement(&term, true));
    });
}

/// A selector is one text or has terms.
fn one_form<T>(selector: &FieldRef<'_>, raw: &Field<'_, Text>, terms: &Field<'_, List<T>>) {
    if !selector.is_set() {
        return;
    }
    match (raw.text().is_empty(), terms.is_empty()) {
        (false, false) => raw.invalid("may not specified at the same time as requirements"),
        (true, true) => {
            let place = selector.path();
            terms.required(&format!("when {place} is specified, requirements or rawSelector is required"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_have_one_form() {
        let term = |key: &str, operator: &str, values: &[&str]| json!({"requirements": [{"key": key, "operator": operator, "values": values}]});
        let both = json!({"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]});
        for (selector, why) in [
            (Value::Null, ""),
            (json!({"rawSelector": "a=="}), ""),
            (term("a", "In", &["x"]), ""),
            (term("a", "Exists", &[]), ""),
            (term("a", "Unknown", &["x"]), ""),
            (both, "rawSelector: Invalid value: \"a=b\": may not specified at the same time as requirements"),
            (
                json!({}),
                "requirements: Required value: when PLACE is specified, requirements or rawSelector is required",
            ),
            (
                term("a", "In", &[]),
                "requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                term("a", "Exists", &["x"]),
                "requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
        ] {
            for field in ["fieldSelector", "labelSelector"] {
                let place = format!("spec.resourceAttributes.{field}");
                let review = json!({"spec": {"resourceAttributes": {field: selector}}});
                let wanted = format!("{place}.{}", why.replace("PLACE", &place));
                let wanted = if why.is_empty() { Vec::new() } else { vec![wanted] };
                assert_eq!(errors(selectors, &review), wanted, "{review}");
            }
        }
    }

    #[test]
    fn terms_have_keys() {
        let said = |field: &str, key: &str| {
            let requirements = json!([{"key": key, "operator": "Exists"}]);
            errors(
                selectors,
                &json!({"spec": {"resourceAttributes": {field: {"requirements": requirements}}}}),
            )
        };
        let place = "spec.resourceAttributes.fieldSelector.requirements[0].key";
        assert_eq!(said("fieldSelector", ""), [format!("{place}: Required value: must be specified")]);
        assert_eq!(said("fieldSelector", "a b"), [""; 0]);
        assert!(said("labelSelector", "").concat().contains("name part must be non-empty"));
        assert!(said("labelSelector", "a b").concat().contains("name part must consist of"));
    }
}
