//! Services and the network between nodes, on one cluster of three nodes, packet by packet. Needs root.
#![allow(missing_docs, clippy::unwrap_used)]

mod place;
mod world;
mod reach;
mod families;
mod sctp;
mod host_ports;
mod policies;
mod udp;
mod faults;
mod routes;

use std::sync::{Mutex, PoisonError};
use world::World;

type Step = (&'static str, fn(&World));

/// Clusters of this suite, one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// One cluster for all: starting it costs more than any of the steps. Every step is tried; all that failed are named.
#[test]
fn services_on_three_nodes() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let world = World::start();
    let steps: &[Step] = &[
        ("pods reach each other by address", reach::pods_by_address),
        ("cluster addresses, from nodes and pods", reach::cluster_ip),
        ("ports of every node, from outside and on loopback", reach::node_ports),
        ("by name, from a pod of each node", reach::by_name),
        ("nginx with three replicas answers from all", reach::exposed_nginx),
        ("external addresses and load balancers", reach::from_outside),
        ("IPv6 beside IPv4", families::dual_stack),
        ("SCTP", sctp::services),
        ("ports of a node that lead to one pod", host_ports::host_port),
        ("a pod reaches itself", reach::hairpin),
        ("nothing there is refused at once", reach::refused),
        ("nft can print the rules", reach::printable),
        ("clients stay with their endpoint", policies::affinity),
        ("traffic stays on its node", policies::local),
        ("traffic stays near when the Service prefers that", policies::near),
        ("UDP follows its endpoints", udp::failover),
        ("rules deleted behind our back are repaired", faults::deleted_table),
        ("connections outlive the agent", faults::killed_agent),
        ("a link is cut and comes back", faults::cut_link),
        ("a node that others spoke for speaks for itself", faults::spoken_for),
        ("a Deployment rolls under load without loss", faults::rolling_update),
        ("a node that leaves is removed everywhere", faults::removed_node),
    ];
    let only = std::env::var("CORACLE_ONLY").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, step) in steps.iter().filter(|(name, _)| name.contains(&only)) {
        let begun = std::time::Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&world)));
        println!("{}: {name} ({:.1?})", if outcome.is_ok() { "ok" } else { "FAILED" }, begun.elapsed());
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        world.tell();
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// Nodes on one link need no tunnel.
#[test]
fn pods_of_two_nodes_by_routes() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    routes::without_a_tunnel();
}
