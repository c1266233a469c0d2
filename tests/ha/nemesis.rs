//! Breaks one thing at a time, at random, and repairs it.

use crate::evidence::{CONTROLLERS, Evidence, SCHEDULER};
use crate::network::{CLIENTS, Machine};
use crate::world::{COUNT, World, recovered};
use coracle_tests::ha::checkers::availability::Fault;
use coracle_tests::ha::dice::Dice;
use coracle_tests::ha::history::Recorder;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

/// How long clients may wait when a server fails.
const SERVER: Duration = Duration::from_secs(3);
/// How long after a repair everything must be well again.
const RECOVERY: Duration = Duration::from_secs(60);
/// After how long another server leads at the latest, on a machine that is busy.
const TAKEOVER: Duration = Duration::from_secs(18);
/// How long a disk is full at least, and how long it is waited for that somebody notices.
const FULL: Duration = Duration::from_secs(15);
const NOTICED: Duration = Duration::from_secs(60);
/// Seconds that a clock is moved by.
const JUMP: i64 = 600;

/// Something to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    KillServer(usize),
    FreezeServer(usize),
    /// From the other servers; clients and nodes still reach it.
    IsolateServer(usize),
    CutServers(usize, usize),
    CutNode(usize, usize),
    CutNodes(usize, usize),
    /// From all clients; other servers and nodes still reach it.
    CutClients(usize),
    KillMember(usize),
    FillDisk(usize),
    KillAgent(usize),
    MoveClock(usize, i64),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |number: &usize| number + 1;
        match self {
            Action::KillServer(n) => write!(f, "server-{} killed", name(n)),
            Action::FreezeServer(n) => write!(f, "server-{} frozen", name(n)),
            Action::IsolateServer(n) => write!(f, "server-{} cut off from the others", name(n)),
            Action::CutServers(a, b) => write!(f, "server-{} and server-{} cut", name(a), name(b)),
            Action::CutNode(n, s) => write!(f, "node-{} and server-{} cut", name(n), name(s)),
            Action::CutNodes(a, b) => write!(f, "node-{} and node-{} cut", name(a), name(b)),
            Action::CutClients(n) => write!(f, "server-{} and clients cut", name(n)),
            Action::KillMember(n) => write!(f, "etcd of server-{} killed", name(n)),
            Action::FillDisk(n) => write!(f, "disk of etcd of server-{} full", name(n)),
            Action::KillAgent(n) => write!(f, "agent of node-{} killed", name(n)),
            Action::MoveClock(n, by) => write!(f, "clock of server-{} moved by {by} s", name(n)),
        }
    }
}

impl Action {
    /// One of each kind, in a random order; servers that lead are hit more often.
    fn deck(dice: &mut Dice) -> Vec<fn(&mut Dice, &Evidence) -> Self> {
        let mut deck: Vec<fn(&mut Dice, &Evidence) -> Self> = vec![
            |dice, evidence| Action::KillServer(leader(dice, evidence)),
            |dice, _| Action::KillServer(any(dice)),
            |dice, evidence| Action::FreezeServer(leader(dice, evidence)),
            |dice, evidence| Action::IsolateServer(leader(dice, evidence)),
            |dice, _| {
                let (one, other) = two(dice);
                Action::CutServers(one, other)
            },
            |dice, _| Action::CutNode(any(dice), any(dice)),
            |dice, _| {
                let (one, other) = two(dice);
                Action::CutNodes(one, other)
            },
            |dice, _| Action::CutClients(any(dice)),
            |dice, _| Action::KillMember(any(dice)),
            |dice, _| Action::FillDisk(any(dice)),
            |dice, _| Action::KillAgent(any(dice)),
            |dice, evidence| Action::MoveClock(leader(dice, evidence), JUMP),
            |dice, evidence| Action::MoveClock(leader(dice, evidence), -JUMP),
        ];
        for last in (1..deck.len()).rev() {
            deck.swap(last, dice.roll(last as u64 + 1) as usize);
        }
        deck
    }

    /// How long it lasts. A leader that is frozen or cut off must find another one in its place when it comes back.
    fn duration(self, dice: &mut Dice) -> Duration {
        let least = match self {
            _ if self.disturbs().is_some() => TAKEOVER,
            Action::FillDisk(_) => FULL,
            _ => Duration::from_secs(2),
        };
        least + Duration::from_millis(dice.roll(6000))
    }

    /// The server that another one must have replaced as leader when it comes back.
    fn disturbs(self) -> Option<usize> {
        match self {
            Action::FreezeServer(n) | Action::IsolateServer(n) => Some(n),
            _ => None,
        }
    }

    /// How long clients may wait, and whether their requests may stay without an answer.
    fn allowed(self) -> (Duration, bool) {
        match self {
            Action::KillServer(_) | Action::FreezeServer(_) => (SERVER, true),
            // The server that clients talk to has no etcd with a majority.
            Action::IsolateServer(_) | Action::CutServers(..) => (SERVER, true),
            // A minority of etcd: requests wait for a new leader of etcd, and are answered.
            Action::KillMember(_) | Action::FillDisk(_) => (SERVER, false),
            // They wait for an answer that does not come, and ask another server.
            Action::CutClients(_) => (SERVER, true),
            Action::CutNode(..) | Action::CutNodes(..) | Action::KillAgent(_) | Action::MoveClock(..) => {
                (SERVER, false)
            }
        }
    }

    fn begin(self, world: &World) {
        let server = |number: usize| &world.machines[number];
        match self {
            Action::KillServer(n) => world.servers.lock().unwrap()[n].kill(),
            Action::FreezeServer(n) => world.servers.lock().unwrap()[n].freeze(true),
            Action::IsolateServer(n) => {
                let others = world.machines.iter().filter(|machine| machine.name != server(n).name);
                server(n).cut(&others.map(|machine| machine.address.as_str()).collect::<Vec<_>>());
            }
            Action::CutServers(a, b) => server(a).cut(&[&server(b).address]),
            Action::CutNode(n, s) => world.nodes[n].machine.cut(&[&server(s).address]),
            Action::CutNodes(a, b) => world.nodes[a].machine.cut(&[&world.nodes[b].machine.address]),
            Action::CutClients(n) => server(n).cut(&[CLIENTS]),
            Action::KillMember(n) => world.kill_member(n),
            Action::FillDisk(n) => fill(world, n),
            Action::KillAgent(n) => world.nodes[n].kill_agent(),
            Action::MoveClock(n, by) => world.servers.lock().unwrap()[n].move_clock(by),
        }
    }

    fn end(self, world: &World) {
        match self {
            Action::KillServer(n) => world.servers.lock().unwrap()[n].start(),
            Action::FreezeServer(n) => world.servers.lock().unwrap()[n].freeze(false),
            Action::KillMember(n) => world.restart_member(n),
            Action::FillDisk(n) => {
                let _ = std::fs::remove_file(world.etcd_dir(n).join(FILLER));
                world.restart_member(n);
            }
            Action::MoveClock(n, _) => world.servers.lock().unwrap()[n].move_clock(0),
            Action::KillAgent(_) => {}
            Action::IsolateServer(_)
            | Action::CutServers(..)
            | Action::CutNode(..)
            | Action::CutNodes(..)
            | Action::CutClients(_) => {
                let nodes = world.nodes.iter().map(|node| &node.machine);
                world.machines.iter().chain(nodes).for_each(Machine::heal);
            }
        }
    }
}

/// Any of three.
fn any(dice: &mut Dice) -> usize {
    dice.roll(COUNT as u64) as usize
}

/// Two different ones of three.
fn two(dice: &mut Dice) -> (usize, usize) {
    let one = any(dice);
    (one, (one + 1 + dice.roll(COUNT as u64 - 1) as usize) % COUNT)
}

/// The server that runs the scheduler or the controllers.
fn leader(dice: &mut Dice, evidence: &Evidence) -> usize {
    let leads = evidence.leader(dice.pick::<&str>(&[SCHEDULER, CONTROLLERS]));
    leads.unwrap_or_else(|| any(dice))
}

const FILLER: &str = "filler";

/// Leaves no byte on the file system of a member.
fn fill(world: &World, number: usize) {
    let mut file = std::fs::File::create(world.etcd_dir(number).join(FILLER)).unwrap();
    let block = vec![0; 1 << 20];
    while file.write_all(&block).is_ok() {}
    while file.write_all(&block[..4096]).is_ok() {}
}

/// Whether the member or its server says that something is wrong while its disk is full, for this long at least.
fn noticed(world: &World, number: usize, lasts: Duration) -> bool {
    let (begun, mut noticed) = (Instant::now(), false);
    while begun.elapsed() < lasts || (!noticed && begun.elapsed() < NOTICED) {
        noticed |= !world.is_well(number);
        std::thread::sleep(Duration::from_millis(250));
    }
    noticed
}

/// What was broken, and whether everything recovered.
pub struct Rampage {
    pub faults: Vec<Fault>,
    pub unrecovered: Vec<String>,
    /// Elections whose leader was away for so long that another server had to take over.
    pub disturbed: BTreeSet<&'static str>,
    /// Full disks that no member of etcd and no server complained about.
    pub unnoticed: Vec<String>,
}

/// Breaks things until the time is up.
pub fn run(world: &World, evidence: &Evidence, recorder: &Recorder, seed: u64, until: Instant) -> Rampage {
    let mut dice = Dice::of(seed, u64::MAX);
    let mut rampage = Rampage {
        faults: Vec::new(),
        unrecovered: Vec::new(),
        disturbed: BTreeSet::new(),
        unnoticed: Vec::new(),
    };
    let mut deck = Vec::new();
    while Instant::now() < until {
        if deck.is_empty() {
            deck = Action::deck(&mut dice);
        }
        let Some(next) = deck.pop() else { break };
        let action = next(&mut dice, evidence);
        let lasts = action.duration(&mut dice);
        println!("{:8.1} s: {action} for {:.1} s", recorder.now() as f64 / 1e9, lasts.as_secs_f64());
        if let Some(server) = action.disturbs() {
            let leads = |election: &&str| evidence.leader(election) == Some(server);
            rampage.disturbed.extend([CONTROLLERS, SCHEDULER].into_iter().filter(leads));
        }
        let begun = recorder.now();
        action.begin(world);
        if let Action::FillDisk(number) = action {
            let noticed = noticed(world, number, lasts);
            println!("{action}: {}", if noticed { "noticed" } else { "not noticed" });
            if !noticed {
                rampage.unnoticed.push(action.to_string());
            }
        } else {
            std::thread::sleep(lasts);
        }
        action.end(world);
        let recovered = recovered(world, RECOVERY);
        let (allowed, may_fail) = action.allowed();
        let (name, ended) = (action.to_string(), recorder.now());
        if !recovered {
            println!("not recovered within {RECOVERY:?}: {name}");
            world.tell();
            rampage.unrecovered.push(name.clone());
        }
        rampage.faults.push(Fault { name, begun, ended, allowed, may_fail });
        std::thread::sleep(Duration::from_millis(2000 + dice.roll(3000)));
    }
    rampage
}
