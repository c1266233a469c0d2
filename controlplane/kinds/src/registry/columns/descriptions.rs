//! What the columns of built-in kinds mean, for clients that show the definitions of a table.

use super::Column;
use std::borrow::Cow;

/// The columns of a kind, each with its description.
pub fn described(kind: &str, mut columns: Vec<Column>) -> Vec<Column> {
    for column in &mut columns {
        column.description = Cow::Borrowed(of(kind, &column.name));
    }
    columns
}

/// By kind where kinds mean different things by a column, or else by its name.
fn of(kind: &str, column: &str) -> &'static str {
    let own = match kind {
        "CSIDriver"
        | "CSINode"
        | "StorageClass"
        | "VolumeAttachment"
        | "VolumeAttributesClass"
        | "PersistentVolume"
        | "PersistentVolumeClaim" => of_storage(kind, column),
        "ResourceClaim"
        | "ResourceSlice"
        | "PriorityClass"
        | "PriorityLevelConfiguration"
        | "FlowSchema"
        | "RuntimeClass"
        | "Lease"
        | "ComponentStatus"
        | "Node"
        | "ResourceQuota" => of_cluster(kind, column),
        "Service" | "Endpoints" | "EndpointSlice" | "Ingress" | "IngressClass" | "IPAddress" => {
            of_network(kind, column)
        }
        "Event" => of_events(column),
        _ => of_workloads(kind, column),
    };
    own.unwrap_or_else(|| of_any(column))
}

fn of_workloads(kind: &str, column: &str) -> Option<&'static str> {
    Some(match (kind, column) {
        ("Pod", "Ready") => "Number of containers that are ready, and number of containers of the pod.",
        ("Pod", "Status") => "Phase of the pod, or the reason why its containers do not run.",
        ("Job", "Status") => "State that follows from the conditions of the Job.",
        ("Namespace", "Status") => "Phase of the namespace: Active or Terminating.",
        ("Deployment" | "StatefulSet", "Ready") => {
            "Number of pods that are ready, and number of pods wanted."
        }
        ("DaemonSet", "Desired") => "Number of nodes that should run a pod of the DaemonSet.",
        ("DaemonSet", "Current") => "Number of nodes that run at least one pod and should.",
        ("DaemonSet", "Ready") => "Number of nodes whose pod is ready.",
        ("DaemonSet", "Up-to-date") => "Number of nodes whose pod has the current template.",
        ("DaemonSet", "Available") => "Number of nodes whose pod has been ready for minReadySeconds.",
        ("Scale", "Available") => "Number of pods that were observed.",
        ("ControllerRevision", "Controller") => "Owner of the revision.",
        ("APIService", "Service") => "Service that serves the group version, or Local.",
        ("APIService", "Available") => "Whether the group version is served, or why not.",
        ("CertificateSigningRequest", "Condition") => {
            "Whether the request is pending, approved, denied or failed, and whether a certificate was issued."
        }
        ("Secret", "Type") => "Type of the Secret, which says which keys it must have.",
        ("PodTemplate", "Containers") => "Names of the containers of the template.",
        _ => return None,
    })
}

fn of_storage(kind: &str, column: &str) -> Option<&'static str> {
    Some(match (kind, column) {
        ("PersistentVolume", "Status") => {
            "Phase of the volume: Pending, Available, Bound, Released or Failed."
        }
        ("PersistentVolume", "Capacity") => "Size of the volume.",
        ("PersistentVolume", "Access Modes") => "All ways in which the volume can be mounted.",
        ("PersistentVolume", "Reason") => "Short reason of a failed phase.",
        ("PersistentVolumeClaim", "Status") => "Phase of the claim: Pending, Bound or Lost.",
        ("PersistentVolumeClaim", "Capacity") => "Size of the bound volume.",
        ("PersistentVolumeClaim", "Access Modes") => "Ways in which the bound volume can be mounted.",
        ("VolumeAttachment", "Node") => "Node that the volume is to be attached to.",
        ("CSIDriver", "Modes") => "Kinds of volumes that the driver supports: Persistent, Ephemeral.",
        _ => return None,
    })
}

fn of_cluster(kind: &str, column: &str) -> Option<&'static str> {
    Some(match (kind, column) {
        ("Node", "Status") => "Whether the node is ready, and whether pods may be scheduled to it.",
        ("Node", "External-IP") => "Address of the node that is reachable from outside the cluster.",
        ("ComponentStatus", "Status") => "Healthy or Unhealthy.",
        ("ComponentStatus", "Message") => "Answer of the health check.",
        ("PriorityClass", "Value") => "Priority of pods of this class; higher is more important.",
        ("PriorityLevelConfiguration", "Type") => {
            "Limited, or Exempt for requests that are never queued or refused."
        }
        ("ResourceSlice", "Node") => "Node that has the devices, if it is a single one.",
        ("ResourceSlice", "Driver") => "Driver that publishes the devices.",
        ("ResourceClaim", "State") => {
            "Whether devices are allocated, and whether they are reserved for pods."
        }
        _ => return None,
    })
}

fn of_network(kind: &str, column: &str) -> Option<&'static str> {
    Some(match (kind, column) {
        ("Service", "Type") => {
            "How the Service is exposed: ClusterIP, NodePort, LoadBalancer or ExternalName."
        }
        ("Service", "External-IP") => "Addresses or name by which the Service is reached from outside.",
        ("Service", "Selector") => "Labels of the pods that traffic is sent to.",
        ("EndpointSlice", "Ports") => "Ports of the endpoints.",
        ("EndpointSlice", "Endpoints") => "Addresses of the endpoints.",
        ("Endpoints", "Endpoints") => "Addresses and ports that are ready.",
        ("Ingress", "Ports") => "80, and 443 with TLS.",
        ("IngressClass", "Controller") => "Name of the controller that serves Ingresses of this class.",
        _ => return None,
    })
}

fn of_events(column: &str) -> Option<&'static str> {
    Some(match column {
        "Last Seen" => "How long ago the event was observed for the last time.",
        "Type" => "Normal or Warning.",
        "Reason" => "Short reason in one word, for programs.",
        "Object" => "Object that the event is about.",
        "Subobject" => "Part of the object that the event is about.",
        "Source" => "Component that reported the event, and its node.",
        "Message" => "What happened, for people.",
        "First Seen" => "How long ago the event was observed for the first time.",
        "Count" => "How often the event was observed.",
        _ => return None,
    })
}

fn of_any(column: &str) -> &'static str {
    match column {
        "Name" => "Name of the object, unique among the objects of this resource in its namespace.",
        "Age" => "Time since the object was created.",
        "Created At" => "Time at which the object was created.",
        "Access Modes" => "Ways in which the volume can be mounted.",
        "Active" => "Number of Jobs that run.",
        "Address" => "Addresses at which the load balancer is reached.",
        "AddressType" => "Type of the addresses: IPv4, IPv6 or FQDN.",
        "AllowVolumeExpansion" => "Whether claims of this class may grow.",
        "Allowed Disruptions" => "Number of pods that may be evicted now.",
        "AttachRequired" => "Whether volumes are attached to nodes before they are mounted.",
        "Attached" => "Whether the volume is attached.",
        "Attacher" => "Driver that attaches the volume.",
        "Available" => "Number of pods that have been ready for minReadySeconds.",
        "CIDRs" => "Ranges from which Services get addresses.",
        "Claim" => "Claim that the volume is bound to.",
        "Class" => "Class of the Ingress, which says who serves it.",
        "Cluster-IP" => "Address of the Service inside the cluster.",
        "Completions" => "Number of pods that succeeded, and number wanted.",
        "Container-Runtime" => "Container runtime of the node and its version.",
        "Containers" => "Names of the containers in the pod template.",
        "Current" => "Number of pods that exist.",
        "Data" => "Number of entries.",
        "Desired" => "Number of pods wanted.",
        "DistinguisherMethod" => "What separates flows of requests: the user, the namespace, or nothing.",
        "Driver" | "DriverName" => "Name of the driver.",
        "Drivers" => "Number of CSI drivers on the node.",
        "Duration" => "How long the Job took, or has been running.",
        "Error" => "Why the check failed.",
        "Global-Default" => "Whether pods without a priority class get this one.",
        "Groups" => "Groups that get the role.",
        "HandSize" => "Number of queues that the requests of a flow are spread over.",
        "Handler" => "Handler that the nodes configure for this class.",
        "Holder" => "Identity of the current holder.",
        "Hosts" => "Host names of the rules.",
        "IP" => "Address of the pod.",
        "Images" => "Images of the containers in the pod template.",
        "Internal-IP" => "Address of the node inside the cluster.",
        "Kernel-Version" => "Version of the kernel of the node.",
        "Last Schedule" => "Time since a Job was last scheduled.",
        "Limit" => "Limits of containers: used, and allowed.",
        "MatchingPrecedence" => "Order in which schemas are matched with a request; the lowest comes first.",
        "Max Unavailable" => "Number or percentage of pods that may be unavailable after an eviction.",
        "MaxPods" => "Largest number of pods that the autoscaler sets.",
        "Min Available" => "Number or percentage of pods that must be available after an eviction.",
        "MinPods" => "Smallest number of pods that the autoscaler sets.",
        "MissingPL" => "Whether the priority level that the schema refers to is missing.",
        "Mutations" => "Number of mutations of the policy.",
        "Node" => "Node that the pod is bound to.",
        "Node Selector" => "Labels of the nodes that run a pod.",
        "NominalConcurrencyShares" => "Share of the concurrency of the server, relative to other levels.",
        "Nominated Node" => "Node on which pods were preempted for this one.",
        "OS-Image" => "Operating system of the node.",
        "PV" => "Volume to attach.",
        "ParamKind" => "Kind of the parameters of the policy.",
        "ParamRef" => "Object that has the parameters.",
        "Parameters" => "Object that configures the class.",
        "ParentRef" => "Object that has the address.",
        "Pod Labels" => "Labels of pods made from the template.",
        "Pod-Selector" => "Labels of the pods that the policy applies to.",
        "PodInfoOnMount" => "Whether the driver is told about the pod when it mounts a volume.",
        "PolicyName" => "Policy that is bound.",
        "Pool" => "Pool of devices that the slice is a part of.",
        "Port(s)" => "Ports of the Service, with their node ports.",
        "PreemptionPolicy" => "Whether pods of this class may preempt pods with a lower priority.",
        "PriorityLevel" => "Priority level of the requests that match.",
        "Provisioner" => "Driver that makes volumes of this class.",
        "QueueLengthLimit" => "Number of requests that may wait in a queue.",
        "Queues" => "Number of queues.",
        "Readiness Gates" => "Number of readiness gates that are true, and number of gates.",
        "Ready" => "Number of pods that are ready.",
        "Reclaim Policy" => "What happens to the volume when its claim is deleted.",
        "ReclaimPolicy" => "What happens to volumes of this class when their claim is deleted.",
        "Reference" => "Object that is scaled.",
        "Replicas" => "Number of pods that were observed.",
        "Request" => "Requests and numbers of objects: used, and allowed.",
        "RequestedDuration" => "Requested lifetime of the certificate.",
        "Requestor" => "User who made the request.",
        "RequiresRepublish" => {
            "Whether the driver is called again from time to time to renew the contents of mounted volumes."
        }
        "Restarts" => "Number of restarts of the containers, and time since the last one.",
        "Revision" => "Number of the revision.",
        "Role" => "Role that is granted.",
        "Roles" => "Roles of the node, by its labels.",
        "Schedule" => "When Jobs are started, in the format of cron.",
        "Selector" => "Labels of the pods that belong to the object.",
        "ServiceAccounts" => "Service accounts that get the role.",
        "SignerName" => "Signer that is asked for the certificate.",
        "StorageCapacity" => "Whether the scheduler looks at the storage capacity that the driver publishes.",
        "StorageClass" => "Class of the volume.",
        "Suspend" => "Whether no more Jobs are started.",
        "Targets" => "Current and wanted values of the metrics.",
        "Timezone" => "Time zone of the schedule; that of the server if there is none.",
        "TokenRequests" => "Audiences of the service account tokens that the driver gets.",
        "Up-to-date" => "Number of pods that have the current template.",
        "Users" => "Users who get the role.",
        "Validations" => "Number of validations of the policy.",
        "Version" => "Version of the kubelet of the node.",
        "Volume" => "Volume that the claim is bound to.",
        "VolumeAttributesClass" => "Class of the attributes that the volume has.",
        "VolumeBindingMode" => "Whether claims are bound at once, or when a pod uses them.",
        "VolumeMode" => "Whether the volume is a file system or a block device.",
        "Webhooks" => "Number of webhooks.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::{columns, table};

    #[test]
    fn every_column_of_a_built_in_kind_has_a_description() {
        let mut missing = Vec::new();
        for row in table::builtin() {
            for column in row.columns.iter().filter(|column| column.description.is_empty()) {
                missing.push(format!("{} {}", row.kind, column.name));
            }
        }
        let scale = columns::scale();
        missing
            .extend(scale.iter().filter(|c| c.description.is_empty()).map(|c| format!("Scale {}", c.name)));
        assert!(missing.is_empty(), "{missing:?}");
    }
}
