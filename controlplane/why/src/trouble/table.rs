//! All kinds of trouble: meaning, name and severity, by area. `docs/why.md` has the same rows in the same order; a unit test
//! compares them, and another requires a case for each.

troubles! {
    /// No node has enough unrequested CPU for the pod.
    InsufficientCpu "insufficient-cpu" Error;
    /// No node has enough unrequested memory for the pod.
    InsufficientMemory "insufficient-memory" Error;
    /// No node has enough unrequested local storage for the pod.
    InsufficientStorage "insufficient-ephemeral-storage" Error;
    /// The nodes have as many pods as they may have.
    InsufficientPods "insufficient-pods" Error;
    /// No node has enough of another resource, such as GPUs or huge pages.
    InsufficientResource "insufficient-extended-resource" Error;
    /// The nodes have taints that the pod does not tolerate.
    UntoleratedTaint "untolerated-taint" Error;
    /// No node has the labels of the pod's `nodeSelector`.
    NodeSelectorMismatch "node-selector-mismatch" Error;
    /// No node matches the pod's required node affinity.
    NodeAffinityMismatch "node-affinity-mismatch" Error;
    /// No node declares a feature that the pod needs.
    NodeFeatureMissing "node-feature-missing" Error;
    /// No node has the pods next to it that the pod's affinity requires.
    PodAffinityUnsatisfied "pod-affinity-unsatisfied" Error;
    /// On every node there are pods that the pod's anti-affinity excludes.
    PodAntiAffinityConflict "pod-anti-affinity-conflict" Error;
    /// Any node would exceed the skew of a topology spread constraint.
    TopologySpreadUnsatisfied "topology-spread-unsatisfied" Error;
    /// The pod's host port is taken on every node.
    HostPortTaken "host-port-taken" Error;
    /// The pod's volume can only be used on nodes that the pod cannot run on.
    VolumeNodeConflict "volume-node-affinity-conflict" Error;
    /// All nodes are cordoned.
    NodesCordoned "nodes-cordoned" Error;
    /// The cluster has no nodes.
    NoNodes "no-nodes" Critical;
    /// The pod has scheduling gates.
    SchedulingGated "scheduling-gated" Notice;
    /// No scheduler has looked at the pod.
    SchedulerAbsent "scheduler-absent" Error;
    /// The scheduler's reason could not be verified; its message is quoted.
    Unschedulable "unschedulable" Error;
    /// `spec.nodeName` is a node that does not exist.
    NodeNameMissing "node-name-missing" Error;
    /// The image's repository does not exist, or is private.
    ImageNotFound "image-not-found" Error;
    /// The image has no such tag or digest.
    ImageTagNotFound "image-tag-not-found" Error;
    /// The registry refuses the credentials, or wants some.
    ImagePullDenied "image-pull-denied" Error;
    /// A Secret in `imagePullSecrets` does not exist.
    ImagePullSecretMissing "image-pull-secret-missing" Error;
    /// A Secret in `imagePullSecrets` is of another type, or has no credentials for the registry.
    ImagePullSecretInvalid "image-pull-secret-invalid" Error;
    /// The registry cannot be reached from the node.
    RegistryUnreachable "registry-unreachable" Error;
    /// The registry's certificate is not trusted by the node.
    RegistryCertificate "registry-certificate-untrusted" Error;
    /// The registry limits the rate of pulls.
    RegistryRateLimited "registry-rate-limited" Error;
    /// The image is for another architecture than the node.
    ImageArchitecture "image-architecture-mismatch" Error;
    /// The image's name cannot be parsed.
    ImageNameInvalid "image-name-invalid" Error;
    /// The image is not on the node, and `imagePullPolicy` is `Never`.
    ImageNeverPull "image-never-pulled" Error;
    /// The image cannot be pulled for another reason.
    ImagePullFailed "image-pull-failed" Error;
    /// A ConfigMap that the pod uses does not exist.
    ConfigMapMissing "config-map-missing" Error;
    /// A ConfigMap that the pod uses lacks a key.
    ConfigMapKeyMissing "config-map-key-missing" Error;
    /// A Secret that the pod uses does not exist.
    SecretMissing "secret-missing" Error;
    /// A Secret that the pod uses lacks a key.
    SecretKeyMissing "secret-key-missing" Error;
    /// The pod's ServiceAccount does not exist.
    ServiceAccountMissing "service-account-missing" Error;
    /// The container must not run as root, and its image does.
    RunAsNonRoot "run-as-non-root" Error;
    /// A `subPath` cannot be mounted.
    SubPathInvalid "sub-path-invalid" Error;
    /// A volume cannot be mounted.
    VolumeMountFailed "volume-mount-failed" Error;
    /// A volume cannot be attached to the node.
    VolumeAttachFailed "volume-attach-failed" Error;
    /// The pod's network or sandbox cannot be set up.
    SandboxFailed "sandbox-failed" Error;
    /// The container cannot be created for another reason.
    ContainerCreateFailed "container-create-failed" Error;
    /// The container's command is not in its image.
    CommandNotFound "command-not-found" Error;
    /// The container's command cannot be executed.
    CommandNotExecutable "command-not-executable" Error;
    /// The container exceeds its memory limit.
    OutOfMemory "out-of-memory" Error;
    /// The container ends with an error.
    ExitCode "exit-code" Error;
    /// The container is ended by a signal.
    Signal "killed-by-signal" Error;
    /// The container ends successfully, and is restarted all the time.
    EndsSuccessfully "ends-successfully" Error;
    /// An init container fails, so that the others do not start.
    InitContainerFails "init-container-fails" Error;
    /// An init container does not end, so that the others do not start.
    InitContainerRuns "init-container-runs" Warning;
    /// The container is refused by the API: its ServiceAccount lacks a permission.
    ServiceAccountForbidden "service-account-forbidden" Error;
    /// The liveness probe fails, and the container is restarted.
    LivenessProbeFails "liveness-probe-fails" Error;
    /// The readiness probe fails.
    ReadinessProbeFails "readiness-probe-fails" Error;
    /// The startup probe fails, and the container is restarted.
    StartupProbeFails "startup-probe-fails" Error;
    /// A probe connects to a port on which nothing listens.
    ProbePortWrong "probe-port-wrong" Error;
    /// A probe gets an HTTP status that means failure.
    ProbeStatus "probe-status" Error;
    /// A probe gets no answer in time.
    ProbeTimeout "probe-timeout" Error;
    /// A readiness gate of the pod is not fulfilled.
    ReadinessGate "readiness-gate-unfulfilled" Error;
    /// A `postStart` hook fails or hangs.
    PostStartHook "post-start-hook-fails" Error;
    /// A `preStop` hook fails or hangs.
    PreStopHook "pre-stop-hook-fails" Warning;
    /// A finalizer prevents the deletion of an object.
    FinalizerBlocks "finalizer-blocks-deletion" Error;
    /// The pod is still within its termination grace period.
    GracePeriod "termination-grace-period" Notice;
    /// The pod cannot be deleted because its node does not answer.
    TerminationNodeGone "termination-node-gone" Error;
    /// The pod has not ended although its grace period is over.
    TerminationStuck "termination-stuck" Error;
    /// The pod was evicted from its node.
    Evicted "evicted" Warning;
    /// The pod was preempted by one with a higher priority.
    Preempted "preempted" Warning;
    /// The pod ran longer than its `activeDeadlineSeconds`.
    DeadlineExceeded "deadline-exceeded" Error;
    /// The node rejected the pod.
    NodeRejected "node-rejected-pod" Error;
    /// The pod's PersistentVolumeClaim does not exist.
    ClaimMissing "claim-missing" Error;
    /// The claim has no storage class, there is no default class, and no volume fits.
    ClaimWithoutClass "claim-without-class" Error;
    /// The claim's storage class does not exist.
    ClaimClassMissing "claim-class-missing" Error;
    /// The storage class has no provisioner, and no volume fits.
    ClaimNoProvisioner "claim-no-provisioner" Error;
    /// No volume has the size, access modes, class and labels that the claim wants.
    ClaimNoVolumeFits "claim-no-volume-fits" Error;
    /// The volume that the claim names does not exist.
    ClaimVolumeMissing "claim-volume-missing" Error;
    /// The volume that the claim names is bound to another claim, or reserved for one.
    ClaimVolumeTaken "claim-volume-taken" Error;
    /// The volume that the claim names has another size, class or mode than the claim wants.
    ClaimVolumeUnfit "claim-volume-unfit" Error;
    /// The provisioner does not answer, or fails.
    ClaimProvisioningFails "claim-provisioning-fails" Error;
    /// The claim is bound when a pod uses it, and none does.
    ClaimWaitsForConsumer "claim-waits-for-consumer" Notice;
    /// The claim's volume is gone.
    ClaimLost "claim-lost" Error;
    /// The claim's volume is on a node that does not exist.
    VolumeNodeGone "volume-node-gone" Error;
    /// The volume cannot be reclaimed.
    VolumeFailed "volume-failed" Warning;
    /// The Service's selector matches no pod.
    ServiceSelector "service-selector-matches-nothing" Error;
    /// The Service's `targetPort` is a name that no selected pod has.
    ServiceTargetPortName "service-target-port-name-unknown" Error;
    /// The Service's `targetPort` is no port that the selected pods declare.
    ServiceTargetPort "service-target-port-undeclared" Notice;
    /// No pod of the Service is ready.
    ServiceNotReady "service-without-ready-endpoints" Error;
    /// The Service has no selector, and nobody has written endpoints for it.
    ServiceWithoutEndpoints "service-without-endpoints" Error;
    /// No API server has an address that can be an endpoint of the Service `kubernetes`, so that pods do not reach the API.
    ApiServerUnpublished "api-server-unpublished" Error;
    /// The Service's `externalName` is a name of the cluster that does not exist.
    ServiceExternalName "service-external-name-unknown" Error;
    /// The load balancer of the Service has no address.
    LoadBalancerPending "load-balancer-pending" Error;
    /// The Service has no such port.
    ServicePortMissing "service-port-missing" Error;
    /// The Ingress names a Service that does not exist.
    IngressServiceMissing "ingress-service-missing" Error;
    /// The Ingress names a port that its Service does not have.
    IngressPortMissing "ingress-port-missing" Error;
    /// The Ingress has no class, or one that does not exist.
    IngressClassMissing "ingress-class-missing" Error;
    /// The Ingress names a TLS Secret that does not exist.
    IngressSecretMissing "ingress-secret-missing" Error;
    /// The rollout did not progress in time, and no pod says why.
    ProgressDeadline "progress-deadline-exceeded" Error;
    /// A quota refuses new pods.
    QuotaRefuses "quota-refuses" Error;
    /// A LimitRange refuses new pods.
    LimitRangeRefuses "limit-range-refuses" Error;
    /// Pod security of the namespace refuses new pods.
    PodSecurityRefuses "pod-security-refuses" Error;
    /// An admission webhook or policy refuses new objects, or what a controller writes.
    WebhookRefuses "admission-refuses" Error;
    /// An admission webhook cannot be called, and its requests fail.
    WebhookFails "webhook-call-fails" Error;
    /// Pods cannot be created for another reason.
    PodCreationFails "pod-creation-fails" Error;
    /// The PriorityClass of the pods does not exist.
    PriorityClassMissing "priority-class-missing" Error;
    /// The RuntimeClass of the pods does not exist.
    RuntimeClassMissing "runtime-class-missing" Error;
    /// The Deployment is paused.
    DeploymentPaused "deployment-paused" Notice;
    /// The workload is scaled to zero.
    ScaledToZero "scaled-to-zero" Notice;
    /// The StatefulSet waits for an earlier pod.
    StatefulSetWaits "stateful-set-waits" Error;
    /// The StatefulSet's governing Service does not exist.
    StatefulSetService "stateful-set-service-missing" Warning;
    /// No node matches the DaemonSet.
    DaemonSetNoNodes "daemon-set-no-nodes" Notice;
    /// The Job has failed as often as its `backoffLimit` allows.
    JobBackoffLimit "job-backoff-limit-exceeded" Error;
    /// The Job ran longer than its `activeDeadlineSeconds`.
    JobDeadline "job-deadline-exceeded" Error;
    /// The Job failed by its own policy.
    JobFailed "job-failed" Error;
    /// The Job or CronJob is suspended.
    Suspended "suspended" Notice;
    /// The CronJob misses its schedule.
    CronJobMissed "cron-job-missed" Warning;
    /// The CronJob waits for its previous Job, which still runs.
    CronJobBusy "cron-job-busy" Warning;
    /// The namespace is being deleted and still has objects.
    NamespaceContent "namespace-content-remains" Error;
    /// The namespace is being deleted, and finalizers of its objects remain.
    NamespaceFinalizers "namespace-finalizers-remain" Error;
    /// The namespace is being deleted, and an API in it cannot be listed.
    NamespaceDiscovery "namespace-discovery-fails" Error;
    /// The node reports that it is not ready.
    NodeNotReady "node-not-ready" Critical;
    /// The node does not report at all.
    NodeUnreachable "node-unreachable" Critical;
    /// The node is short of memory.
    NodeMemoryPressure "node-memory-pressure" Critical;
    /// The node's disk is full.
    NodeDiskPressure "node-disk-pressure" Critical;
    /// The node is short of process ids.
    NodePidPressure "node-pid-pressure" Critical;
    /// The node's network is not set up.
    NodeNetwork "node-network-unavailable" Critical;
    /// The node is cordoned.
    NodeCordoned "node-cordoned" Warning;
    /// A PodDisruptionBudget allows no eviction, so that its pods' nodes cannot be drained.
    BudgetBlocksDrain "budget-blocks-drain" Warning;
    /// The autoscaler gets no metrics, or cannot scale by them.
    AutoscalerMetrics "autoscaler-without-metrics" Warning;
    /// The autoscaler's target does not exist.
    AutoscalerTarget "autoscaler-target-missing" Warning;
    /// The autoscaler's pods have no request to compute the utilization from.
    AutoscalerRequests "autoscaler-without-requests" Warning;
    /// An admission webhook's Service cannot answer.
    WebhookDown "webhook-down" Critical;
    /// An aggregated API does not answer.
    ApiServiceUnavailable "api-service-unavailable" Critical;
    /// A quota is used up.
    QuotaExhausted "quota-exhausted" Warning;
    /// A certificate signing request waits for approval or for its signer.
    SigningRequestPending "signing-request-pending" Warning;
    /// A certificate signing request was denied, or failed.
    SigningRequestDenied "signing-request-denied" Warning;
    /// A certificate has ended, or is not valid yet.
    CertificateEnded "certificate-ended" Critical;
    /// The clocks of this machine, the server or a node differ.
    ClockSkew "clock-skew" Warning;
    /// A CustomResourceDefinition is not accepted.
    DefinitionRefused "definition-not-accepted" Error;
    /// The object's own conditions say that it is not ready.
    ConditionFalse "condition-false" Warning;
    /// NetworkPolicies of the destination do not allow the connection.
    PolicyBlocksIngress "network-policy-blocks-ingress" Error;
    /// NetworkPolicies of the source do not allow the connection.
    PolicyBlocksEgress "network-policy-blocks-egress" Error;
    /// NetworkPolicies of the source do not allow queries to the cluster's DNS.
    PolicyBlocksDns "network-policy-blocks-dns" Error;
    /// The DNS name does not exist in the cluster.
    DnsNameUnknown "dns-name-unknown" Error;
    /// The destination pod listens on no such port, by its declaration.
    PodPortUndeclared "pod-port-undeclared" Notice;
    /// The object is not as it should be, and no root cause was found.
    Unexplained "unexplained" Warning;
}
