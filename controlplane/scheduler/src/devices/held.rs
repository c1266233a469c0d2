//! What claims have of devices.

use super::DeviceId;
use super::capacity::{Amounts, amounts};
use super::wire::Claim;
use coracle_proto::quantity::Quantity;

/// What a claim has of a device: all of it, or a share of its capacity.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) id: DeviceId,
    pub(super) share: Option<Amounts>,
}

/// What claims have of a device.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// How many claims have all of it.
    pub(super) alone: u32,
    /// How many have a share.
    pub(super) shares: u32,
    /// What the shares take.
    pub(super) consumed: Amounts,
}

impl Held {
    pub(super) fn change(&mut self, share: Option<&Amounts>, sign: i32) {
        let Some(share) = share else {
            self.alone = self.alone.saturating_add_signed(sign);
            return;
        };
        self.shares = self.shares.saturating_add_signed(sign);
        for (name, amount) in share {
            let sum = self.consumed.entry(name.clone()).or_insert_with(Quantity::zero);
            if sign > 0 { sum.add(amount) } else { sum.sub(amount) }
        }
    }
}

/// Devices that a claim keeps from others.
pub(super) fn held_by(claim: &Claim) -> Vec<Hold> {
    let results = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let held = results.filter(|result| !result.admin_access);
    held.map(|result| Hold {
        id: DeviceId::new(&result.driver, &result.pool, &result.device),
        share: result.share_id.as_ref().map(|_| amounts(&result.consumed_capacity)),
    })
    .collect()
}
