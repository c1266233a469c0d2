//! Watched state of the cluster: one watch per kind, decoded into the fields that this node needs, and shared by service
//! variables, proxy, DNS, policies and the node network.

// Cheaply clonable names.
mod name;
// The writes that changed objects.
mod origin;
// A shared cache of one kind, filled by a watch.
mod reflector;
// Services whose first DNS answer is awaited.
mod awaited;
// Decodes only the fields that are kept.
pub mod wire;
// Services.
mod service;
// Endpoints of services.
mod slice;
// Nodes.
mod node;
// Namespaces.
mod namespace;

pub use awaited::AwaitedNames;
pub use name::Name;
pub use namespace::Namespace;
pub use node::Node;
pub use origin::{Changed, Origin};
pub use reflector::{Changes, FromWire, Heard, Make, Reflector};
pub use service::{External, Port, Protocol, Service};
pub use slice::{Endpoint, Slice, SlicePort};

use coracle_cli::supervise::Supervisor;

/// The cluster as this node sees it.
#[derive(Clone)]
pub struct Cluster {
    /// Every Service.
    pub services: Reflector<Service>,
    /// Every EndpointSlice, by Service.
    pub slices: Reflector<Slice>,
    /// Every Node.
    pub nodes: Reflector<Node>,
    /// Every Namespace.
    pub namespaces: Reflector<Namespace>,
}

impl Cluster {
    /// The reflectors, and the named tasks that run them until the process ends. `heard` hears of writes of Services.
    pub fn new(
        client: &kube::Client,
        supervisor: &Supervisor,
        heard: Option<Heard>,
    ) -> (Self, Vec<(String, Make)>) {
        let (services, follow_services) = Reflector::follow_heard(client.clone(), supervisor, heard);
        let (slices, follow_slices) = Reflector::follow(client.clone(), supervisor);
        let (nodes, follow_nodes) = Reflector::follow(client.clone(), supervisor);
        let (namespaces, follow_namespaces) = Reflector::follow(client.clone(), supervisor);
        let tasks = vec![
            (Reflector::<Service>::task(), follow_services),
            (Reflector::<Slice>::task(), follow_slices),
            (Reflector::<Node>::task(), follow_nodes),
            (Reflector::<Namespace>::task(), follow_namespaces),
        ];
        (Cluster { services, slices, nodes, namespaces }, tasks)
    }
}
