//! Links and addresses between the namespaces: a bridge in the hub, a veth pair to every node.

use super::state::Process;
use anyhow::{Context, bail};
use std::process::Command;

const BRIDGE: &str = "hub0";

/// Runs `ip` inside a holder's network namespace.
fn ip(holder: &Process, line: &str) -> anyhow::Result<()> {
    let output = Command::new("nsenter")
        .args([&format!("--net=/proc/{}/ns/net", holder.pid), "ip"])
        .args(line.split_whitespace())
        .output()
        .context("nsenter and ip are needed (packages util-linux, iproute2)")?;
    if !output.status.success() {
        bail!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The bridge that joins the nodes, with the server's address.
pub fn make_hub(hub: &Process, address: &str) -> anyhow::Result<()> {
    ip(hub, "link set lo up")?;
    ip(hub, &format!("link add {BRIDGE} type bridge forward_delay 0"))?;
    ip(hub, &format!("addr add {address}/24 dev {BRIDGE}"))?;
    ip(hub, &format!("link set {BRIDGE} up"))
}

/// Gives a node an IPv6 address beside the other one, and the hub one to reach it from; returns the node's.
pub fn attach_ipv6(hub: &Process, node: &Process, number: usize) -> anyhow::Result<String> {
    let address = format!("fd89::{:x}", 16 + number);
    ip(hub, &format!("addr replace fd89::1/64 dev {BRIDGE} nodad"))?;
    ip(node, &format!("addr replace {address}/64 dev eth0 nodad"))?;
    ip(node, "route replace default via fd89::1")?;
    Ok(address)
}

/// Joins a node to the bridge; returns its address.
pub fn attach(hub: &Process, node: &Process, number: usize, gateway: &str) -> anyhow::Result<String> {
    let address = format!("10.89.0.{}", 10 + number);
    let port = format!("node{number}");
    ip(hub, &format!("link add {port} type veth peer name eth0 netns {}", node.pid))?;
    ip(hub, &format!("link set {port} master {BRIDGE} up"))?;
    ip(node, "link set lo up")?;
    ip(node, &format!("addr add {address}/24 dev eth0"))?;
    ip(node, "link set eth0 up")?;
    ip(node, &format!("route add default via {gateway}"))?;
    Ok(address)
}
