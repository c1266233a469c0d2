//! Kinds that are views on other kinds: what is stored is one version, the other is made from it.

// `events.k8s.io` Events are core Events with other field names.
pub mod events;
// `autoscaling/v1` HorizontalPodAutoscalers are v2 ones that know only CPU.
pub mod autoscalers;
// `extensions/v1beta1` Ingresses have other backends.
pub mod ingresses;
