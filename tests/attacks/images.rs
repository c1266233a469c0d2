//! Images made to exhaust or to mislead a node.
