//! Environment variables that tell a container where the services of its namespace are. Pure.

use std::collections::BTreeMap;

/// The part of a Service that these variables need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePorts {
    /// Service name.
    pub name: String,
    /// Its cluster IP.
    pub ip: String,
    /// Its ports: name, number, protocol.
    pub ports: Vec<(String, i32, String)>,
}

/// The variables of these services.
pub fn variables<'a>(services: impl Iterator<Item = &'a ServicePorts>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for service in services {
        let Some((_, first, _)) = service.ports.first() else { continue };
        let name = variable(&service.name);
        env.insert(format!("{name}_SERVICE_HOST"), service.ip.clone());
        env.insert(format!("{name}_SERVICE_PORT"), first.to_string());
        let host = if service.ip.contains(':') { format!("[{}]", service.ip) } else { service.ip.clone() };
        for (index, (port_name, port, protocol)) in service.ports.iter().enumerate() {
            if !port_name.is_empty() {
                env.insert(format!("{name}_SERVICE_PORT_{}", variable(port_name)), port.to_string());
            }
            let lower = protocol.to_lowercase();
            let url = format!("{lower}://{host}:{port}");
            if index == 0 {
                env.insert(format!("{name}_PORT"), url.clone());
            }
            let prefix = format!("{name}_PORT_{port}_{}", protocol.to_uppercase());
            env.insert(format!("{prefix}_PROTO"), lower);
            env.insert(format!("{prefix}_PORT"), port.to_string());
            env.insert(format!("{prefix}_ADDR"), service.ip.clone());
            env.insert(prefix, url);
        }
    }
    env
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_users_know_them() {
        let service = ServicePorts {
            name: "web-front".into(),
            ip: "10.0.0.9".into(),
            ports: vec![("http".into(), 80, "TCP".into()), ("dns".into(), 53, "UDP".into())],
        };
        let env = variables([service].iter());
        for (name, want) in [
            ("WEB_FRONT_SERVICE_HOST", "10.0.0.9"),
            ("WEB_FRONT_SERVICE_PORT", "80"),
            ("WEB_FRONT_SERVICE_PORT_HTTP", "80"),
            ("WEB_FRONT_PORT", "tcp://10.0.0.9:80"),
            ("WEB_FRONT_PORT_80_TCP", "tcp://10.0.0.9:80"),
            ("WEB_FRONT_PORT_53_UDP_PROTO", "udp"),
            ("WEB_FRONT_PORT_53_UDP_ADDR", "10.0.0.9"),
        ] {
            assert_eq!(env.get(name).map(String::as_str), Some(want), "{name}");
        }
        assert_eq!(env.len(), 4 + 1 + 8);
    }
}
