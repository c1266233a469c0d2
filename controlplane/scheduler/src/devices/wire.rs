//! The parts of claims, classes and slices of devices that scheduling reads.

use crate::wire::NodeSelector;
use coracle_fields::resource::v1;
use coracle_fields::{fields, meta};
use serde_json::Value;
use std::collections::BTreeMap;

fields! {
    /// A ResourceClaim.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Claim: v1::ResourceClaim {
        pub metadata: Meta,
        pub spec: ClaimSpec,
        pub status: ClaimStatus,
    }

    /// Metadata of a claim.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Meta: meta::ObjectMeta {
        pub name: String,
        pub namespace: String,
        pub uid: String,
        pub deletion_timestamp: Option<String>,
        pub annotations: BTreeMap<String, String>,
        pub owner_references: Vec<Owner>,
    }

    /// An owner.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Owner: meta::OwnerReference {
        pub uid: String,
        pub controller: bool,
    }

    /// What is claimed.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClaimSpec: v1::ResourceClaimSpec {
        pub devices: Wanted,
    }

    /// Requests and what their devices have in common.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Wanted: v1::DeviceClaim {
        pub requests: Vec<Request>,
        pub constraints: Vec<Constraint>,
        pub config: Vec<Value>,
    }

    /// A request for devices, or alternatives of which the first that can be had counts.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Request: v1::DeviceRequest {
        pub name: String,
        pub exactly: Option<Exactly>,
        pub first_available: Vec<Alternative>,
    }

    /// A request without alternatives.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Exactly: v1::ExactDeviceRequest {
        pub device_class_name: String,
        pub selectors: Vec<Selector>,
        pub allocation_mode: String,
        pub count: i64,
        pub admin_access: bool,
        pub tolerations: Vec<Toleration>,
        pub capacity: Option<Requirements>,
    }

    /// An alternative of a request.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Alternative: v1::DeviceSubRequest {
        pub name: String,
        pub device_class_name: String,
        pub selectors: Vec<Selector>,
        pub allocation_mode: String,
        pub count: i64,
        pub tolerations: Vec<Toleration>,
        pub capacity: Option<Requirements>,
    }

    /// Amounts of capacity.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Requirements: v1::CapacityRequirements {
        pub requests: BTreeMap<String, Value>,
    }

    /// A selector.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Selector: v1::DeviceSelector {
        pub cel: Option<Cel>,
    }

    /// An expression about a device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Cel: v1::CELDeviceSelector {
        pub expression: String,
    }

    /// A toleration of taints of devices.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Toleration: v1::DeviceToleration, written {
        pub key: String,
        pub operator: String,
        pub value: String,
        pub effect: String,
        pub toleration_seconds: Option<i64>,
    }

    /// What devices have in common.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Constraint: v1::DeviceConstraint {
        pub requests: Vec<String>,
        pub match_attribute: Option<String>,
        pub distinct_attribute: Option<String>,
    }

    /// What a claim got, and who uses it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClaimStatus: v1::ResourceClaimStatus {
        pub allocation: Option<Allocation>,
        pub reserved_for: Vec<Consumer>,
        pub devices: Vec<DeviceStatus>,
    }

    /// What a driver says of an allocated device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct DeviceStatus: v1::AllocatedDeviceStatus {
        pub driver: String,
        pub pool: String,
        pub device: String,
        pub share_id: Option<String>,
        pub conditions: Vec<Condition>,
    }

    /// A condition of a device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Condition: meta::Condition {
        pub type_: String,
        pub status: String,
        pub reason: String,
        pub message: String,
    }

    /// What a claim got.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Allocation: v1::AllocationResult {
        pub devices: Results,
        pub node_selector: Option<NodeSelector>,
    }

    /// Allocated devices.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Results: v1::DeviceAllocationResult {
        pub results: Vec<Allocated>,
    }

    /// An allocated device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Allocated: v1::DeviceRequestAllocationResult {
        pub driver: String,
        pub pool: String,
        pub device: String,
        pub admin_access: bool,
        pub share_id: Option<String>,
        pub consumed_capacity: BTreeMap<String, Value>,
        pub binding_conditions: Vec<String>,
        pub binding_failure_conditions: Vec<String>,
    }

    /// Who uses a claim.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Consumer: v1::ResourceClaimConsumerReference {
        pub uid: String,
    }

    /// A DeviceClass.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Class: v1::DeviceClass {
        pub metadata: ClassMeta,
        pub spec: ClassSpec,
    }

    /// Metadata of a class.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClassMeta: meta::ObjectMeta {
        pub creation_timestamp: Option<String>,
    }

    /// What devices of a class have, and their configuration.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClassSpec: v1::DeviceClassSpec {
        pub selectors: Vec<Selector>,
        pub config: Vec<Value>,
        pub extended_resource_name: Option<String>,
    }

    /// A ResourceSlice.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Slice: v1::ResourceSlice {
        pub spec: SliceSpec,
    }

    /// A part of a pool.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SliceSpec: v1::ResourceSliceSpec {
        pub driver: String,
        pub pool: PoolRef,
        pub node_name: String,
        pub node_selector: Option<NodeSelector>,
        pub all_nodes: bool,
        pub per_device_node_selection: bool,
        pub devices: Vec<Device>,
        pub shared_counters: Vec<CounterSet>,
    }

    /// The pool that a slice belongs to.
    #[derive(Debug, Clone, PartialEq)]
    pub struct PoolRef: v1::ResourcePool {
        pub name: String,
        pub generation: i64,
        pub resource_slice_count: i64,
    }

    /// A device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Device: v1::Device {
        pub name: String,
        pub attributes: BTreeMap<String, Attribute>,
        pub capacity: BTreeMap<String, Capacity>,
        pub consumes_counters: Vec<Consumption>,
        pub node_name: String,
        pub node_selector: Option<NodeSelector>,
        pub all_nodes: bool,
        pub taints: Vec<Taint>,
        pub binds_to_node: bool,
        pub binding_conditions: Vec<String>,
        pub binding_failure_conditions: Vec<String>,
        pub allow_multiple_allocations: bool,
    }

    /// An attribute; one of the values is set.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Attribute: v1::DeviceAttribute {
        pub int: Option<i64>,
        pub bool: Option<bool>,
        pub string: Option<String>,
        pub version: Option<String>,
    }

    /// A capacity.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Capacity: v1::DeviceCapacity {
        pub value: Value,
        pub request_policy: Option<CapacityPolicy>,
    }

    /// Which amounts of a capacity can be taken.
    #[derive(Debug, Clone, PartialEq)]
    pub struct CapacityPolicy: v1::CapacityRequestPolicy {
        pub default_: Option<Value>,
        pub valid_values: Vec<Value>,
        pub valid_range: Option<CapacityRange>,
    }

    /// A range of amounts.
    #[derive(Debug, Clone, PartialEq)]
    pub struct CapacityRange: v1::CapacityRequestPolicyRange {
        pub min: Option<Value>,
        pub max: Option<Value>,
        pub step: Option<Value>,
    }

    /// What a device takes from a set of counters.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Consumption: v1::DeviceCounterConsumption {
        pub counter_set: String,
        pub counters: BTreeMap<String, Counter>,
    }

    /// A set of counters.
    #[derive(Debug, Clone, PartialEq)]
    pub struct CounterSet: v1::CounterSet {
        pub name: String,
        pub counters: BTreeMap<String, Counter>,
    }

    /// A counter.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Counter: v1::Counter {
        pub value: Value,
    }

    /// A taint of a device.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Taint: v1::DeviceTaint {
        pub key: String,
        pub value: String,
        pub effect: String,
    }
}

impl Toleration {
    /// Whether it tolerates a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let is_about = |own: &str, taint: &str| own.is_empty() || own == taint;
        is_about(&self.effect, &taint.effect)
            && is_about(&self.key, &taint.key)
            && (self.operator == "Exists" || self.value == taint.value)
    }
}

impl Claim {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Whether it is reserved for a consumer.
    pub fn is_reserved_for(&self, uid: &str) -> bool {
        self.status.reserved_for.iter().any(|consumer| consumer.uid == uid)
    }

    /// Whether it was made for a pod.
    pub fn is_made_for(&self, uid: &str) -> bool {
        self.metadata.owner_references.iter().any(|owner| owner.controller && owner.uid == uid)
    }
}
