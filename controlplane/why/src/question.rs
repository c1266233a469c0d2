//! What a program asks: the query of a request, answered as `coracle why -o json` does.

use crate::cluster::Cluster;
use crate::report::Report;
use crate::run::{everything, objects};
use crate::target::{Problem, is_name};

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Question {
    /// One object.
    Object {
        /// Such as `deployments.apps`; any name of the kind that a user may write.
        resource: String,
        /// That of the context without one.
        namespace: Option<String>,
        /// Name of the object.
        name: String,
    },
    /// Everything that is not well.
    Everything {
        /// All namespaces without one.
        namespace: Option<String>,
    },
}

impl Question {
    /// From the parameters `resource`, `namespace` and `name`; without `resource` and `name` it is about everything.
    pub fn from_query(query: &str) -> Result<Self, Problem> {
        let parameter = |wanted: &str| -> Result<Option<String>, Problem> {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            let found = pairs.find(|(name, value)| name == wanted && !value.is_empty());
            match found {
                // The names become parts of the paths of requests.
                Some((_, value)) if !is_name(&value) => {
                    Err(Problem::Usage(format!("parameter {wanted}: {value:?} is no name")))
                }
                found => Ok(found.map(|(_, value)| value.into_owned())),
            }
        };
        let namespace = parameter("namespace")?;
        let missing = |name: &str| Err(Problem::Usage(format!("parameter {name} is missing")));
        match (parameter("resource")?, parameter("name")?) {
            (Some(resource), Some(name)) => Ok(Self::Object { resource, namespace, name }),
            (None, None) => Ok(Self::Everything { namespace }),
            (None, Some(_)) => missing("resource"),
            (Some(_), None) => missing("name"),
        }
    }

    /// Runs the analysis. `context` is the namespace where none is named.
    pub async fn ask<C: Cluster>(&self, cluster: &C, context: &str) -> Result<Report, Problem> {
        match self {
            Self::Object { resource, namespace, name } => {
                let namespace = namespace.as_deref().unwrap_or(context);
                objects(cluster, namespace, &[(resource.clone(), name.clone())]).await
            }
            Self::Everything { namespace } => Ok(everything(cluster, namespace.as_deref(), context).await),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn queries() {
        let text = |text: &str| Some(text.to_owned());
        let object = |resource: &str, namespace: Option<String>, name: &str| Question::Object {
            resource: resource.to_owned(),
            namespace,
            name: name.to_owned(),
        };
        for (query, question) in [
            ("", Question::Everything { namespace: None }),
            ("namespace=shop", Question::Everything { namespace: text("shop") }),
            ("resource=pods&namespace=shop&name=web-0", object("pods", text("shop"), "web-0")),
            ("resource=deployments.apps&name=web", object("deployments.apps", None, "web")),
            ("resource=nodes&namespace=&name=n1", object("nodes", None, "n1")),
            ("resource=clusterroles&name=system%3Anode", object("clusterroles", None, "system:node")),
        ] {
            assert_eq!(Question::from_query(query).unwrap(), question, "{query}");
        }
    }

    /// Names become parts of paths.
    #[test]
    fn what_would_change_the_path_of_a_request_is_refused() {
        for query in [
            "resource=pods",
            "name=web",
            "resource=pods&name=web%2Fexec",
            "resource=pods&name=..",
            "resource=pods&name=web%3Fwatch=1",
            "resource=pods&namespace=a%2Fpods%2Fb%2Fproxy&name=web",
            "namespace=..%2F..",
            "namespace=a%20b",
        ] {
            assert!(matches!(Question::from_query(query), Err(Problem::Usage(_))), "{query}");
        }
    }
}
