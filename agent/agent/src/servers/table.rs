//! Which server comes next. No sockets, no tasks: callers say what happened and when.

use rand::RngExt;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Address, MAX_SERVERS};

/// How long a server to which a connection failed comes after the others, unless its monitor knows better.
const DOUBT: Duration = Duration::from_secs(5);

/// What a monitor knows of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Nothing yet.
    Unknown,
    /// It answers.
    Live,
    /// It answers that it is not ready.
    Unready,
    /// It does not answer.
    Dead,
    /// Its certificate is not accepted by this agent; pods may know it by another name.
    Untrusted,
}

struct Entry {
    address: Address,
    /// In the kubeconfig, or given when the node joined: it stays in the list.
    configured: bool,
    /// In the kubeconfig: first choice if it is not published, as a load balancer is not.
    primary: bool,
    /// In the EndpointSlices of `default/kubernetes`.
    published: bool,
    /// It was published, and is not any more.
    withdrawn: bool,
    health: Health,
    /// A connection failed; until when that counts.
    doubted: Option<Instant>,
    /// A random number: agents do not all have the same second choice.
    order: u64,
    /// Cancelled when connections to the server must end.
    cut: CancellationToken,
    /// Asks its monitor to look at once.
    check: Arc<Notify>,
}

impl Entry {
    fn new(address: Address) -> Self {
        Self {
            address,
            configured: false,
            primary: false,
            published: false,
            withdrawn: false,
            health: Health::Unknown,
            doubted: None,
            order: rand::random(),
            cut: CancellationToken::new(),
            check: Arc::default(),
        }
    }

    /// Lower is better.
    fn rank(&self, now: Instant) -> u8 {
        match self.health {
            Health::Unknown | Health::Live if self.withdrawn || self.is_doubted(now) => 1,
            Health::Unknown | Health::Live => 0,
            Health::Unready => 2,
            Health::Dead => 3,
            Health::Untrusted => 4,
        }
    }

    fn is_doubted(&self, now: Instant) -> bool {
        self.doubted.is_some_and(|until| now < until)
    }

    fn cut(&mut self) {
        std::mem::take(&mut self.cut).cancel();
    }
}

/// The servers. Never empty.
pub(super) struct Table {
    entries: Vec<Entry>,
    /// Whether the name in the kubeconfig is another one of published servers.
    pub(super) is_alias: bool,
    /// The server of the last connection.
    current: Option<Address>,
    /// No connection to another server before this time.
    pub(super) not_before: Option<Instant>,
    /// The time over which agents spread that leave a server together.
    pub(super) spread: Duration,
}

impl Table {
    /// Servers that always count, that of the kubeconfig first, and those that were last known to be published.
    pub(super) fn new(configured: &[Address], published: &[Address]) -> Self {
        let mut table = Self {
            entries: Vec::new(),
            is_alias: false,
            current: None,
            not_before: None,
            spread: Duration::ZERO,
        };
        table.configure(configured);
        for address in published {
            table.entry(address).published = true;
        }
        table
    }

    fn find(&mut self, address: &Address) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.address == *address)
    }

    fn entry(&mut self, address: &Address) -> &mut Entry {
        let at = self.entries.iter().position(|entry| entry.address == *address);
        let at = at.unwrap_or_else(|| {
            self.entries.push(Entry::new(address.clone()));
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    /// The server of the kubeconfig.
    pub(super) fn primary(&self) -> Option<Address> {
        self.entries.iter().find(|entry| entry.primary).map(|entry| entry.address.clone())
    }

    /// All servers.
    pub(super) fn addresses(&self) -> Vec<Address> {
        self.entries.iter().map(|entry| entry.address.clone()).collect()
    }

    /// The published servers.
    pub(super) fn published(&self) -> Vec<Address> {
        self.entries.iter().filter(|entry| entry.published).map(|entry| entry.address.clone()).collect()
    }

    /// Whether there is a choice.
    pub(super) fn is_several(&self) -> bool {
        self.entries.len() > 1
    }

    /// Replaces the servers that always count; whether that changes the list.
    pub(super) fn configure(&mut self, configured: &[Address]) -> bool {
        let before = self.addresses();
        for entry in &mut self.entries {
            (entry.configured, entry.primary) = (false, false);
        }
        for (at, address) in configured.iter().enumerate() {
            let entry = self.entry(address);
            entry.configured = true;
            entry.primary |= at == 0;
        }
        self.tidy(Instant::now());
        self.addresses() != before
    }

    /// Replaces the published servers; whether that changes which those are. One server is no reason to begin with a choice:
    /// mostly it is the configured one under another name.
    pub(super) fn publish(&mut self, published: &[Address]) -> bool {
        let published = &published[..published.len().min(MAX_SERVERS)];
        if published.is_empty() || published.len() == 1 && !self.is_several() {
            return false;
        }
        let before = (self.addresses(), self.published());
        for entry in &mut self.entries {
            let now = published.contains(&entry.address);
            entry.withdrawn = !now && (entry.withdrawn || entry.published);
            entry.published = now;
        }
        for address in published {
            self.entry(address).published = true;
        }
        self.tidy(Instant::now());
        (self.addresses(), self.published()) != before
    }

    /// Ends connections to servers that should not be used, if another is known to be better, and removes servers that nothing
    /// refers to. The one in use stays until another is known to work.
    fn tidy(&mut self, now: Instant) {
        let better = self.entries.iter().any(|entry| entry.health == Health::Live && entry.rank(now) == 0);
        let (current, mut left) = (self.current.clone(), false);
        self.entries.retain_mut(|entry| {
            let in_use = current.as_ref() == Some(&entry.address);
            let stays = entry.configured || entry.published || in_use && !better;
            if !stays || better && (entry.withdrawn || entry.health == Health::Unready) {
                entry.cut();
                left |= in_use;
            }
            stays
        });
        if left {
            self.delay(now);
        }
        if !self.is_several() {
            // Without monitors nothing is known.
            self.entries.iter_mut().for_each(|entry| entry.health = Health::Unknown);
            self.not_before = None;
        }
    }

    /// Servers in the order in which a connection tries them: first the one in use as long as it works, then that of the
    /// kubeconfig if it is not published (a load balancer), then the others in an order of this agent's own.
    pub(super) fn order(&self, now: Instant) -> Vec<Address> {
        let mut all: Vec<&Entry> = self.entries.iter().collect();
        all.sort_by_key(|entry| {
            let preferred = entry.primary && !entry.published && !self.is_alias;
            (entry.rank(now), self.current.as_ref() != Some(&entry.address), !preferred, entry.order)
        });
        all.into_iter().map(|entry| entry.address.clone()).collect()
    }

    /// A connection was opened: the token for it, and whether the agent has gone to another server. The token of a server that
    /// has left the list meanwhile is cancelled already.
    pub(super) fn connected(&mut self, address: &Address) -> (CancellationToken, bool) {
        let moved = self.current.as_ref().is_some_and(|current| current != address);
        let Some(entry) = self.find(address) else {
            let gone = CancellationToken::new();
            gone.cancel();
            return (gone, false);
        };
        entry.doubted = None;
        if entry.health == Health::Dead {
            entry.health = Health::Unknown;
            entry.check.notify_one();
        }
        let token = entry.cut.clone();
        self.current = Some(address.clone());
        (token, moved)
    }

    /// A connection could not be opened: others come first for a while, and the monitor looks.
    pub(super) fn failed(&mut self, address: &Address, now: Instant) {
        if !self.is_several() {
            return;
        }
        let Some(entry) = self.find(address) else { return };
        let news = !entry.is_doubted(now) && entry.rank(now) <= 1;
        entry.doubted = Some(now + DOUBT);
        entry.check.notify_one();
        if news && self.is_current(address) {
            self.delay(now);
        }
    }

    /// What a monitor found. Connections to a dead server end, and those to one that is not ready if there is a better one.
    /// Returns what was known before.
    pub(super) fn report(&mut self, address: &Address, health: Health, now: Instant) -> Option<Health> {
        if !self.is_several() {
            return None;
        }
        let entry = self.find(address)?;
        let before = std::mem::replace(&mut entry.health, health);
        match health {
            Health::Live => entry.doubted = None,
            Health::Dead | Health::Untrusted => {
                // If a connection has failed, the delay has begun.
                let news = before != health && !entry.is_doubted(now);
                entry.cut();
                if news && self.is_current(address) {
                    self.delay(now);
                }
            }
            Health::Unknown | Health::Unready => {}
        }
        self.tidy(now);
        Some(before)
    }

    /// Delays the next connection: other agents leave the server in use at the same moment.
    fn delay(&mut self, now: Instant) {
        if self.not_before.is_none_or(|time| time <= now) {
            self.not_before = Some(now + self.spread.mul_f64(rand::rng().random_range(0.0..1.0)));
        }
    }

    /// Servers that pods should not be sent to.
    pub(super) fn unfit(&self) -> BTreeSet<SocketAddr> {
        let unfit = |entry: &&Entry| matches!(entry.health, Health::Dead | Health::Unready);
        self.entries.iter().filter(unfit).filter_map(|entry| entry.address.socket()).collect()
    }

    /// Whether a server stays in the list whatever is published.
    pub(super) fn is_configured(&self, address: &Address) -> bool {
        self.entries.iter().any(|entry| entry.configured && entry.address == *address)
    }

    /// Whether connections go to this server.
    pub(super) fn is_current(&self, address: &Address) -> bool {
        self.current.as_ref() == Some(address)
    }

    #[cfg(test)]
    pub(super) fn health(&self, address: &Address) -> Option<Health> {
        self.entries.iter().find(|entry| entry.address == *address).map(|entry| entry.health)
    }

    /// Notified when the monitor of a server should look at once.
    pub(super) fn check(&self, address: &Address) -> Arc<Notify> {
        let entry = self.entries.iter().find(|entry| entry.address == *address);
        entry.map(|entry| entry.check.clone()).unwrap_or_default()
    }

    /// Asks the monitors of all other servers to look at once.
    pub(super) fn check_others(&self, address: &Address) {
        let others = self.entries.iter().filter(|entry| entry.address != *address);
        others.for_each(|entry| entry.check.notify_one());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SPREAD: Duration = Duration::from_secs(1);

    fn server(number: u8) -> Address {
        SocketAddr::from(([192, 0, 2, number], 6443)).into()
    }

    fn named(name: &str) -> Address {
        Address::try_from(format!("https://{name}:6443")).unwrap()
    }

    /// Three published servers, of which the first is in use and all are live.
    fn three(now: Instant) -> (Table, CancellationToken) {
        let all = [server(1), server(2), server(3)];
        let mut table = Table::new(&[server(1)], &all);
        table.spread = SPREAD;
        let (token, moved) = table.connected(&server(1));
        assert!(!moved);
        for one in &all {
            table.report(one, Health::Live, now);
        }
        (table, token)
    }

    #[test]
    fn the_server_in_use_comes_first_until_it_fails() {
        let now = Instant::now();
        let (mut table, _) = three(now);
        assert_eq!(table.order(now)[0], server(1));
        table.failed(&server(1), now);
        assert_eq!(table.order(now)[2], server(1), "others come first");
        assert!(table.not_before.unwrap() <= now + SPREAD);
        assert_eq!(table.order(now + DOUBT)[0], server(1), "a single failure is forgotten");
        let second = table.order(now)[0].clone();
        assert!(table.connected(&second).1);
        assert_eq!(table.order(now + DOUBT)[0], second, "the agent stays where it went");
    }

    #[test]
    fn connections_to_a_dead_server_end_and_it_comes_last() {
        let now = Instant::now();
        let (mut table, token) = three(now);
        table.report(&server(1), Health::Dead, now);
        assert!(token.is_cancelled());
        assert_eq!(table.order(now)[2], server(1));
        assert_eq!(table.unfit(), BTreeSet::from([server(1).socket().unwrap()]));
        let (token, moved) = table.connected(&server(1));
        assert!(!token.is_cancelled() && !moved, "it may be the only one that is back");
        assert!(table.unfit().is_empty());
    }

    #[test]
    fn a_server_that_is_not_ready_is_left_only_for_a_better_one() {
        let now = Instant::now();
        let (mut table, token) = three(now);
        table.report(&server(2), Health::Unready, now);
        table.report(&server(3), Health::Dead, now);
        table.report(&server(1), Health::Unready, now);
        assert!(!token.is_cancelled());
        assert_eq!(table.order(now)[0], server(1));
        table.report(&server(3), Health::Live, now);
        assert!(token.is_cancelled());
        assert_eq!(table.order(now)[0], server(3));
    }

    #[test]
    fn a_server_with_a_wrong_certificate_is_kept_for_pods() {
        let now = Instant::now();
        let (mut table, token) = three(now);
        table.report(&server(1), Health::Untrusted, now);
        assert!(token.is_cancelled() && table.unfit().is_empty());
        assert_eq!(table.order(now)[2], server(1));
    }

    #[test]
    fn servers_come_and_go_with_what_is_published() {
        let now = Instant::now();
        let (mut table, token) = three(now);
        assert!(!table.publish(&[]), "an empty list says nothing");
        assert!(!table.publish(&[server(3), server(2), server(1)]));
        assert!(table.publish(&[server(2), server(4)]));
        let addresses: BTreeSet<Address> = table.addresses().into_iter().collect();
        assert_eq!(addresses, [server(1), server(2), server(4)].into(), "the configured one stays");
        assert!(token.is_cancelled(), "it was withdrawn, and another one is live");
        assert!(table.not_before.is_some_and(|time| time <= Instant::now() + SPREAD));
        assert_eq!(table.order(now)[2], server(1));
        assert!(table.publish(&[server(2), server(1)]));
        assert!([server(1), server(2)].contains(&table.order(now)[0]));
        let many: Vec<Address> = (0..200).map(server).collect();
        table.publish(&many);
        assert!(table.addresses().len() <= MAX_SERVERS + 1);
    }

    #[test]
    fn the_server_in_use_stays_until_another_is_known_to_work() {
        let now = Instant::now();
        let mut table = Table::new(&[named("api.example")], &[server(1), server(2)]);
        let (token, _) = table.connected(&server(1));
        table.report(&named("api.example"), Health::Dead, now);
        table.report(&server(1), Health::Live, now);
        table.publish(&[server(3)]);
        assert!(!token.is_cancelled());
        assert_eq!(table.order(now), [server(3), server(1), named("api.example")]);
        table.report(&server(3), Health::Live, now);
        assert!(token.is_cancelled());
        assert_eq!(table.order(now), [server(3), named("api.example")]);
    }

    #[test]
    fn a_load_balancer_in_the_kubeconfig_is_preferred() {
        let now = Instant::now();
        for _ in 0..20 {
            let mut table = Table::new(&[named("lb.example")], &[]);
            assert!(!table.publish(&[server(1)]), "the one server under another name");
            assert!(table.publish(&[server(1), server(2)]));
            assert_eq!(table.order(now)[0], named("lb.example"));
            assert_eq!(table.primary(), Some(named("lb.example")));
        }
    }

    #[test]
    fn agents_spread_over_the_servers() {
        let now = Instant::now();
        let all = [server(1), server(2), server(3)];
        let mut firsts = [0; 3];
        for _ in 0..600 {
            let first = Table::new(&[server(1)], &all).order(now)[0].clone();
            firsts[all.iter().position(|one| *one == first).unwrap()] += 1;
        }
        // Also if the kubeconfig has a name for one of them.
        let mut table = Table::new(&[named("first.example")], &all);
        table.is_alias = true;
        while table.order(now)[0] == named("first.example") {
            table = Table { is_alias: true, ..Table::new(&[named("first.example")], &all) };
        }
        assert!(firsts.iter().all(|count| (100..300).contains(count)), "{firsts:?}");
    }

    #[test]
    fn one_server_is_neither_doubted_nor_delayed() {
        let now = Instant::now();
        let mut table = Table::new(&[server(1)], &[server(1)]);
        let (token, _) = table.connected(&server(1));
        table.failed(&server(1), now);
        assert_eq!(table.report(&server(1), Health::Dead, now), None);
        assert!(!token.is_cancelled() && table.not_before.is_none() && table.unfit().is_empty());
        assert!(!table.is_several());
    }
}
