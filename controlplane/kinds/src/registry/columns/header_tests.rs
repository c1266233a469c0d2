//! Names, types and priorities of all columns, compared with those of Kubernetes.

use crate::registry::table;

/// Columns of `pkg/printers/internalversion` in Kubernetes 1.36, one kind per line; a star marks those of `-o wide`.
const UPSTREAM: &str = "
CSIDriver Name:string|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests:string|RequiresRepublish:boolean|Modes:string|Age:string
CSINode Name:string|Drivers:integer|Age:string
CSIStorageCapacity Name:string|Created At:date
CertificateSigningRequest Name:string|Age:string|SignerName:string|Requestor:string|RequestedDuration:string|Condition:string
ClusterRoleBinding Name:string|Role:string|Age:string|Users:string*|Groups:string*|ServiceAccounts:string*
ClusterTrustBundle Name:string|SignerName:string
ComponentStatus Name:string|Status:string|Message:string|Error:string
ConfigMap Name:string|Data:string|Age:string
ControllerRevision Name:string|Controller:string|Revision:string|Age:string
CronJob Name:string|Schedule:string|Timezone:string|Suspend:boolean|Active:integer|Last Schedule:string|Age:string|Containers:string*|Images:string*|Selector:string*
DaemonSet Name:string|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector:string|Age:string|Containers:string*|Images:string*|Selector:string*
Deployment Name:string|Ready:string|Up-to-date:string|Available:string|Age:string|Containers:string*|Images:string*|Selector:string*
DeviceClass Name:string|Age:string
DeviceTaintRule Name:string|Key:string|Value:string|Effect:string|TimeAdded:string|Age:string
EndpointSlice Name:string|AddressType:string|Ports:string|Endpoints:string|Age:string
Endpoints Name:string|Endpoints:string|Age:string
Event Last Seen:string|Type:string|Reason:string|Object:string|Subobject:string*|Source:string*|Message:string|First Seen:string*|Count:string*|Name:string*
FlowSchema Name:string|PriorityLevel:string|MatchingPrecedence:string|DistinguisherMethod:string|Age:string|MissingPL:string
HorizontalPodAutoscaler Name:string|Reference:string|Targets:string|MinPods:string|MaxPods:string|Replicas:string|Age:string
IPAddress Name:string|ParentRef:string
Ingress Name:string|Class:string|Hosts:string|Address:string|Ports:string|Age:string
IngressClass Name:string|Controller:string|Parameters:string|Age:string
Job Name:string|Status:string|Completions:string|Duration:string|Age:string|Containers:string*|Images:string*|Selector:string*
Lease Name:string|Holder:string|Age:string
LeaseCandidate Name:string|LeaseName:string|BinaryVersion:string|EmulationVersion:string|Age:string
MutatingAdmissionPolicy Name:string|Mutations:integer|ParamKind:string|Age:string
MutatingAdmissionPolicyBinding Name:string|PolicyName:string|ParamRef:string|Age:string
MutatingWebhookConfiguration Name:string|Webhooks:integer|Age:string
Namespace Name:string|Status:string|Age:string
NetworkPolicy Name:string|Pod-Selector:string|Age:string
Node Name:string|Status:string|Roles:string|Age:string|Version:string|Internal-IP:string*|External-IP:string*|OS-Image:string*|Kernel-Version:string*|Container-Runtime:string*
PersistentVolume Name:string|Capacity:string|Access Modes:string|Reclaim Policy:string|Status:string|Claim:string|StorageClass:string|VolumeAttributesClass:string|Reason:string|Age:string|VolumeMode:string*
PersistentVolumeClaim Name:string|Status:string|Volume:string|Capacity:string|Access Modes:string|StorageClass:string|VolumeAttributesClass:string|Age:string|VolumeMode:string*
Pod Name:string|Ready:string|Status:string|Restarts:string|Age:string|IP:string*|Node:string*|Nominated Node:string*|Readiness Gates:string*
PodCertificateRequest Name:string|PodName:string|ServiceAccountName:string|NodeName:string|SignerName:string|State:string|UnverifiedUserAnnotations:string
PodDisruptionBudget Name:string|Min Available:string|Max Unavailable:string|Allowed Disruptions:integer|Age:string
PodGroup Name:string|Policy:string|Workload:string|Status:string|Age:string
PodTemplate Name:string|Containers:string|Images:string|Pod Labels:string
PriorityClass Name:string|Value:integer|Global-Default:boolean|Age:string|PreemptionPolicy:string
PriorityLevelConfiguration Name:string|Type:string|NominalConcurrencyShares:string|Queues:string|HandSize:string|QueueLengthLimit:string|Age:string
ReplicaSet Name:string|Desired:integer|Current:integer|Ready:integer|Age:string|Containers:string*|Images:string*|Selector:string*
ReplicationController Name:string|Desired:integer|Current:integer|Ready:integer|Age:string|Containers:string*|Images:string*|Selector:string*
ResourceClaim Name:string|State:string|Age:string
ResourceClaimTemplate Name:string|Age:string
ResourcePoolStatusRequest Name:string|Driver:string|Total:string|Available:string|Allocated:string|Unavailable:string|Errors:string|Pools:integer|Status:string|Completed:string
ResourceQuota Name:string|Request:string|Limit:string|Age:string
ResourceSlice Name:string|Node:string|Driver:string|Pool:string|Age:string
RoleBinding Name:string|Role:string|Age:string|Users:string*|Groups:string*|ServiceAccounts:string*
RuntimeClass Name:string|Handler:string|Age:string
Secret Name:string|Type:string|Data:string|Age:string
Service Name:string|Type:string|Cluster-IP:string|External-IP:string|Port(s):string|Age:string|Selector:string*
ServiceAccount Name:string|Age:string
ServiceCIDR Name:string|CIDRs:string|Age:string
StatefulSet Name:string|Ready:string|Age:string|Containers:string*|Images:string*
StorageClass Name:string|Provisioner:string|ReclaimPolicy:string|VolumeBindingMode:string|AllowVolumeExpansion:string|Age:string
StorageVersion Name:string|CommonEncodingVersion:string|StorageVersions:string|Age:string
StorageVersionMigration Name:string|Resource:string|Status:string
ValidatingAdmissionPolicy Name:string|Validations:integer|ParamKind:string|Age:string
ValidatingAdmissionPolicyBinding Name:string|PolicyName:string|ParamRef:string|Age:string
ValidatingWebhookConfiguration Name:string|Webhooks:integer|Age:string
VolumeAttachment Name:string|Attacher:string|PV:string|Node:string|Attached:boolean|Age:string
VolumeAttributesClass Name:string|DriverName:string|Age:string
Workload Name:string|Age:string
";

#[test]
fn columns_are_those_of_kubernetes() {
    let rows = table::builtin();
    let (mut compared, mut differences) = (0, Vec::new());
    for line in UPSTREAM.lines().filter(|line| !line.is_empty()) {
        let (kind, wanted) = line.split_once(' ').unwrap_or((line, ""));
        for row in rows.iter().filter(|row| row.kind == kind) {
            let shown = row.columns.iter().map(|column| {
                let star = if column.priority > 0 { "*" } else { "" };
                format!("{}:{}{star}", column.name, column.kind)
            });
            let shown = shown.collect::<Vec<_>>().join("|");
            compared += 1;
            if shown != wanted {
                differences.push(format!("{kind} of {:?}:\n  wanted {wanted}\n  shown  {shown}", row.group));
            }
        }
    }
    assert!(compared > 50, "{compared}");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
