//! Allocates cluster IPs and node ports of Services. An allocation is a key in the store, written before the Service
//! and deleted after it, so two servers on one store never allocate the same value: an `IPAddress` object per address,
//! a plain key per node port.

use super::{service_cidrs, service_families};
use crate::fenced::write_failed;
use crate::hook::{Hook, HookContext};
use crate::metadata;
use crate::node_ports;
use crate::objects::store_failed;
use crate::service_ranges::{Range, ServiceRanges};
use async_trait::async_trait;
use coracle_cli::causes;
use coracle_client::node_ports::PORTS;
use coracle_fields::core::v1::{Service, ServicePort, ServiceSpec};
use coracle_fields::networking::v1::IPAddress;
use coracle_fields::{Schema as _, View, make};
use coracle_kinds::object::limits::{Limits, stored_bytes};
use coracle_proto::status::{ApiError, FieldError};
use coracle_store::{Durability, Revision, StoreError, Write};
use rand::RngExt;
use serde_json::{Value, json};
use std::net::IpAddr;

const TRIES: usize = 256;
/// Namespace and name.
const API_SERVICE: (&str, &str) = ("default", "kubernetes");

/// The hook of Services.
pub struct ServiceAddresses {
    ranges: Vec<Range>,
}

impl ServiceAddresses {
    /// Allocates cluster IPs from the ServiceCIDRs, or from these ranges as long as there are none.
    pub fn new(ranges: ServiceRanges) -> Self {
        Self { ranges: ranges.ranges }
    }
}

fn spec(service: &Value) -> View<'_, ServiceSpec> {
    Service::of(service).spec()
}

fn wants_address(service: &Value) -> bool {
    let of_type =
        matches!(spec(service).type_().get(), None | Some("ClusterIP" | "NodePort" | "LoadBalancer"));
    of_type && spec(service).cluster_ip() != "None"
}

fn wants_ports(service: &Value) -> bool {
    matches!(spec(service).type_().text(), "NodePort" | "LoadBalancer")
}

fn addresses(service: &Value) -> Vec<String> {
    let mut all: Vec<String> = spec(service).cluster_ips().texts().map(str::to_owned).collect();
    if let (true, Some(ip)) = (all.is_empty(), spec(service).cluster_ip().get()) {
        all.push(ip.to_owned());
    }
    all.retain(|ip| !ip.is_empty() && ip != "None");
    all
}

fn ports(service: &Value) -> Vec<u16> {
    let list = spec(service).ports().items().map(|port| port.node_port());
    let extra = std::iter::once(spec(service).health_check_node_port());
    let numbers = list.chain(extra).filter_map(|port| port.int());
    let mut all: Vec<u16> = numbers.filter_map(|port| u16::try_from(port).ok()).collect();
    all.retain(|p| *p != 0);
    // One port may serve TCP and UDP.
    all.sort_unstable();
    all.dedup();
    all
}

fn invalid(service: &Value, cause: FieldError) -> ApiError {
    ApiError::invalid("", "Service", Service::of(service).metadata().name().text(), vec![cause])
}

impl ServiceAddresses {
    fn families(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| if range.base.is_ipv4() { "IPv4" } else { "IPv6" }).collect()
    }

    /// The ranges in which addresses may be allocated now.
    fn usable_ranges(&self, context: HookContext<'_>) -> Result<Vec<Range>, ApiError> {
        let kind = context.registry.resource("networking.k8s.io", "v1", "servicecidrs");
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        Ok(service_cidrs::usable(&self.ranges, &context.objects.cache(&kind)?.list(None)))
    }

    /// Settles families, then takes the addresses that are asked for and draws the others.
    async fn allocate_addresses(
        &self,
        allocator: &Allocator<'_>,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, ApiError> {
        if spec(service).cluster_ip() == "None" {
            Service::edit(service).spec().cluster_ips().set(["None"]);
        }
        if let Err(causes) = service_families::default_families(service, old, &self.families()) {
            let name = Service::of(service).metadata().name().text();
            return Err(ApiError::invalid("", "Service", name, causes));
        }
        if !wants_address(service) {
            return Ok(Vec::new());
        }
        let held = old.map(addresses).unwrap_or_default();
        let mut all = addresses(service);
        let mut taken = Vec::new();
        let ranges = self.usable_ranges(allocator.context)?;
        let families: Vec<String> = spec(service).ip_families().texts().map(str::to_owned).collect();
        for (i, family) in families.iter().enumerate() {
            let asked = all.get(i).filter(|ip| !held.contains(ip));
            let outcome = match asked {
                Some(text) => reserve_address(allocator, &ranges, text, service).await.map(|()| text.clone()),
                None if i < all.len() => continue,
                None => pick_address(allocator, &ranges, family, service).await,
            };
            match outcome {
                Ok(address) => {
                    taken.push(address.clone());
                    if i >= all.len() {
                        all.push(address);
                    }
                }
                Err(error) => {
                    allocator.free(&taken, &[]).await;
                    return Err(error);
                }
            }
        }
        Service::edit(service).spec().cluster_ip().set(all.first());
        Service::edit(service).spec().cluster_ips().set(all);
        Ok(taken)
    }

    /// Takes the node ports that are asked for and draws the others; nothing stays taken when it fails.
    async fn allocate_ports(
        &self,
        allocator: &Allocator<'_>,
        service: &mut Value,
        held: &[u16],
    ) -> Result<(), ApiError> {
        let mut taken = Vec::new();
        let outcome = fill_ports(allocator, service, held, &mut taken).await;
        if outcome.is_err() {
            allocator.free(&[], &taken).await;
        }
        outcome
    }

    async fn allocate_all(
        &self,
        allocator: &Allocator<'_>,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let taken = self.allocate_addresses(allocator, service, old).await?;
        if !wants_ports(service) {
            return Ok(());
        }
        let outcome = self.allocate_ports(allocator, service, &old.map(ports).unwrap_or_default()).await;
        if outcome.is_err() {
            allocator.free(&taken, &[]).await;
        }
        outcome
    }
}

/// Takes an address that is asked for.
async fn reserve_address(
    allocator: &Allocator<'_>,
    ranges: &[Range],
    text: &str,
    service: &Value,
) -> Result<(), ApiError> {
    let refuse = |why: &str| {
        let list = spec(service).cluster_ips().as_value();
        let why = format!("failed to allocate IP {text}: {why}");
        Err(invalid(service, FieldError::invalid("spec.clusterIPs", &list, &why)))
    };
    let range = |ip: IpAddr| ranges.iter().find(|range| range.contains(ip));
    let found = text.parse().ok().and_then(|ip| Some((ip, range(ip)?)));
    let Some((ip, _)) = found.filter(|(ip, range)| range.is_assignable(*ip)) else {
        return refuse("the provided network does not match the current range");
    };
    if allocator.is_in_use(text, service).await? {
        return refuse("provided IP is already allocated");
    }
    if allocator.address(ip, service).await? || allocator.left_behind(ip, service).await? {
        return Ok(());
    }
    refuse("provided IP is already allocated")
}

/// Draws an address of a family from the first range that has one.
async fn pick_address(
    allocator: &Allocator<'_>,
    ranges: &[Range],
    family: &str,
    service: &Value,
) -> Result<String, ApiError> {
    for range in ranges.iter().filter(|range| range.base.is_ipv4() == (family == "IPv4")) {
        if let Some(address) = allocator.pick_address(*range, service).await? {
            return Ok(address);
        }
    }
    Err(ApiError::internal("failed to allocate a serviceIP: range is full"))
}

async fn fill_ports(
    allocator: &Allocator<'_>,
    service: &mut Value,
    held: &[u16],
    taken: &mut Vec<u16>,
) -> Result<(), ApiError> {
    let name = metadata_key(service);
    let allocates = spec(service).allocate_load_balancer_node_ports().get() != Some(false);
    let count = spec(service).ports().len();
    for i in 0..count {
        let asked = spec(service).ports().nth(i).node_port().or(0);
        if asked == 0 && !allocates {
            continue;
        }
        let port = if asked == 0 {
            // The same port number in another protocol shares its node port.
            let own = spec(service).ports().nth(i);
            let twin = spec(service).ports().items().take(i).find(|other| {
                other.port().int() == own.port().int() && other.protocol().text() != own.protocol().text()
            });
            match twin.and_then(|twin| twin.node_port().int()) {
                Some(port) => port as u16,
                None => {
                    let port = allocator.pick_port(&name, taken).await?;
                    taken.push(port);
                    port
                }
            }
        } else {
            let port = u16::try_from(asked).unwrap_or_default();
            if !held.contains(&port) && !taken.contains(&port) {
                let refusal = if !PORTS.contains(&port) {
                    Some("provided port is not in the valid range. The range of valid ports is 30000-32767")
                } else if !allocator.port(port, &name).await? {
                    Some("provided port is already allocated")
                } else {
                    None
                };
                if let Some(why) = refusal {
                    let field = format!("spec.ports[{i}].nodePort");
                    return Err(invalid(service, FieldError::invalid(field, &json!(asked), why)));
                }
                taken.push(port);
            }
            port
        };
        let mut root = Service::edit(service);
        if let Some(item) = root.spec().ports().list_mut().and_then(|ports| ports.get_mut(i)) {
            ServicePort::edit(item).node_port().set(port);
        }
    }
    let of = spec(service);
    let local = of.type_() == "LoadBalancer" && of.external_traffic_policy() == "Local";
    let asked = u16::try_from(of.health_check_node_port().or(0)).unwrap_or_default();
    if local && asked == 0 {
        let port = allocator.pick_port(&name, taken).await?;
        Service::edit(service).spec().health_check_node_port().set(port);
        taken.push(port);
    } else if local && !held.contains(&asked) {
        if taken.contains(&asked) || !allocator.port(asked, &name).await? {
            return Err(ApiError::internal(format!(
                "failed to allocate requested HealthCheck NodePort {asked}: provided port is already allocated"
            )));
        }
        taken.push(asked);
    }
    Ok(())
}

fn metadata_key(service: &Value) -> String {
    let meta = Service::of(service).metadata();
    format!("{}/{}", meta.namespace().text(), meta.name().text())
}

/// Allocates keys in the store; a dry run only checks them.
struct Allocator<'a> {
    context: HookContext<'a>,
    dry_run: bool,
}

impl Allocator<'_> {
    /// Claims an address; `false` when somebody has it.
    async fn address(&self, ip: IpAddr, service: &Value) -> Result<bool, ApiError> {
        let (key, bytes) = self.allocation(ip, service)?;
        self.reserve(key, bytes, 0).await
    }

    /// Whether another Service has an address, whoever has its IPAddress: that may have been deleted.
    async fn is_in_use(&self, ip: &str, service: &Value) -> Result<bool, ApiError> {
        let kind = self.context.registry.resource("", "v1", "services").ok_or_else(ApiError::no_such_path)?;
        let meta = Service::of(service).metadata();
        let own = (meta.namespace().text(), meta.name().text());
        for other in self.context.objects.cache(&kind)?.list(None) {
            let (namespace, name) = (&*other.meta.namespace, &*other.meta.name);
            // Most have not even the text: they need not be parsed.
            let names_it = std::str::from_utf8(&other.json).is_ok_and(|text| text.contains(ip));
            let has_it = names_it && other.doc().view::<Service>().spec().cluster_ips().has(ip);
            if !has_it || (namespace, name) == own {
                continue;
            }
            // It may have been deleted or changed by another server just now.
            let there = self.context.store.get(&kind.key(namespace, name)).await.map_err(store_failed)?;
            let there = there.and_then(|there| serde_json::from_slice::<Value>(&there.value).ok());
            if there.is_some_and(|there| addresses(&there).iter().any(|held| held == ip)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes over what a server that was killed before it could store the Service of the API has allocated for it; `false` when the
    /// address is another's, or the Service is there. Only servers create this one: of any other, two creations may run at the same
    /// time, and the one that fails gives back the address of the one that does not.
    async fn left_behind(&self, ip: IpAddr, service: &Value) -> Result<bool, ApiError> {
        let (key, bytes) = self.allocation(ip, service)?;
        let Some(there) = self.context.store.get(&key).await.map_err(store_failed)? else {
            return Ok(false);
        };
        let allocation: Value = serde_json::from_slice(&there.value).map_err(ApiError::internal)?;
        let (parent, meta) =
            (IPAddress::of(&allocation).spec().parent_ref(), Service::of(service).metadata());
        let is_own = (meta.namespace().text(), meta.name().text()) == API_SERVICE
            && parent.resource() == "services"
            && parent.namespace().text() == meta.namespace().text()
            && parent.name().text() == meta.name().text();
        if !is_own || stored(self.context, service).await.map_err(store_failed)?.is_some() {
            return Ok(false);
        }
        if self.dry_run { Ok(true) } else { self.reserve(key, bytes, there.modified).await }
    }

    /// The object that says whose an address is, with its key.
    fn allocation(&self, ip: IpAddr, service: &Value) -> Result<(String, bytes::Bytes), ApiError> {
        let resource = self.context.registry.resource("networking.k8s.io", "v1", "ipaddresses");
        let kind = resource.ok_or_else(ApiError::no_such_path)?;
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let meta = Service::of(service).metadata();
        let object = make!(IPAddress {
            metadata: {
                name: ip.to_string(),
                labels: [
                    ("ipaddress.kubernetes.io/ip-family", family),
                    ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"),
                ],
            },
            spec: {
                parent_ref: {
                    resource: "services",
                    namespace: meta.namespace(),
                    name: meta.name(),
                },
            },
        });
        let mut object = object.into_value();
        metadata::begin(&kind, "", &mut object);
        let key = kind.key("", &ip.to_string());
        let bytes = stored_bytes(&object, &Limits::USUAL).map_err(ApiError::internal)?;
        Ok((key, bytes))
    }

    async fn port(&self, port: u16, owner: &str) -> Result<bool, ApiError> {
        self.reserve(node_ports::key(port), bytes::Bytes::from(owner.to_owned()), 0).await
    }

    /// Writes a key if it has the revision (0: is not there).
    async fn reserve(&self, key: String, value: bytes::Bytes, expect: Revision) -> Result<bool, ApiError> {
        if self.dry_run {
            return self.context.store.get(&key).await.map(|there| there.is_none()).map_err(store_failed);
        }
        let (value, durability) = (Some(value), Durability::Sync);
        match self.context.allocate(Write { key, expect, value, durability, fence: None }).await {
            Ok(_) => Ok(true),
            Err(StoreError::Conflict(_)) => Ok(false),
            Err(error) => Err(write_failed(error, self.context.fence)),
        }
    }

    /// A free address of a range, if it has one: random tries first, then one after the other, so that a nearly full range still serves.
    async fn pick_address(&self, range: Range, service: &Value) -> Result<Option<String>, ApiError> {
        let size = range.size();
        let end = size.saturating_sub(if range.base.is_ipv4() { 1 } else { 0 }).max(2);
        // The low end is left to those who ask for an address, as long as there is another.
        let reserved = if size < 16 { 1 } else { (size / 16).clamp(16, 256).min(size / 2) };
        let usual = reserved..end;
        let tries = if usual.is_empty() { 0 } else { TRIES.min(size as usize) };
        let random = (0..tries).map(|_| rand::rng().random_range(usual.clone())).collect::<Vec<_>>();
        for offset in random.into_iter().chain(usual).chain(1..reserved.min(end)) {
            let ip = range.at(offset);
            if self.address(ip, service).await? {
                return Ok(Some(ip.to_string()));
            }
        }
        Ok(None)
    }

    /// A free port that is none of `taken`, which a dry run has not written down.
    async fn pick_port(&self, owner: &str, taken: &[u16]) -> Result<u16, ApiError> {
        let random = (0..TRIES).map(|_| rand::rng().random_range(PORTS)).collect::<Vec<_>>();
        for port in random.into_iter().chain(PORTS).filter(|port| !taken.contains(port)) {
            if self.port(port, owner).await? {
                return Ok(port);
            }
        }
        Err(ApiError::internal("failed to allocate a nodePort: range is full"))
    }

    async fn free(&self, addresses: &[String], ports: &[u16]) {
        if !self.dry_run {
            free(self.context, addresses, ports).await;
        }
    }
}

/// The Service of that name in the store.
async fn stored(context: HookContext<'_>, service: &Value) -> Result<Option<Value>, StoreError> {
    let Some(kind) = context.registry.resource("", "v1", "services") else { return Ok(None) };
    let meta = Service::of(service).metadata();
    let there = context.store.get(&kind.key(meta.namespace().text(), meta.name().text())).await?;
    // One that cannot be read holds whatever was asked for.
    Ok(there.map(|there| serde_json::from_slice(&there.value).unwrap_or_else(|_| service.clone())))
}

/// Releases addresses and ports; missing allocations are not an error.
async fn free(context: HookContext<'_>, addresses: &[String], ports: &[u16]) {
    let mut keys: Vec<String> = ports.iter().map(|port| node_ports::key(*port)).collect();
    if let Some(kind) = context.registry.resource("networking.k8s.io", "v1", "ipaddresses") {
        keys.extend(addresses.iter().map(|ip| kind.key("", ip)));
    }
    for key in keys {
        let Ok(Some(there)) = context.store.get(&key).await else { continue };
        let (expect, durability) = (there.modified, Durability::Sync);
        // Without a fence: what was allocated is given back whoever leads by now.
        let write = Write { key, expect, value: None, durability, fence: None };
        if let Err(error) = context.store.write(write).await {
            tracing::warn!(error = %causes::chain(&error), "an address or a port of a Service is not released");
        }
    }
}

#[async_trait]
impl Hook for ServiceAddresses {
    async fn before_create(
        &self,
        context: HookContext<'_>,
        object: &mut Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        self.allocate_all(&Allocator { context, dry_run }, object, None).await
    }

    async fn create_failed(&self, context: HookContext<'_>, object: &Value) {
        // The answer of the store may be what failed, or somebody else has created it with the same address.
        let (held_addresses, held_ports) = match stored(context, object).await {
            Ok(None) => Default::default(),
            Ok(Some(there)) => (addresses(&there), ports(&there)),
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "what a Service was given is not released: it may be there");
                return;
            }
        };
        let addresses: Vec<String> =
            addresses(object).into_iter().filter(|ip| !held_addresses.contains(ip)).collect();
        let ports: Vec<u16> = ports(object).into_iter().filter(|port| !held_ports.contains(port)).collect();
        free(context, &addresses, &ports).await;
    }

    async fn before_update(
        &self,
        context: HookContext<'_>,
        object: &mut Value,
        old: &Value,
        dry_run: bool,
    ) -> Result<(), ApiError> {
        let held = addresses(old);
        if wants_address(object) && addresses(object).is_empty() && !held.is_empty() {
            Service::edit(object).spec().cluster_ip().set(spec(old).cluster_ip());
            Service::edit(object).spec().cluster_ips().set(spec(old).cluster_ips());
        }
        self.allocate_all(&Allocator { context, dry_run }, object, Some(old)).await
    }

    async fn update_done(&self, context: HookContext<'_>, object: &Value, old: &Value, stored: bool) {
        let (kept, gone) = if stored { (object, old) } else { (old, object) };
        let (kept_addresses, kept_ports) = (addresses(kept), ports(kept));
        let addresses: Vec<String> =
            addresses(gone).into_iter().filter(|ip| !kept_addresses.contains(ip)).collect();
        let ports: Vec<u16> = ports(gone).into_iter().filter(|p| !kept_ports.contains(p)).collect();
        free(context, &addresses, &ports).await;
    }

    async fn after_delete(&self, context: HookContext<'_>, old: &Value) {
        free(context, &addresses(old), &ports(old)).await;
    }
}
