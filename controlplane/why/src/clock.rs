//! The clocks of this machine and of the API server.

use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;

/// Seconds that clocks may differ: tokens and certificates become invalid beyond a few.
const TOLERATED: i64 = 10;

/// A difference between this machine's clock and the server's.
pub fn explain(world: &World) -> Option<Finding> {
    let ahead = world.server_ahead()?;
    if ahead.abs() <= TOLERATED {
        return None;
    }
    let object = ObjectRef {
        api_version: String::new(),
        kind: "Server".to_owned(),
        namespace: String::new(),
        name: "kube-apiserver".to_owned(),
    };
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let cause = format!("the clock of the API server is {} s {direction} that of this machine", ahead.abs());
    let finding = Finding::new(object, Trouble::ClockSkew, cause)
        .evidence("time of this machine", world.now().to_string())
        .remedy("synchronize both clocks, for example with chrony or systemd-timesyncd");
    Some(finding)
}
