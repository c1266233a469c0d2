//! Links that are made in the network namespace of this thread, to see whether the kernel can.

use anyhow::Context;
use coracle_cni::netns::Netns;
use coracle_cni::route::{Route, VethPair, Vxlan};
use std::net::Ipv4Addr;

/// The index of the loopback link, the same in every network namespace.
const LOOPBACK: u32 = 1;
const MAC: [u8; 6] = [0x0a, 0x59, 0, 0, 0, 1];

/// Makes a veth pair.
pub fn veth() -> anyhow::Result<()> {
    let here = Netns::current().context("network namespace")?;
    Route::here()?.create_veth(&VethPair {
        host_name: "coracle-a",
        master: 0,
        peer_name: "coracle-b",
        peer_netns: &here,
        peer_mac: None,
        mtu: 0,
    })?;
    Ok(())
}

/// Makes a bridge.
pub fn bridge() -> anyhow::Result<()> {
    Ok(Route::here()?.create_bridge("coracle-br", 0, MAC)?)
}

/// Makes a tunnel.
pub fn vxlan() -> anyhow::Result<()> {
    Route::here()?.create_vxlan(&Vxlan {
        name: "coracle-vx",
        id: 77,
        port: 8472,
        local: Ipv4Addr::LOCALHOST.into(),
        below: LOOPBACK,
        mac: MAC,
        mtu: 1450,
    })?;
    Ok(())
}
