//! What a request does, and the phase of its admission.

/// The operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change, by update, patch or apply.
    Update,
    /// A removal.
    Delete,
    /// A stream: exec, attach, port-forward, proxy.
    Connect,
}

impl Operation {
    /// Upstream's name, as webhooks see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A phase of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Plugins may change the object.
    Mutate,
    /// Plugins may reject the request.
    Validate,
}
