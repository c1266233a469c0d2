//! What this node knows of the cluster: one watch per kind, decoded into the few fields that somebody here needs, and
//! shared by service variables, proxy, DNS, policies and the node network.

// Names that are cheap to hand around.
mod name;
// Any kind, followed and shared.
mod view;
// Decoding only what is kept.
pub mod wire;
// Services.
mod service;
// Endpoints of services.
mod slice;
// Nodes.
mod node;
// Namespaces.
mod namespace;

pub use name::Name;
pub use namespace::Namespace;
pub use node::Node;
pub use service::{External, Port, Protocol, Service};
pub use slice::{Endpoint, Slice, SlicePort};
pub use view::{Changes, Keep, Make, View};

use coracle_cli::supervise::Supervisor;

/// The cluster as this node sees it.
#[derive(Clone)]
pub struct Cluster {
    /// Every Service.
    pub services: View<Service>,
    /// Every EndpointSlice, by Service.
    pub slices: View<Slice>,
    /// Every Node.
    pub nodes: View<Node>,
    /// Every Namespace.
    pub namespaces: View<Namespace>,
}

impl Cluster {
    /// The views, and the tasks that keep them, by name; they end only with the process.
    pub fn new(client: &kube::Client, supervisor: &Supervisor) -> (Self, Vec<(String, Make)>) {
        let (services, follow_services) = View::follow(client.clone(), supervisor);
        let (slices, follow_slices) = View::follow(client.clone(), supervisor);
        let (nodes, follow_nodes) = View::follow(client.clone(), supervisor);
        let (namespaces, follow_namespaces) = View::follow(client.clone(), supervisor);
        let tasks = vec![
            (View::<Service>::task(), follow_services),
            (View::<Slice>::task(), follow_slices),
            (View::<Node>::task(), follow_nodes),
            (View::<Namespace>::task(), follow_namespaces),
        ];
        (Cluster { services, slices, nodes, namespaces }, tasks)
    }
}
