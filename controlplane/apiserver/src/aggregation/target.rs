//! Reads an APIService, and resolves its Service and EndpointSlices to endpoints. Pure: no I/O.

use crate::nodes::dial::Endpoint;
use coracle_fields::apiregistration::v1::{APIService, APIServiceCondition};
use coracle_fields::core::v1::Service;
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::{Schema as _, View, make};
use serde_json::Value;

/// The condition of APIServices.
const AVAILABLE: &str = "Available";

/// The Service behind an aggregated group version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its API group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Port of the Service.
    pub port: u16,
    /// CA bundle as base64 of PEM; empty: the system's roots.
    pub authorities: String,
    /// Whether the serving certificate is not verified.
    pub insecure: bool,
}

/// Why a server is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// Reason of the condition.
    pub reason: &'static str,
    /// Message of the condition.
    pub message: String,
}

impl Target {
    /// Reads an APIService; `None` if this server serves it.
    pub fn of(registration: View<'_, APIService>) -> Option<Self> {
        let spec = registration.spec();
        let service = spec.service();
        service.is_object().then(|| Self {
            group: spec.group().text().to_owned(),
            version: spec.version().text().to_owned(),
            namespace: service.namespace().text().to_owned(),
            service: service.name().text().to_owned(),
            port: service.port().int().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            authorities: spec.ca_bundle().text().to_owned(),
            insecure: spec.insecure_skip_tls_verify().flag(),
        })
    }

    /// The path that everything of it begins with.
    pub fn root(&self) -> String {
        match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// `group/version`.
    pub fn api_version(&self) -> String {
        let root = self.root();
        root.trim_start_matches("/apis/").trim_start_matches("/api/").to_owned()
    }

    /// The name that its certificate must have.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Its endpoints, or why there are none.
    pub fn endpoints(
        &self,
        service: Option<View<'_, Service>>,
        slices: &[View<'_, EndpointSlice>],
    ) -> Result<Vec<Endpoint>, Unavailable> {
        let (name, namespace) = (&self.service, &self.namespace);
        let not = |reason, message| Err(Unavailable { reason, message });
        let Some(service) = service else {
            return not("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"));
        };
        let spec = service.spec();
        if spec.type_() == "ExternalName" {
            let host = spec.external_name().text().to_owned();
            return Ok(vec![Endpoint { host, port: self.port, node: String::new() }]);
        }
        // Of other types upstream asks no more than whether they answer.
        let strict = matches!(spec.type_().text(), "" | "ClusterIP");
        let port = spec.ports().items().find(|port| port.port() == i64::from(self.port));
        if port.is_none() && strict {
            let message = format!("service/{name} in {namespace:?} is not listening on port {}", self.port);
            return not("ServicePortError", message);
        }
        if slices.is_empty() && strict {
            let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return not("EndpointsNotFound", message);
        }
        let port_name = port.map(|port| port.name().text()).unwrap_or_default();
        let mut endpoints: Vec<Endpoint> = slices.iter().flat_map(|slice| ready(*slice, port_name)).collect();
        if endpoints.is_empty() && strict {
            let message = format!(
                "endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}"
            );
            return not("MissingEndpoints", message);
        }
        if endpoints.is_empty() {
            let address = Some(spec.cluster_ip().text()).filter(|ip| !matches!(*ip, "" | "None"));
            endpoints.extend(address.map(|ip| Endpoint {
                host: ip.into(),
                port: self.port,
                node: String::new(),
            }));
        }
        Ok(endpoints)
    }
}

/// The ready endpoints of a slice.
fn ready(slice: View<'_, EndpointSlice>, port_name: &str) -> Vec<Endpoint> {
    let port = slice.ports().items().find(|port| port.name() == port_name);
    let port = port.and_then(|port| port.port().int()).and_then(|port| u16::try_from(port).ok());
    let Some(port) = port else { return Vec::new() };
    let endpoints = slice.endpoints().items();
    let endpoints = endpoints.filter(|endpoint| endpoint.conditions().ready().get() != Some(false));
    let endpoints = endpoints.flat_map(|endpoint| {
        let node = endpoint.node_name().text();
        let addresses = endpoint.addresses().texts();
        addresses.map(move |host| Endpoint { host: host.into(), port, node: node.into() })
    });
    endpoints.collect()
}

/// Whether an APIService says that it is available.
pub fn is_available(registration: View<'_, APIService>) -> bool {
    let mut conditions = registration.status().conditions().items();
    conditions.any(|condition| condition.type_() == AVAILABLE && condition.status() == "True")
}

/// Availability of an APIService.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// This server serves it.
    Local,
    /// Its server answers.
    Passed,
    /// Its server is not available.
    Unavailable(Unavailable),
}

impl Availability {
    fn condition(&self) -> (&str, &str, &str) {
        match self {
            Self::Local => ("True", "Local", "Local APIServices are always available"),
            Self::Passed => ("True", "Passed", "all checks passed"),
            Self::Unavailable(why) => ("False", why.reason, &why.message),
        }
    }

    /// Whether the status has this condition already.
    pub fn is_reported(&self, registration: View<'_, APIService>) -> bool {
        let (status, reason, message) = self.condition();
        let mut conditions = registration.status().conditions().items();
        conditions
            .find(|condition| condition.type_() == AVAILABLE)
            .is_some_and(|c| c.status() == status && c.reason() == reason && c.message() == message)
    }

    /// Sets the `Available` condition; other conditions are kept.
    pub fn report(&self, registration: &mut Value, now: &str) {
        let (status, reason, message) = self.condition();
        let mut new = make!(part APIServiceCondition {
            type_: AVAILABLE,
            status,
            last_transition_time: now,
            reason,
            message,
        });
        let mut registration = APIService::edit(registration);
        let mut reported = registration.status();
        let mut conditions = reported.conditions();
        let mut found = false;
        conditions.each(|mut old| {
            if found || old.view().type_() != AVAILABLE {
                return;
            }
            found = true;
            if old.view().status() == status {
                new.edit().last_transition_time().set(old.view().last_transition_time());
            }
            old.set(&new);
        });
        if !found {
            conditions.push(new);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_validation::tree::Tree as _;
    use serde_json::json;

    fn registration() -> Value {
        json!({"spec": {"group": "demo.io", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "apart", "name": "boats", "port": 443}}})
    }

    #[test]
    fn what_is_in_the_way_is_named_in_order() {
        let target = Target::of(APIService::of(&registration())).unwrap();
        assert_eq!((target.root().as_str(), target.host().as_str()), ("/apis/demo.io/v1", "boats.apart.svc"));
        assert_eq!(target.api_version(), "demo.io/v1");
        let service = |kind: &str, port: u16| {
            json!({"spec": {"type": kind, "externalName": "h.example.com",
            "clusterIP": "10.96.0.9", "ports": [{"name": "https", "port": port}]}})
        };
        let slice = |ready: bool, port: &str| {
            json!({"ports": [{"name": port, "port": 8443}], "endpoints": [
                {"addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": {"ready": ready}}]})
        };
        let endpoint =
            |host: &str, port, node: &str| Ok(vec![Endpoint { host: host.into(), port, node: node.into() }]);
        let not = |reason, message: &str| Err(Unavailable { reason, message: message.into() });
        let missing =
            "endpointslices for service/boats in \"apart\" have no addresses with port name \"https\"";
        for (service, slices, want) in [
            (None, vec![], not("ServiceNotFound", "service/boats in \"apart\" is not present")),
            (
                Some(service("ClusterIP", 80)),
                vec![],
                not("ServicePortError", "service/boats in \"apart\" is not listening on port 443"),
            ),
            (
                Some(service("ClusterIP", 443)),
                vec![],
                not("EndpointsNotFound", "cannot find endpointslices for service/boats in \"apart\""),
            ),
            (Some(service("ClusterIP", 443)), vec![slice(false, "https")], not("MissingEndpoints", missing)),
            (Some(service("ClusterIP", 443)), vec![slice(true, "http")], not("MissingEndpoints", missing)),
            (
                Some(service("ClusterIP", 443)),
                vec![slice(false, "https"), slice(true, "https")],
                endpoint("10.0.0.1", 8443, "n1"),
            ),
            (Some(service("NodePort", 80)), vec![], endpoint("10.96.0.9", 443, "")),
            (Some(service("ExternalName", 80)), vec![], endpoint("h.example.com", 443, "")),
        ] {
            let slices: Vec<_> = slices.iter().map(EndpointSlice::of).collect();
            assert_eq!(target.endpoints(service.as_ref().map(Service::of), &slices), want);
        }
        let local = json!({"spec": {"group": "demo.io", "version": "v1"}});
        assert_eq!(Target::of(APIService::of(&local)), None);
    }

    #[test]
    fn conditions_keep_their_time_and_their_neighbours() {
        let mut object = registration();
        object["status"] = json!({"conditions": [{"type": "Other", "status": "True"}]});
        let not =
            Availability::Unavailable(Unavailable { reason: "ServiceNotFound", message: "gone".into() });
        not.report(&mut object, "1");
        let view = APIService::of(&object);
        assert!(not.is_reported(view) && !Availability::Passed.is_reported(view) && !is_available(view));
        let other =
            Availability::Unavailable(Unavailable { reason: "MissingEndpoints", message: "none".into() });
        other.report(&mut object, "2");
        let conditions = object.items("status.conditions");
        assert_eq!(conditions.len(), 2);
        assert_eq!(
            (conditions[1].text("reason"), conditions[1].text("lastTransitionTime")),
            ("MissingEndpoints", "1")
        );
        Availability::Passed.report(&mut object, "3");
        assert_eq!(
            object.items("status.conditions")[1],
            json!({"type": "Available", "status": "True",
            "lastTransitionTime": "3", "reason": "Passed", "message": "all checks passed"})
        );
        assert!(is_available(APIService::of(&object)));
    }
}
