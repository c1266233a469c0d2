//! What is known of a member, and how it starts then.
#![allow(clippy::unwrap_used)]
use super::*;

fn member(id: u64, name: &str) -> ClusterMember {
    let client_urls = if name.is_empty() { vec![] } else { vec![format!("https://{name}:2379")] };
    let peer_urls = vec![format!("https://h{id}:2380")];
    ClusterMember { id, name: name.to_owned(), peer_urls, client_urls, learner: false }
}

#[test]
fn a_member_without_data_joins_what_it_knows_and_never_makes_a_second_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = MemberConfig::new(dir.path(), "10.0.0.1");
    let mut state = State::load_or_new(&config).unwrap();
    assert_eq!(state.plan(&config).unwrap(), Plan::New);
    config.existing = Some(vec!["https://a:1".to_owned()]);
    assert_eq!(state.plan(&config).unwrap(), Plan::Join(vec!["https://a:1".to_owned()]));
    config.existing = Some(Vec::new());
    assert!(matches!(state.plan(&config), Err(MemberError::NoMembers)), "not a cluster of its own");
    config.existing = None;
    state.id = Some(7);
    let error = state.plan(&config).unwrap_err().to_string();
    assert!(error.contains("is gone") && error.contains(STATE_FILE), "{error}");
    state.others = vec!["https://b:1".to_owned()];
    assert_eq!(state.plan(&config).unwrap(), Plan::Join(state.others.clone()));
    let wal = dir.path().join("etcd/member/wal");
    std::fs::create_dir_all(&wal).unwrap();
    assert_eq!(state.plan(&config).unwrap(), Plan::Join(state.others.clone()), "no log yet");
    std::fs::write(wal.join("0-0.wal"), "").unwrap();
    assert_eq!(state.plan(&config).unwrap(), Plan::Again);
    assert!(matches!(State::load_or_new(&config), Err(MemberError::StateGone { .. })));
}

#[test]
fn the_name_stays_when_the_address_changes() {
    let dir = tempfile::tempdir().unwrap();
    let config = MemberConfig::new(dir.path(), "10.0.0.1");
    let state = State::load_or_new(&config).unwrap();
    state.save(dir.path()).unwrap();
    let moved = State::load_or_new(&MemberConfig::new(dir.path(), "fd00::2")).unwrap();
    assert_eq!((moved.name, moved.peer_url.as_str()), (state.name, "https://[fd00::2]:2380"));
    assert_ne!(member_name("https://a:1"), member_name("https://b:1"));
}

#[test]
fn a_cluster_that_is_to_be_joined_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let config = MemberConfig::new(dir.path(), "10.0.0.1");
    remember_cluster(&config, &["https://a:2379".to_owned()]).unwrap();
    let state = State::load_or_new(&config).unwrap();
    assert_eq!(state.plan(&config).unwrap(), Plan::Join(vec!["https://a:2379".to_owned()]));
    remember_cluster(&config, &["https://b:2379".to_owned()]).unwrap();
    assert_eq!(State::load(dir.path()).unwrap().unwrap(), state, "the first stays");
}

#[test]
fn members_become_the_initial_cluster_and_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = State::load_or_new(&MemberConfig::new(dir.path(), "h3")).unwrap();
    state.added(3, &[member(1, "one"), member(0xab, ""), member(3, "")]);
    let own = format!("{}=https://h3:2380", state.name);
    assert_eq!(state.initial_cluster, ["one=https://h1:2380", "ab=https://h171:2380", &own]);
    assert_eq!((state.others.clone(), state.id), (vec!["https://one:2379".to_owned()], Some(3)));
    assert!(!state.learn(&[member(1, "one"), member(3, "x")]));
    assert!(state.learn(&[member(1, "one"), member(2, "two")]));
}

#[test]
fn damaged_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(STATE_FILE);
    std::fs::write(&path, "{}").unwrap();
    assert!(matches!(State::load(dir.path()), Err(MemberError::State { .. })));
    std::fs::write(&path, vec![b' '; MAX_SIZE as usize + 1]).unwrap();
    assert!(matches!(State::load(dir.path()), Err(MemberError::StateSize(_))));
}
