//! What the analysis needs to know from a cluster, and the trait of those who can answer.

use crate::kinds::Resource;
use serde_json::Value;
use std::fmt;

/// A question to the cluster. Each is asked at most once in a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// The objects of a resource, in one namespace or in all.
    List {
        /// Which objects.
        resource: Resource,
        /// All namespaces without one.
        namespace: Option<String>,
    },
    /// The metadata of the objects of a resource: names and labels, but no content.
    Names {
        /// Which objects.
        resource: Resource,
        /// All namespaces without one.
        namespace: Option<String>,
    },
    /// One object.
    Object {
        /// Which object.
        resource: Resource,
        /// None for cluster-scoped objects.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// The events of one object.
    Events {
        /// Namespace of the object, `default` for cluster-scoped ones.
        namespace: String,
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The last lines of a container's log.
    Log {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        pod: String,
        /// Name of the container.
        container: String,
        /// Of the previous run of the container.
        previous: bool,
    },
    /// Timelines of the newest changes of an object, also of those that were refused. Only Coracle's servers have them.
    Trace {
        /// Which object.
        resource: Resource,
        /// None for cluster-scoped objects.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// Whether a user has a permission.
    Access(Access),
    /// The resources that the server has, custom ones included.
    Resources,
    /// How far the server's clock is ahead of this machine's.
    Clock,
}

/// A permission of a user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// Such as `system:serviceaccount:shop:web`.
    pub user: String,
    /// Such as `list`.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// Resource, such as `pods`.
    pub resource: String,
    /// None for all namespaces and for cluster-scoped objects.
    pub namespace: Option<String>,
}

/// An answer of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Objects of a list, and whether there are more that were not read.
    Items(Vec<Value>, bool),
    /// An object.
    Object(Value),
    /// There is no such object, or no such resource.
    Absent,
    /// Lines of a log.
    Text(String),
    /// Whether the user has the permission.
    Allowed(bool),
    /// What the server has.
    Resources(Vec<Resource>),
    /// Seconds that the server's clock is ahead.
    Ahead(i64),
    /// The user may not know.
    Refused(String),
    /// The question could not be answered.
    Failed(String),
    /// This cluster has no such evidence.
    Unavailable,
}

/// A cluster that can be asked.
pub trait Cluster {
    /// Answers a question. Errors are answers, too.
    fn answer(&self, need: &Need) -> impl Future<Output = Answer>;
}

impl Need {
    /// The resource whose objects are asked for.
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Self::List { resource, .. } | Self::Names { resource, .. } | Self::Object { resource, .. } => {
                Some(resource)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = |namespace: &Option<String>| match namespace {
            Some(namespace) => format!(" in namespace {namespace}"),
            None => String::new(),
        };
        match self {
            Self::List { resource, namespace } => write!(f, "{}{}", resource.plural, within(namespace)),
            Self::Names { resource, namespace } => {
                write!(f, "names of {}{}", resource.plural, within(namespace))
            }
            Self::Object { resource, namespace, name } => {
                write!(f, "{}/{name}{}", resource.kind.to_lowercase(), within(namespace))
            }
            Self::Events { kind, name, namespace } => {
                write!(f, "events of {}/{name} in namespace {namespace}", kind.to_lowercase())
            }
            Self::Log { namespace, pod, container, previous } => {
                let run = if *previous { "previous log" } else { "log" };
                write!(f, "{run} of container {container} of pod/{pod} in namespace {namespace}")
            }
            Self::Trace { resource, namespace, name } => {
                write!(f, "timeline of {}/{name}{}", resource.kind.to_lowercase(), within(namespace))
            }
            Self::Access(access) => {
                write!(f, "whether {} may {} {}", access.user, access.verb, access.resource)?;
                f.write_str(&within(&access.namespace))
            }
            Self::Resources => f.write_str("resources of the server"),
            Self::Clock => f.write_str("clock of the server"),
        }
    }
}
