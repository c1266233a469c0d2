//! Pods that ask for a confinement the node cannot give.
