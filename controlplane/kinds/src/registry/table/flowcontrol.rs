//! Priority and fairness.

use crate::registry::columns;
use crate::registry::kinds::Kind;
use coracle_validation::defaults;
use coracle_validation::flow;

fn row(kind: &str, plural: &str) -> Kind {
    Kind::new("flowcontrol.apiserver.k8s.io", "v1", kind, plural)
}

/// The kinds.
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        row("FlowSchema", "flowschemas")
            .cluster()
            .status_only()
            .generation()
            .columns(columns::flow_schema())
            .defaults(defaults::flow::flow_schema)
            .validate(flow::schema, |_, _, _| ()),
        row("PriorityLevelConfiguration", "prioritylevelconfigurations")
            .cluster()
            .status_only()
            .generation()
            .columns(columns::priority_level())
            .defaults(defaults::flow::priority_level)
            .validate(flow::level, |_, _, _| ()),
    ]
}
