//! What is in the table, and the smallest change that makes it what it should be.

use coracle_cni::conntrack::{Flow, UDP};
use coracle_cni::nft::{Batch, Element, Verdict};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use super::plan::{Entry, Group, Key, Plan, Target};
use super::rules::{self, Class, TABLE, TableConfig};
use super::stale::Stale;
use crate::cluster::{Name, Protocol};

/// A service as it is in the table; targets in the order of their slots.
#[derive(Default)]
struct Installed {
    groups: Vec<Group>,
    /// Key, which of the groups, class.
    entries: Vec<(Key, usize, u32)>,
    local: BTreeSet<IpAddr>,
}

/// What is in the table.
#[derive(Default)]
pub struct State {
    services: HashMap<Name, Installed>,
    owners: HashMap<Key, Name>,
    /// Services waiting for a key that another one has.
    contested: HashMap<Key, BTreeSet<Name>>,
    hairpins: HashMap<IpAddr, usize>,
    classes: HashMap<Class, u32>,
    /// How long clients stay, in seconds; their number is their place, from 1.
    times: Vec<u32>,
}

/// Changes under way.
#[derive(Default)]
pub struct Change {
    removed: BTreeMap<&'static str, Vec<Element>>,
    added: BTreeMap<&'static str, Vec<Element>>,
    classes: Vec<(Class, u32)>,
    times: Vec<(u32, u32)>,
    /// What is to be forgotten once the change is made.
    pub stale: Stale,
    /// Services that may get a key that was released.
    pub again: BTreeSet<Name>,
}

impl Change {
    fn remove(&mut self, set: &'static str, key: Vec<u8>) {
        self.removed.entry(set).or_default().push(Element::key(key));
    }

    fn add(&mut self, set: &'static str, element: Element) {
        self.added.entry(set).or_default().push(element);
    }

    /// How many elements change.
    pub fn len(&self) -> usize {
        self.removed.values().chain(self.added.values()).map(Vec::len).sum()
    }

    /// The change as a batch.
    pub fn into_batch(self) -> Batch {
        self.write(Batch::new())
    }

    /// The change as a batch that makes the whole table anew; what was removed never was in it.
    pub fn into_new_table(
        mut self,
        ground: &TableConfig,
        affinity: &[(&'static str, Vec<Element>)],
    ) -> Batch {
        let mut batch = Batch::new();
        rules::build(&mut batch, ground);
        self.removed.clear();
        let mut batch = self.write(batch);
        for (set, elements) in affinity {
            batch.add_elements(TABLE, set, elements);
        }
        batch
    }

    fn write(self, mut batch: Batch) -> Batch {
        for (set, elements) in &self.removed {
            batch.delete_elements(TABLE, set, elements);
        }
        for (number, seconds) in &self.times {
            rules::build_time(&mut batch, *number, *seconds);
        }
        for (class, number) in &self.classes {
            rules::build_class(&mut batch, class, *number);
        }
        for (set, elements) in &self.added {
            batch.add_elements(TABLE, set, elements);
        }
        batch
    }
}

impl State {
    /// The services in the table.
    pub fn names(&self) -> Vec<Name> {
        self.services.keys().cloned().collect()
    }

    /// Whether a session affinity element is still valid.
    pub fn may_stay(&self, element: &Element, v4: bool) -> bool {
        let Some((ip, number, port)) = rules::asked_for(&element.key, v4) else { return false };
        let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
        let Some(protocol) = all.into_iter().find(|p| p.number() == number) else { return false };
        let targets = self.asked(ip, protocol, port).into_iter().flat_map(|service| &service.groups);
        targets.flat_map(|group| &group.targets).any(|target| rules::target_value(*target) == element.value)
    }

    /// The service that an address and port lead to.
    fn asked(&self, ip: IpAddr, protocol: Protocol, port: u16) -> Option<&Installed> {
        let keys = [
            Key::Address { outside: false, ip, protocol, port },
            Key::Node { outside: false, v4: ip.is_ipv4(), protocol, port },
        ];
        self.services.get(keys.iter().find_map(|key| self.owners.get(key))?)
    }

    /// Whether a connection to a Service was translated to an address that is not one of its endpoints.
    pub fn is_misrouted(&self, flow: &Flow) -> bool {
        if flow.protocol != UDP || flow.answered_by == flow.destination {
            return false;
        }
        let (ip, port) = flow.destination;
        let Some(service) = self.asked(ip, Protocol::Udp, port) else { return false };
        let led = Target { ip: flow.answered_by.0, port: flow.answered_by.1 };
        !service.groups.iter().any(|group| group.targets.contains(&led))
    }

    /// Makes a service what its plan says; an empty plan removes it.
    pub fn update(&mut self, name: &Name, plan: Plan, change: &mut Change) {
        let old = self.services.remove(name).unwrap_or_default();
        let mut new = Installed { groups: plan.groups, entries: vec![], local: plan.local };
        for group in &mut new.groups {
            let before = old.groups.iter().find(|before| before.id == group.id);
            group.targets = arrange(before.map(|b| &*b.targets).unwrap_or_default(), &group.targets);
        }
        new.entries = self.update_entries(name, &old, &new.groups, plan.entries, change);
        self.update_hairpins(&old.local, &new.local, change);
        note_stale(&old, &new, &mut change.stale);
        if !new.entries.is_empty() {
            self.services.insert(name.clone(), new);
        }
    }

    fn update_entries(
        &mut self,
        name: &Name,
        old: &Installed,
        groups: &[Group],
        wanted: Vec<Entry>,
        change: &mut Change,
    ) -> Vec<(Key, usize, u32)> {
        let mut new: BTreeMap<Key, (usize, u32, Option<Verdict>)> = BTreeMap::new();
        for entry in wanted {
            if self.owners.get(&entry.key).is_some_and(|owner| owner != name) {
                self.contested.entry(entry.key).or_default().insert(name.clone());
                continue;
            }
            let (class, verdict) = match (rules::way_of(&entry.key), groups.get(entry.group)) {
                (Some((way, v4)), Some(group)) => {
                    let class = Class {
                        v4,
                        way,
                        count: group.targets.len() as u32,
                        affinity: group.affinity.map(|seconds| self.time(seconds, change)),
                        empty: group.empty,
                        sources: entry.sources,
                    };
                    let number = self.class(&class, change);
                    (number, Some(rules::entry_verdict(&class, number)))
                }
                _ => (0, None),
            };
            new.entry(entry.key).or_insert((entry.group, class, verdict));
        }
        for (key, group, class) in &old.entries {
            let now = new.get(key);
            if now.map(|(_, class, _)| class) != Some(class) {
                let (set, bytes) = rules::key_of(key);
                change.remove(set, bytes);
            }
            if now.is_none() {
                update_targets(key, targets(&old.groups, *group), &[], change);
                self.owners.remove(key);
                change.again.extend(self.contested.remove(key).unwrap_or_default());
            }
        }
        for (key, (group, class, verdict)) in &new {
            let before = old.entries.iter().find(|(old, ..)| old == key);
            if before.map(|(_, _, class)| class) != Some(class) {
                let (set, bytes) = rules::key_of(key);
                change.add(set, Element { verdict: verdict.clone(), ..Element::key(bytes) });
                self.owners.insert(*key, name.clone());
            }
            let before = before.map(|(_, group, _)| targets(&old.groups, *group)).unwrap_or_default();
            update_targets(key, before, targets(groups, *group), change);
        }
        new.into_iter().map(|(key, (group, class, _))| (key, group, class)).collect()
    }

    /// The number of a time; when there are too many, the last one serves.
    fn time(&mut self, seconds: u32, change: &mut Change) -> u32 {
        let known = self.times.iter().position(|time| *time == seconds);
        let at = known.unwrap_or_else(|| {
            if self.times.len() < rules::MAX_AFFINITY_TIMEOUTS {
                self.times.push(seconds);
                change.times.push((self.times.len() as u32, seconds));
            }
            self.times.len() - 1
        });
        at as u32 + 1
    }

    fn class(&mut self, class: &Class, change: &mut Change) -> u32 {
        if let Some(number) = self.classes.get(class) {
            return *number;
        }
        let number = self.classes.len() as u32 + 1;
        self.classes.insert(class.clone(), number);
        change.classes.push((class.clone(), number));
        number
    }

    fn update_hairpins(&mut self, old: &BTreeSet<IpAddr>, new: &BTreeSet<IpAddr>, change: &mut Change) {
        for ip in new.difference(old) {
            let count = self.hairpins.entry(*ip).or_default();
            *count += 1;
            if *count == 1 {
                change.add(rules::hairpin(ip.is_ipv4()), Element::key(rules::hairpin_key(*ip)));
            }
        }
        for ip in old.difference(new) {
            let Some(count) = self.hairpins.get_mut(ip) else { continue };
            *count -= 1;
            if *count == 0 {
                self.hairpins.remove(ip);
                change.remove(rules::hairpin(ip.is_ipv4()), rules::hairpin_key(*ip));
            }
        }
    }
}

fn targets(groups: &[Group], at: usize) -> &[Target] {
    groups.get(at).map(|group| &*group.targets).unwrap_or_default()
}

fn update_targets(entry: &Key, old: &[Target], new: &[Target], change: &mut Change) {
    let Some((way, v4)) = rules::way_of(entry) else { return };
    let set = way.endpoints(v4);
    for slot in 0..old.len().max(new.len()) {
        let (before, after) = (old.get(slot), new.get(slot));
        if before == after {
            continue;
        }
        let key = rules::endpoint_key(rules::key_of(entry).1, slot);
        if before.is_some() {
            change.remove(set, key.clone());
        }
        if let Some(target) = after {
            change.add(set, Element { value: rules::target_value(*target), ..Element::key(key) });
        }
    }
}

/// What must be forgotten when one becomes the other.
fn note_stale(old: &Installed, new: &Installed, stale: &mut Stale) {
    for group in &old.groups {
        let now =
            new.groups.iter().find(|now| now.id == group.id).map(|now| &*now.targets).unwrap_or_default();
        for gone in group.targets.iter().filter(|target| !now.contains(target)) {
            if group.affinity.is_some() {
                stale.left.insert(*gone);
            }
            if group.protocol == Protocol::Udp {
                stale.dead.insert(*gone);
            }
        }
    }
    for (at, group) in new.groups.iter().enumerate() {
        let had = old.groups.iter().any(|before| before.id == group.id && !before.targets.is_empty());
        if group.protocol == Protocol::Udp && !group.targets.is_empty() && !had {
            let keys = new.entries.iter().filter(|(_, of, _)| *of == at).map(|(key, ..)| *key);
            stale.revived.extend(keys);
        }
    }
}

/// Targets in slots: those that stay keep theirs as far as the number of slots allows, so that little changes.
fn arrange(old: &[Target], new: &[Target]) -> Vec<Target> {
    let kept = |target: &Target| new.contains(target);
    let mut slots: Vec<Option<Target>> =
        (0..new.len()).map(|slot| old.get(slot).copied().filter(kept)).collect();
    let placed: BTreeSet<Target> = slots.iter().flatten().copied().collect();
    let mut rest = new.iter().filter(|target| !placed.contains(target)).copied();
    for slot in slots.iter_mut().filter(|slot| slot.is_none()) {
        *slot = rest.next();
    }
    slots.into_iter().flatten().collect()
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
