//! Ports of this machine that lead into a cluster: what `--publish` says, and what is stored between runs.

use super::process::Process;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Where published connections go to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A port of a Service, by number or name.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// Port of the Service.
        port: String,
    },
    /// A port of the node: a NodePort, or the port of a LoadBalancer Service.
    Node(u16),
}

/// A port of this machine, and where it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// Port on this machine; 0 for the previous port of the target, or a free one.
    pub port: u16,
    /// Where it leads to.
    pub target: Target,
}

/// A value of `--publish`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishArg {
    /// The empty value: nothing of what was published before.
    Clear,
    /// One more port.
    Add(Publish),
}

/// Why a text does not say what to publish.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The number of parts.
    #[error("want PORT:SERVICE:PORT, PORT:NAMESPACE/SERVICE:PORT, or only the PORT of a node")]
    Form,
    /// A port.
    #[error("{0:?} is no port: want a number from {1} to 65535")]
    Port(String, u16),
    /// A name.
    #[error("{0:?} is not the name of a {1}")]
    Name(String, &'static str),
}

impl FromStr for Target {
    type Err = PublishError;

    fn from_str(text: &str) -> Result<Self, PublishError> {
        match text.rsplit_once(':') {
            None => Ok(Self::Node(port(text, 1)?)),
            Some((service, to)) => {
                let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
                for (name, what) in [(namespace, "namespace"), (name, "Service"), (to, "port")] {
                    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                    if name.is_empty() || name.len() > 63 || !name.chars().all(fits) {
                        return Err(PublishError::Name(name.to_owned(), what));
                    }
                }
                if to.chars().all(|c| c.is_ascii_digit()) {
                    port(to, 1)?;
                }
                Ok(Self::Service { namespace: namespace.into(), name: name.into(), port: to.into() })
            }
        }
    }
}

fn port(text: &str, least: u16) -> Result<u16, PublishError> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| PublishError::Port(text.to_owned(), least))
}

impl FromStr for PublishArg {
    type Err = PublishError;

    fn from_str(text: &str) -> Result<Self, PublishError> {
        let publish = match text.split(':').collect::<Vec<_>>()[..] {
            [""] => return Ok(Self::Clear),
            [only] => Publish { port: port(only, 1)?, target: only.parse()? },
            [own, _, _] => Publish { port: port(own, 0)?, target: text[own.len() + 1..].parse()? },
            _ => return Err(PublishError::Form),
        };
        Ok(Self::Add(publish))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { namespace, name, port } => write!(f, "{namespace}/{name}:{port}"),
            Self::Node(port) => write!(f, "{port}"),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = PublishError;

    fn try_from(text: String) -> Result<Self, PublishError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

/// A published port, stored between runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Port on the loopback of this machine.
    pub port: u16,
    /// Where it leads to.
    pub target: Target,
    /// Keeps the forwarder running.
    #[serde(default)]
    pub forwarder: Option<Process>,
}

impl Published {
    /// Whether it is forwarded now.
    pub fn runs(&self) -> bool {
        self.forwarder.as_ref().is_some_and(Process::alive)
    }

    /// What a browser opens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn arg(text: &str) -> PublishArg {
        text.parse().unwrap()
    }

    #[test]
    fn services_and_ports_of_nodes_are_read() {
        let PublishArg::Add(web) = arg("8080:web:80") else { panic!() };
        assert_eq!((web.port, web.target.to_string().as_str()), (8080, "default/web:80"));
        let PublishArg::Add(named) = arg("0:shop/web:http") else { panic!() };
        assert_eq!((named.port, named.target.to_string().as_str()), (0, "shop/web:http"));
        assert_eq!(arg("30080"), PublishArg::Add(Publish { port: 30080, target: Target::Node(30080) }));
        assert_eq!(arg(""), PublishArg::Clear);
        for (bad, why) in [
            ("web", "\"web\" is no port: want a number from 1 to 65535"),
            ("0", "\"0\" is no port: want a number from 1 to 65535"),
            ("8080:web", "want PORT:SERVICE:PORT"),
            ("127.0.0.1:8080:web:80", "want PORT:SERVICE:PORT"),
            ("70000:web:80", "\"70000\" is no port: want a number from 0 to 65535"),
            ("8080:web:70000", "\"70000\" is no port"),
            ("8080:Web:80", "\"Web\" is not the name of a Service"),
            ("8080:/web:80", "\"\" is not the name of a namespace"),
            ("8080:web:", "\"\" is not the name of a port"),
        ] {
            let error = bad.parse::<PublishArg>().unwrap_err().to_string();
            assert!(error.starts_with(why), "{bad}: {error}");
        }
        let target: Target = "shop/web:80".parse().unwrap();
        let stored = serde_json::to_string(&target).unwrap();
        assert_eq!(serde_json::from_str::<Target>(&stored).unwrap(), target);
    }
}
