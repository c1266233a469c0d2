//! When the devices of a claim make its pods leave. No clock, no tasks.

use coracle_fields::fields;
use coracle_fields::resource::v1;
use coracle_informer::time;
use jiff::Timestamp;

const NO_EXECUTE: &str = "NoExecute";

fields! {
    /// A ResourceSlice, as far as its taints are concerned.
    #[derive(Debug)]
    pub struct Slice: v1::ResourceSlice {
        /// Its content.
        pub spec: SliceSpec,
    }

    /// A part of a pool.
    #[derive(Debug)]
    pub struct SliceSpec: v1::ResourceSliceSpec {
        /// Name of the driver.
        pub driver: String,
        /// The pool.
        pub pool: PoolRef,
        /// Its devices.
        pub devices: Vec<Device>,
    }

    /// The pool that a slice belongs to.
    #[derive(Debug)]
    pub struct PoolRef: v1::ResourcePool {
        /// Name.
        pub name: String,
        /// Only slices of the newest generation count.
        pub generation: i64,
    }

    /// A device.
    #[derive(Debug)]
    pub struct Device: v1::Device {
        /// Name within its pool.
        pub name: String,
        /// Taints.
        pub taints: Vec<Taint>,
    }

    /// A taint of a device.
    #[derive(Debug)]
    pub struct Taint: v1::DeviceTaint {
        key: String,
        value: String,
        effect: String,
        time_added: Option<String>,
    }

    /// An allocated device.
    #[derive(Debug)]
    pub struct Allocated: v1::DeviceRequestAllocationResult {
        /// Name of the driver.
        pub driver: String,
        /// Its pool.
        pub pool: String,
        /// Its name.
        pub device: String,
        tolerations: Vec<Toleration>,
    }

    /// A toleration of taints of devices.
    #[derive(Debug)]
    pub struct Toleration: v1::DeviceToleration {
        key: String,
        operator: String,
        value: String,
        effect: String,
        toleration_seconds: Option<i64>,
    }
}

impl Toleration {
    fn tolerates(&self, taint: &Taint) -> bool {
        let is_about = |own: &str, taint: &str| own.is_empty() || own == taint;
        is_about(&self.effect, &taint.effect)
            && is_about(&self.key, &taint.key)
            && (self.operator == "Exists" || self.value == taint.value)
    }
}

/// When the pods of a claim must leave because of one of its devices, with the slices of the device's pool; `None` for never.
/// Of several tolerations of a taint the shortest counts. A taint without a time counts from `since`.
pub fn leave_at(allocated: &Allocated, pool: &[&Slice], since: Timestamp) -> Option<Timestamp> {
    let newest = pool.iter().map(|slice| slice.spec.pool.generation).max()?;
    let slices = pool.iter().filter(|slice| slice.spec.pool.generation == newest);
    let device = slices.flat_map(|slice| &slice.spec.devices).find(|one| one.name == allocated.device)?;
    let taints = device.taints.iter().filter(|taint| taint.effect == NO_EXECUTE);
    taints
        .filter_map(|taint| {
            let added = time::parse(taint.time_added.as_deref()).unwrap_or(since);
            let matching: Vec<Option<i64>> = allocated
                .tolerations
                .iter()
                .filter(|toleration| toleration.tolerates(taint))
                .map(|toleration| toleration.toleration_seconds)
                .collect();
            if matching.contains(&None) {
                return None;
            }
            let seconds = matching.into_iter().flatten().min();
            Some(seconds.map_or(added, |seconds| time::after(added, seconds.max(0))))
        })
        .min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: i64) -> Timestamp {
        time::after(Timestamp::UNIX_EPOCH, seconds)
    }

    fn slice(generation: i64, taints: Value) -> Slice {
        serde_json::from_value(
            json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": generation},
            "devices": [{"name": "other"}, {"name": "gpu", "taints": taints}]}}),
        )
        .unwrap()
    }

    fn allocated(tolerations: Value) -> Allocated {
        let result = json!({"driver": "d", "pool": "p", "device": "gpu", "tolerations": tolerations});
        serde_json::from_value(result).unwrap()
    }

    fn when(taints: Value, tolerations: Value) -> Option<Timestamp> {
        leave_at(&allocated(tolerations), &[&slice(1, taints)], at(7))
    }

    #[test]
    fn pods_leave_at_the_time_of_the_taint_plus_the_shortest_toleration() {
        let taint = json!({"key": "broken", "value": "yes", "effect": "NoExecute",
            "timeAdded": "1970-01-01T00:01:40Z"});
        let forever =
            |operator: &str, value: &str| json!({"key": "broken", "operator": operator, "value": value});
        let mut short = forever("Exists", "");
        short["tolerationSeconds"] = json!(10);
        let mut long = short.clone();
        long["tolerationSeconds"] = json!(60);
        let mut negative = short.clone();
        negative["tolerationSeconds"] = json!(-60);
        let mut other_effect = forever("Exists", "");
        other_effect["effect"] = json!("NoSchedule");
        for (tolerations, want) in [
            (json!([]), Some(at(100))),
            (json!([short]), Some(at(110))),
            (json!([long, short]), Some(at(110))),
            (json!([negative]), Some(at(100))),
            (json!([short, forever("Exists", "")]), None),
            (json!([{"operator": "Exists"}]), None),
            (json!([forever("Equal", "yes")]), None),
            (json!([forever("Equal", "no")]), Some(at(100))),
            (json!([other_effect]), Some(at(100))),
            (json!([{"key": "else", "operator": "Exists"}]), Some(at(100))),
        ] {
            assert_eq!(when(json!([taint]), tolerations.clone()), want, "{tolerations}");
        }
        let mut earlier = taint.clone();
        earlier["timeAdded"] = json!("1970-01-01T00:00:50Z");
        assert_eq!(when(json!([taint, earlier]), json!([])), Some(at(50)));
        let mut undated = taint.clone();
        undated["timeAdded"] = Value::Null;
        assert_eq!(when(json!([undated]), json!([])), Some(at(7)));
        let mut mild = taint;
        mild["effect"] = json!("NoSchedule");
        assert_eq!(when(json!([mild]), json!([])), None);
    }

    #[test]
    fn only_the_newest_generation_of_a_pool_counts() {
        let tainted = slice(1, json!([{"key": "broken", "effect": "NoExecute"}]));
        let healthy = slice(2, json!([]));
        let result = allocated(json!([]));
        assert_eq!(leave_at(&result, &[&tainted], at(0)), Some(at(0)));
        assert_eq!(leave_at(&result, &[&tainted, &healthy], at(0)), None);
        assert_eq!(leave_at(&result, &[], at(0)), None);
    }
}
