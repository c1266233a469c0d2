//! Which API servers run, as far as renewals of their Leases tell. Only the own clock is read: a Lease counts from when this
//! server saw it change, so clocks of different machines are never compared.

use super::lease::HOLDS;
use coracle_kinds::object::Object;
use coracle_store::Revision;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After how long without renewal a Lease is garbage.
const GARBAGE: Duration = Duration::from_secs(3600);

/// Whether a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// It renewed its Lease in time.
    Running,
    /// Its Lease was there at the first look and has not been due since: what was published about the server stays.
    Unknown,
    /// It did not renew its Lease in time.
    Dead,
    /// It has been dead for so long that its Lease is to be deleted.
    Garbage,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    revision: Revision,
    since: Instant,
    /// Whether the change itself was seen, and not only its result.
    witnessed: bool,
}

/// What this server knows of the Leases.
#[derive(Debug, Default)]
pub struct Peers {
    looked: bool,
    seen: HashMap<String, Seen>,
}

impl Peers {
    /// Notes which Leases changed since the last look.
    pub fn look(&mut self, leases: &[Arc<Object>], now: Instant) {
        let before = std::mem::take(&mut self.seen);
        for lease in leases {
            let seen = match before.get(&lease.meta.name) {
                Some(seen) if seen.revision == lease.revision => *seen,
                _ => Seen { revision: lease.revision, since: now, witnessed: self.looked },
            };
            self.seen.insert(lease.meta.name.clone(), seen);
        }
        self.looked = true;
    }

    /// How the server with this Lease stands.
    pub fn state(&self, lease: &str, now: Instant) -> PeerState {
        let Some(seen) = self.seen.get(lease) else { return PeerState::Dead };
        match now.saturating_duration_since(seen.since) {
            age if age >= GARBAGE => PeerState::Garbage,
            age if age >= HOLDS => PeerState::Dead,
            _ if seen.witnessed => PeerState::Running,
            _ => PeerState::Unknown,
        }
    }

    /// When the state of a server changes next unless its Lease is renewed.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let changes = self.seen.values().flat_map(|seen| [seen.since + HOLDS, seen.since + GARBAGE]);
        changes.filter(|change| *change > now).min()
    }

    /// Lets Leases that have not expired yet hold from `now`: while this server cannot write to the store, the others may
    /// not be able to, either.
    pub fn extend(&mut self, now: Instant) {
        for seen in self.seen.values_mut() {
            if now.saturating_duration_since(seen.since) < HOLDS {
                seen.since = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::Meta;

    fn lease(name: &str, revision: Revision) -> Arc<Object> {
        let meta = Meta { name: name.into(), ..Meta::default() };
        Arc::new(Object { revision, json: "{}".into(), meta, fields: Box::default() })
    }

    #[test]
    fn a_server_runs_while_its_lease_changes() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        peers.look(&[lease("a", 1)], at(0));
        assert_eq!(peers.state("a", at(7)), PeerState::Unknown, "nobody saw when it was written");
        assert_eq!(peers.next(at(7)), Some(at(8)));
        assert_eq!(peers.next(at(8)), Some(at(3600)));
        assert_eq!(peers.state("a", at(8)), PeerState::Dead);
        peers.look(&[lease("a", 2)], at(9));
        assert_eq!(peers.state("a", at(16)), PeerState::Running, "it came back");
        peers.look(&[lease("a", 2), lease("b", 3)], at(17));
        assert_eq!(peers.state("a", at(17)), PeerState::Dead);
        assert_eq!(peers.state("b", at(17)), PeerState::Running, "a new one");
        assert_eq!(peers.state("a", at(9 + 3600)), PeerState::Garbage);
        peers.look(&[], at(18));
        assert_eq!(peers.state("b", at(18)), PeerState::Dead, "its lease is gone");
    }

    #[test]
    fn a_store_that_does_not_answer_kills_nobody() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        peers.look(&[], at(0));
        peers.look(&[lease("a", 1)], at(1));
        peers.look(&[lease("a", 1), lease("b", 2)], at(5));
        peers.extend(at(7));
        assert_eq!(peers.state("a", at(14)), PeerState::Running);
        peers.extend(at(15));
        assert_eq!(peers.state("a", at(16)), PeerState::Dead, "what had expired stays so");
        assert_eq!(peers.state("b", at(16)), PeerState::Dead);
    }
}
