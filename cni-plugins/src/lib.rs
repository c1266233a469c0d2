//! What the CNI plugins share.
