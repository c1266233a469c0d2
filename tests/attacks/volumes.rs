//! Volumes that a pod tries to turn against its node.
