//! Deployments: ReplicaSets per template, rolled out and back.

// What the plan sees.
pub mod view;
// How large each ReplicaSet may be now.
mod scale;
// Revisions and their annotations.
mod revision;
// Counts and conditions.
mod status;
// The next step.
pub mod plan;
#[cfg(test)]
mod plan_tests;
