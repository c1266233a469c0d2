// The kinds that the page shows.

import { html } from "./dom.js";

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

/** Kinds that may be at fault, which are listed only while one of their objects is shown. */
const OTHERS = [
  kind("ResourceQuota", "", "v1", "resourcequotas"),
  kind("ServiceAccount", "", "v1", "serviceaccounts"),
  kind("PersistentVolume", "", "v1", "persistentvolumes", false, false),
  kind("ReplicationController", "", "v1", "replicationcontrollers"),
  kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
  kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
  kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers"),
  kind("StorageClass", "storage.k8s.io", "v1", "storageclasses", false, false),
  kind("CertificateSigningRequest", "certificates.k8s.io", "v1", "certificatesigningrequests", false, false),
  kind("APIService", "apiregistration.k8s.io", "v1", "apiservices", false, false),
  kind("CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", false, false),
  kind("MutatingWebhookConfiguration", "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", false, false),
  kind("ValidatingWebhookConfiguration", "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", false, false),
];
/** All kinds whose objects have a page with more than a timeline. */
export const SHOWN = [...KINDS, ...OTHERS];

const byResource = new Map(SHOWN.map((kind) => [kind.resource, kind]));
const byName = new Map(SHOWN.map((kind) => [kind.name, kind]));

/** The kind of `deployments.apps`. */
export function kindOf(resource) {
  return byResource.get(resource);
}

/** The kind of an owner reference. */
export function kindNamed(name) {
  return byName.get(name);
}

/** A link to an object by the name of its kind, or only its text if the page does not show the kind. */
export function link(name, namespace, object, text = object) {
  const kind = kindNamed(name);
  return kind ? html("a", { href: address(kind.resource, kind.namespaced ? namespace : "", object), tabindex: -1 }, text) : text;
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
