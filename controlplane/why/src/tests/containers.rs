use super::Case;
use crate::trouble::Trouble;

pub const CASES: &[Case] = &[
    (Trouble::ImageTagNotFound, "pod/web", "the registry docker.io has no image nginx:nope", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: 'nginx:nope'}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff, message: 'Back-off pulling image \"nginx:nope\"'}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web}
reason: Failed
message: 'Failed to pull image \"nginx:nope\": rpc error: code = NotFound desc = docker.io/library/nginx:nope: not found'
count: 3
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::ImageNotFound, "pod/web", "has no repository of image ngnix", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: ngnix}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed'}}}]}
"),
    (Trouble::ImagePullDenied, "pod/web", "refuses to give image r.example.com/a without valid credentials", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: r.example.com/a}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: '401 Unauthorized'}}}]}
"),
    (Trouble::ImagePullSecretMissing, "pod/web", "the Secret pull-secrt in imagePullSecrets does not exist; the closest that exists is pull-secret", "
kind: Secret
metadata: {name: pull-secret}
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, imagePullSecrets: [{name: pull-secrt}], containers: [{name: c, image: r.example.com/a}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: unauthorized}}}]}
"),
    // {"auths":{"other.example.com":{}}}
    (Trouble::ImagePullSecretInvalid, "pod/web", "has no credentials for r.example.com, only for other.example.com", "
kind: Secret
metadata: {name: pull}
type: kubernetes.io/dockerconfigjson
data: {.dockerconfigjson: eyJhdXRocyI6eyJvdGhlci5leGFtcGxlLmNvbSI6e319fQ==}
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, imagePullSecrets: [{name: pull}], containers: [{name: c, image: r.example.com/a}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: unauthorized}}}]}
"),
    (Trouble::RegistryUnreachable, "pod/web", "node n1 cannot reach the registry r.example.com:5000", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: 'r.example.com:5000/a'}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'dial tcp: lookup r.example.com: no such host'}}}]}
"),
    (Trouble::RegistryCertificate, "pod/web", "does not trust the certificate of the registry r.example.com", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: r.example.com/a}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'tls: failed to verify certificate: x509: certificate signed by unknown authority'}}}]}
"),
    (Trouble::RegistryRateLimited, "pod/web", "limits the rate of pulls", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'toomanyrequests: You have reached your pull rate limit'}}}]}
"),
    (Trouble::ImageArchitecture, "pod/web", "has no variant for the architecture of node n1 (amd64)", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: arm/only}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'no match for platform in manifest: not found'}}}]}
"),
    (Trouble::ImageNameInvalid, "pod/web", "\"Nginx:\" is not the name of an image", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: 'Nginx:'}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: InvalidImageName, message: invalid reference format}}}]}
"),
    (Trouble::ImageNeverPull, "pod/web", "image local/x is not on node n1, and imagePullPolicy is Never", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: local/x, imagePullPolicy: Never}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImageNeverPull}}}]}
"),
    (Trouble::ImagePullFailed, "pod/web", "image nginx cannot be pulled", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: unexpected digest}}}]}
"),
    (Trouble::ConfigMapMissing, "pod/web", "the ConfigMap confg does not exist (container c, envFrom); the closest that exists is config", "
kind: ConfigMap
metadata: {name: config}
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, envFrom: [{configMapRef: {name: confg}}]}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError, message: 'configmap \"confg\" not found'}}}]}
"),
    (Trouble::ConfigMapKeyMissing, "pod/web", "the ConfigMap config has no key hosst (container c, variable HOST); the closest that exists is host", "
kind: ConfigMap
metadata: {name: config}
data: {host: a}
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, env: [{name: HOST, valueFrom: {configMapKeyRef: {name: config, key: hosst}}}]}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError}}}]}
"),
    (Trouble::SecretMissing, "pod/web", "the Secret tls does not exist (volume v)", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, volumes: [{name: v, secret: {secretName: tls}}], containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}
"),
    (Trouble::SecretKeyMissing, "pod/web", "the Secret db has no key password", "
kind: Secret
metadata: {name: db}
data: {user: YQ==}
---
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx, env: [{name: P, valueFrom: {secretKeyRef: {name: db, key: password}}}]}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError}}}]}
"),
    (Trouble::ServiceAccountMissing, "pod/web", "the ServiceAccount robot does not exist", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, serviceAccountName: robot, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}
"),
    (Trouble::RunAsNonRoot, "pod/web", "container c has runAsNonRoot, and image nginx runs as root", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError, message: 'container has runAsNonRoot and image will run as root'}}}]}
"),
    (Trouble::SubPathInvalid, "pod/web", "a subPath cannot be mounted", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerConfigError, message: 'failed to prepare subPath for volumeMount \"v\" of container \"c\"'}}}]}
"),
    (Trouble::ContainerCreateFailed, "pod/web", "container c cannot be created: context canceled", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: CreateContainerError, message: context canceled}}}]}
"),
    (Trouble::VolumeMountFailed, "pod/web", "a volume cannot be mounted: hostPath type check failed", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web}
reason: FailedMount
message: 'hostPath type check failed: /x is not a directory'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::VolumeAttachFailed, "pod/web", "Multi-Attach error", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ContainerCreating}}}]}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web}
reason: FailedAttachVolume
message: 'Multi-Attach error for volume \"v\": Volume is already used by pod(s) other'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
    (Trouble::SandboxFailed, "pod/web", "the pod's sandbox or network cannot be set up", "
kind: Pod
metadata: {name: web}
spec: {nodeName: n1, containers: [{name: c, image: nginx}]}
status: {phase: Pending}
---
kind: Event
metadata: {name: e}
involvedObject: {kind: Pod, name: web}
reason: FailedCreatePodSandBox
message: 'failed to setup network for sandbox: plugin type=\"bridge\" failed'
lastTimestamp: '2026-01-01T11:59:00Z'
"),
];

#[test]
fn the_image_is_set_on_the_workload_that_made_the_pod() {
    let yaml = "
kind: ReplicaSet
metadata: {name: web-1, ownerReferences: [{kind: Deployment, name: web, uid: d1, controller: true}]}
---
kind: Pod
metadata: {name: web-1-a, ownerReferences: [{kind: ReplicaSet, name: web-1, uid: r1, controller: true}]}
spec: {nodeName: n1, containers: [{name: c, image: 'registry.example.com/nope:1'}]}
status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ErrImagePull, message: 'registry.example.com/nope:1: not found: NAME_UNKNOWN: repository name not known to registry'}}}]}
";
    let found = super::explain(yaml, "pod/web-1-a").remove(0);
    assert_eq!(found.trouble, Trouble::ImageNotFound);
    assert_eq!(found.remedy, "kubectl set image deployment/web -n default c=IMAGE");
}
