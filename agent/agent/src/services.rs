//! Service environment variables of containers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Name, Reflector, Service};
use crate::pod::service_env::{self, ServicePorts};

/// How long a pod waits for the first list of Services: an unavailable API server must not block restarts.
const FIRST_LIST: Duration = Duration::from_secs(2);

/// Variables for a pod: its namespace's services if it links them, and always the API server's.
pub async fn variables(
    services: &Reflector<Service>,
    namespace: &str,
    links: bool,
) -> BTreeMap<String, String> {
    // Upstream holds pods back until services were listed once.
    let _ = tokio::time::timeout(FIRST_LIST, services.answered()).await;
    let api = Name::new("default", "kubernetes");
    let api_ports = services.get(&api).and_then(|service| entry(&api, &service));
    let own: Vec<ServicePorts> = match links {
        true => {
            let all = services.all().into_iter();
            let own = all.filter(|(name, _)| &*name.namespace == namespace && *name != api);
            own.filter_map(|(name, service)| entry(&name, &service)).collect()
        }
        false => vec![],
    };
    service_env::variables(api_ports.iter().chain(&own))
}

fn entry(name: &Name, service: &Service) -> Option<ServicePorts> {
    let ip = service.ips.first()?.to_string();
    let ports = service.ports.iter().map(|port| {
        let protocol = port.protocol.text().to_owned();
        (port.name.clone().into(), i32::from(port.port), protocol)
    });
    Some(ServicePorts { name: (*name.name).to_owned(), ip, ports: ports.collect() })
}
