//! The verbs of requests.

use std::fmt;

/// What a request does, as authorization, flow control, audit and metrics name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verb {
    /// A method that means nothing for a resource: nobody may do it, but a proxied server may be asked.
    #[default]
    None,
    /// Read one object, or a path.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// Add an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object, or a path.
    Patch,
    /// Delete an object, or a path.
    Delete,
    /// Delete all objects of a collection.
    DeleteCollection,
    /// POST to a path that is not a resource.
    Post,
    /// PUT to a path that is not a resource.
    Put,
    /// HEAD of a path that is not a resource.
    Head,
    /// OPTIONS of a path that is not a resource.
    Options,
    /// Act as another user.
    Impersonate,
    /// Grant the rights of a role.
    Bind,
    /// Put rights into a role that one does not have.
    Escalate,
    /// Approve certificate signing requests of a signer.
    Approve,
    /// Sign certificates as a signer.
    Sign,
    /// Any other text: that of an access review, or the method of a request to a path that is not a resource. Clients may
    /// send what they like there, and rules may name it.
    Custom(Box<str>),
}

impl Verb {
    /// As rules, logs and messages write it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Post => "post",
            Self::Put => "put",
            Self::Head => "head",
            Self::Options => "options",
            Self::Impersonate => "impersonate",
            Self::Bind => "bind",
            Self::Escalate => "escalate",
            Self::Approve => "approve",
            Self::Sign => "sign",
            Self::Custom(text) => text,
        }
    }

    /// Whether nothing is changed.
    pub fn reads(&self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch | Self::Head | Self::Options)
    }
}

impl From<&str> for Verb {
    fn from(text: &str) -> Self {
        match text {
            "" => Self::None,
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            "post" => Self::Post,
            "put" => Self::Put,
            "head" => Self::Head,
            "options" => Self::Options,
            "impersonate" => Self::Impersonate,
            "bind" => Self::Bind,
            "escalate" => Self::Escalate,
            "approve" => Self::Approve,
            "sign" => Self::Sign,
            other => Self::Custom(other.into()),
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept() {
        for text in [
            "",
            "get",
            "list",
            "watch",
            "create",
            "update",
            "patch",
            "delete",
            "deletecollection",
            "post",
            "put",
            "head",
            "options",
            "impersonate",
            "bind",
            "escalate",
            "approve",
            "sign",
        ] {
            let verb = Verb::from(text);
            assert!(!matches!(verb, Verb::Custom(_)), "{text}");
            assert_eq!(verb.as_str(), text);
        }
        for text in ["*", "use", "Get", "propfind"] {
            assert_eq!(Verb::from(text), Verb::Custom(text.into()));
            assert_eq!(Verb::from(text).to_string(), text);
        }
    }
}
