//! What Kubernetes does where conformance does not look, without root: each test takes the same steps on a `coracle server` and on
//! a stock cluster, and both must give the same answers. `CORACLE_PEER` names the kubeconfig of the stock cluster, which needs no nodes;
//! `scripts/peer` starts one. With `CORACLE_PEER_RECORD=1` what it answers is written to `stock/`; without a stock cluster ours is
//! compared with these files. docs/differences.md lists the tests.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// What a stock cluster answered before.
mod transcript;
// The two servers, and the comparison.
mod both;
// Autoscalers.
mod autoscalers;
// Addresses of Services.
mod addresses;
// Claims and volumes.
mod volumes;
// Nodes that are lost, and pods on nodes.
mod nodes;
// Jobs, StatefulSets, budgets.
mod workloads;
// Admission policies, definitions, quotas, lists.
mod api;
// Which expressions are refused.
mod expressions;
// Columns of `kubectl get`.
mod columns;
// Server-side apply and managed fields.
mod apply;
// Field validation, dry runs, status, warnings.
mod writes;
