//! Members on loopback addresses, with the real etcd.
#![allow(clippy::unwrap_used)]

use super::removal::{known, plan_removal, remove};
use super::*;
use coracle_store::{Datastore, Durability, Store, Write};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// How long something may take on a busy machine.
const WAIT: Duration = Duration::from_secs(120);

/// Servers that differ in their loopback address.
struct Machines {
    dir: tempfile::TempDir,
    ports: (u16, u16),
}

impl Machines {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), ports: (free_port(), free_port()) }
    }

    /// Every server has the keys of the first, as joining gives them.
    fn config(&self, number: u8) -> MemberConfig {
        let data_dir = self.dir.path().join(number.to_string());
        let mut config = MemberConfig::new(&data_dir, &format!("127.0.0.{number}"));
        (config.client_port, config.peer_port) = self.ports;
        std::fs::create_dir_all(&config.pki_dir).unwrap();
        for file in ["etcd-ca.crt", "etcd-ca.key"] {
            let shared = self.dir.path().join("1/pki").join(file);
            if number > 1 {
                std::fs::copy(shared, config.pki_dir.join(file)).unwrap();
            }
        }
        config
    }

    async fn join(&self, number: u8, existing: &[u8]) -> Member {
        let urls = existing.iter().map(|other| self.config(*other).client_url()).collect();
        start(MemberConfig { existing: Some(urls), ..self.config(number) }).await.unwrap()
    }

    fn data(&self, number: u8) -> PathBuf {
        self.config(number).data_dir.join("etcd")
    }

    /// The process of a member.
    fn pid(&self, number: u8) -> Option<Pid> {
        let arg = format!("--data-dir={}", self.data(number).display());
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let has = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == arg.as_bytes())
        };
        pids.filter(|pid| *pid != 0).find(has).map(Pid::from_raw)
    }
}

pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 20_000;
    loop {
        let number = (first + u32::from(NEXT.fetch_add(1, Ordering::Relaxed)) * 7) % 20_000;
        let port = 10_000 + u16::try_from(number).unwrap();
        if (1..=4).all(|host| TcpListener::bind((format!("127.0.0.{host}"), port)).is_ok()) {
            return port;
        }
    }
}

async fn eventually<F: Future<Output = bool>>(what: &str, so: impl Fn() -> F) {
    let begun = Instant::now();
    while !so().await {
        assert!(begun.elapsed() < WAIT, "{what}: not within {WAIT:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn open(member: &Member) -> Arc<dyn Store> {
    let datastore = Datastore::Etcd(member.options.clone());
    coracle_store::open(&datastore, Path::new("/nonexistent")).await.unwrap()
}

/// Writes a key; the answer of a member that has just died may be lost.
async fn put(store: &Arc<dyn Store>, key: &str) {
    let key = format!("/registry/{key}");
    eventually("a write", || async {
        let (key, value) = (key.clone(), Some("1".into()));
        let write = Write { key: key.clone(), expect: 0, value, durability: Durability::Sync, fence: None };
        store.write(write).await.is_ok() || matches!(store.get(&key).await, Ok(Some(_)))
    })
    .await;
}

async fn names(cluster: &Membership) -> Vec<String> {
    known(cluster).await.unwrap().iter().map(|known| known.name()).collect()
}

fn cluster(member: &Member) -> Membership {
    Membership::new(&member.options).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_lose_one_and_replace_it_and_one_survives_the_loss_of_two() {
    let machines = Machines::new();
    let first = start(machines.config(1)).await.unwrap();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(machines.data(1)).unwrap().permissions().mode() & 0o777, 0o700);
    let store = open(&first).await;
    put(&store, "a").await;
    assert!(matches!(start(machines.config(1)).await, Err(MemberError::Locked(_))));

    // Two join at the same time: one waits until the other votes.
    let (second, third) = tokio::join!(machines.join(2, &[1]), machines.join(3, &[1]));
    let all = known(&cluster(&first)).await.unwrap();
    assert!(all.iter().all(|one| one.problem.is_none() && !one.member.learner), "{all:?}");
    assert_eq!(all.len(), 3);

    // A server whose own member is gone goes on with the others, which it has learned of.
    eventually("the first knows the others", || async { store.status().await.unwrap().members.len() == 3 })
        .await;
    let (health, pid) = (first.health(), machines.pid(1).unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
    put(&store, "b").await;
    eventually("the death is reported", || async { health.check().is_err() || machines.pid(1) != Some(pid) })
        .await;
    eventually("it is started again", || async { health.check().is_ok() && machines.pid(1).is_some() }).await;

    // The machine of the third is lost with its data; another one takes its place. Meanwhile no other may be removed.
    let lost = third.name.clone();
    third.stop().await;
    assert!(machines.pid(3).is_none(), "a clean stop ends etcd");
    let all = known(&cluster(&first)).await.unwrap();
    let refusal = plan_removal(&all, &first.name).unwrap_err().to_string();
    assert!(refusal.contains("would lose its majority"), "{refusal}");
    std::fs::remove_dir_all(machines.config(3).data_dir).unwrap();
    let old = all.iter().find(|one| one.name() == lost).unwrap().member.id;
    let third = machines.join(3, &[1, 2]).await;
    assert_eq!(third.name, lost);
    let all = known(&cluster(&first)).await.unwrap();
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|one| one.member.id != old && !one.member.learner), "{all:?}");

    // A member that is stopped starts again with its data, and one whose data alone is gone finds its cluster.
    third.stop().await;
    let third = start(machines.config(3)).await.unwrap();
    eventually("the others are noted", || async {
        let saved = saved_options(&machines.config(3).data_dir, &ClientFiles { pki_dir: PathBuf::new() });
        saved.unwrap().unwrap().endpoints.len() == 3
    })
    .await;
    third.stop().await;
    std::fs::remove_dir_all(machines.data(3)).unwrap();
    let third = start(machines.config(3)).await.unwrap();
    put(&open(&third).await, "c").await;
    assert_eq!(names(&cluster(&third)).await.len(), 3);

    // Removed while it runs: it is not started again, also not with its server.
    let all = known(&cluster(&first)).await.unwrap();
    let removed = plan_removal(&all, &lost).unwrap().member.id;
    remove(&cluster(&first), removed).await.unwrap();
    let health = third.health();
    eventually("it is not started again", || async {
        matches!(health.check().map_err(|error| error.to_string()), Err(error) if error.contains("was removed"))
    })
    .await;
    third.stop().await;
    let error = start(machines.config(3)).await.err().unwrap();
    assert!(matches!(error, MemberError::Removed { .. }), "{error:?}");
    assert!(error.to_string().contains("delete"), "{error}");
    assert!(machines.pid(3).is_none());
    std::fs::remove_dir_all(machines.data(3)).unwrap();
    // Of two members both have it; of three the first might be the one that does not.
    put(&store, "d").await;
    let third = start(machines.config(3)).await.unwrap();

    // The majority is lost: the data of one server makes a new cluster.
    let config = machines.config(1);
    let error = reset(&config.data_dir, &config.pki_dir).await.unwrap_err();
    assert!(matches!(error, MemberError::Locked(_)), "{error:?}");
    drop(store);
    for member in [first, second, third] {
        member.stop().await;
    }
    for number in [2, 3] {
        std::fs::remove_dir_all(machines.config(number).data_dir).unwrap();
    }
    let done = reset(&config.data_dir, &config.pki_dir).await.unwrap();
    assert!(done.copy.join("member/wal").is_dir() && machines.pid(1).is_none());
    let first = start(config).await.unwrap();
    let store = open(&first).await;
    for key in ["a", "b", "c", "d"] {
        assert!(store.get(&format!("/registry/{key}")).await.unwrap().is_some(), "{key}");
    }
    put(&store, "e").await;
    assert_eq!(names(&cluster(&first)).await, std::slice::from_ref(&first.name));
    let all = known(&cluster(&first)).await.unwrap();
    assert!(plan_removal(&all, &first.name).unwrap_err().to_string().contains("only voting member"));
    let second = machines.join(2, &[1]).await;
    assert_eq!(names(&cluster(&second)).await.len(), 2);
    second.stop().await;
    drop(first);
    eventually("a dropped member is killed", || async { machines.pid(1).is_none() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_says_why_and_changes_nothing() {
    let machines = Machines::new();
    let config = machines.config(1);
    let first = start(config.clone()).await.unwrap();
    let name = first.name.clone();
    // The address of another that runs.
    let twin = MemberConfig {
        data_dir: machines.dir.path().join("twin"),
        pki_dir: config.pki_dir.clone(),
        existing: Some(vec![config.client_url()]),
        ..config.clone()
    };
    let mut state = State::load_or_new(&twin).unwrap();
    let error = join::add(&cluster(&first), &twin, &mut state).await.unwrap_err();
    assert!(matches!(&error, MemberError::Taken { name: taken, .. } if *taken == name), "{error:?}");
    // Its port is held by another process.
    let other = MemberConfig { data_dir: machines.dir.path().join("other"), ..config.clone() };
    let error = start(other).await.err().unwrap();
    assert!(matches!(&error, MemberError::Socket { .. }), "{error:?}");
    assert_eq!(names(&cluster(&first)).await, [name]);
    first.stop().await;
    // Its data is gone, and nobody else has it.
    std::fs::remove_dir_all(machines.data(1)).unwrap();
    assert!(matches!(start(config.clone()).await, Err(MemberError::DataGone { .. })));
    let error = reset(&config.data_dir, &config.pki_dir).await.unwrap_err();
    assert!(matches!(error, MemberError::NoData(_)), "{error:?}");
    // Others would not reach it.
    let existing = Some(vec!["https://192.0.2.1:2379".to_owned()]);
    let error = start(MemberConfig { existing, ..config }).await.err().unwrap();
    assert!(matches!(error, MemberError::Loopback { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_can_move_to_another_address() {
    let machines = Machines::new();
    let first = start(machines.config(1)).await.unwrap();
    let name = first.name.clone();
    put(&open(&first).await, "a").await;
    first.stop().await;
    let moved = MemberConfig { advertise_host: "127.0.0.4".to_owned(), ..machines.config(1) };
    let first = start(moved.clone()).await.unwrap();
    assert!(open(&first).await.get("/registry/a").await.unwrap().is_some());
    let members = cluster(&first).list().await.unwrap();
    assert_eq!((members[0].peer_urls.clone(), &members[0].name), (vec![moved.peer_url()], &name));
    first.stop().await;
}
