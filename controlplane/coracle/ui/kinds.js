// The kinds that the page lists.

const kind = (name, group, version, plural, workload = false, namespaced = true) => ({
  name,
  plural,
  namespaced,
  workload,
  resource: group ? `${plural}.${group}` : plural,
  path: group ? `apis/${group}/${version}` : `api/${version}`,
});

export const KINDS = [
  kind("Pod", "", "v1", "pods", true),
  kind("Node", "", "v1", "nodes", false, false),
  kind("Deployment", "apps", "v1", "deployments", true),
  kind("ReplicaSet", "apps", "v1", "replicasets", true),
  kind("StatefulSet", "apps", "v1", "statefulsets", true),
  kind("DaemonSet", "apps", "v1", "daemonsets", true),
  kind("Job", "batch", "v1", "jobs", true),
  kind("CronJob", "batch", "v1", "cronjobs", true),
  kind("Service", "", "v1", "services", true),
  kind("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices"),
  kind("Ingress", "networking.k8s.io", "v1", "ingresses"),
  kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
  kind("ConfigMap", "", "v1", "configmaps"),
  kind("Namespace", "", "v1", "namespaces", false, false),
];

const byResource = new Map(KINDS.map((kind) => [kind.resource, kind]));
const byName = new Map(KINDS.map((kind) => [kind.name, kind]));

/** The kind of `deployments.apps`. */
export function kindOf(resource) {
  return byResource.get(resource);
}

/** The kind of an owner reference. */
export function kindNamed(name) {
  return byName.get(name);
}

/** Where the page shows an object. */
export function address(resource, namespace, name, tab = "timeline") {
  return `#/object/${[resource, namespace || "-", name, tab].map(encodeURIComponent).join("/")}`;
}

/** The path of an object in the API, or undefined for a resource that the page does not know. */
export function pathOf(resource, namespace, name) {
  const kind = kindOf(resource);
  if (!kind) return undefined;
  const within = kind.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${kind.path}${within}/${kind.plural}${name ? `/${encodeURIComponent(name)}` : ""}`;
}
