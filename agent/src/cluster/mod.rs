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
pub use view::{Changes, Keep, View};

use std::pin::Pin;

/// A task of the background.
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

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
    /// The views, and the tasks that keep them; they end only with the process.
    pub fn new(client: &kube::Client) -> (Self, Vec<Task>) {
        let (services, follow_services) = View::follow(client.clone());
        let (slices, follow_slices) = View::follow(client.clone());
        let (nodes, follow_nodes) = View::follow(client.clone());
        let (namespaces, follow_namespaces) = View::follow(client.clone());
        let tasks: Vec<Task> = vec![
            Box::pin(follow_services),
            Box::pin(follow_slices),
            Box::pin(follow_nodes),
            Box::pin(follow_namespaces),
        ];
        (Cluster { services, slices, nodes, namespaces }, tasks)
    }
}
