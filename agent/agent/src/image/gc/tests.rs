#![allow(clippy::unwrap_used)]
use super::*;

fn image(id: &str, size: u64) -> cri::Image {
    let repo_tags = vec![format!("registry/{id}:1")];
    cri::Image { id: id.into(), size, repo_tags, ..cri::Image::default() }
}

fn ids(unused: &[Unused], wanted: impl Fn(&Unused) -> bool) -> Vec<&str> {
    unused.iter().filter(|image| wanted(image)).map(|image| image.id.as_str()).collect()
}

#[test]
fn images_go_by_last_use_and_age() {
    let start = Instant::now();
    let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
    let mut policy = GcPolicy::default();
    let mut records = Records::new(start);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
    let pinned = cri::Image { pinned: true, ..image("pinned", 1) };
    let mut images = vec![image("by-id", 1), image("by-name", 2), image("never", 3), pinned];
    records.update(&images, &names(&["by-id", "registry/by-name:1"]), at(0));
    assert_eq!(ids(&records.unused(&policy, at(0)), |_| true), ["never"]);
    // One is not used any more, a new one came.
    images.push(image("new", 4));
    records.update(&images, &names(&["registry/by-name:1"]), at(5));
    let unused = records.unused(&policy, at(6));
    assert_eq!(ids(&unused, |_| true), ["never", "new", "by-id"], "never used, then longest ago");
    assert_eq!(
        ids(&unused, |image| image.is_ripe),
        ["never", "by-id"],
        "the new one is younger than two minutes"
    );
    assert_eq!(ids(&unused, |image| image.is_old), Vec::<&str>::new(), "no maximum age");
    policy.max_age = Duration::from_secs(60 * 8);
    let old = |at| records.unused(&policy, at).into_iter().filter(|image| image.is_old).map(|image| image.id);
    assert_eq!(old(at(8)).count(), 0, "the agent has not run for that long");
    assert_eq!(old(at(9)).collect::<Vec<_>>(), ["never", "new", "by-id"]);
    // What was removed is forgotten, and is new when it comes again.
    records.update(&[], &names(&[]), at(10));
    assert!(records.images.is_empty());
}

#[test]
fn disks_have_thresholds() {
    let disk = |available| Disk { capacity: 1000, available };
    assert_eq!((disk(151).used_percent(), disk(150).used_percent(), disk(2000).used_percent()), (85, 85, 0));
    assert_eq!(disk(161).used_percent(), 84);
    assert_eq!((disk(150).above(80), disk(300).above(80), disk(0).above(100)), (50, 0, 0));
    let off = GcPolicy { high_percent: 100, ..GcPolicy::default() };
    assert!(off.is_off() && !GcPolicy::default().is_off());
    assert!(!GcPolicy { max_age: Duration::from_secs(1), ..off }.is_off());
}
