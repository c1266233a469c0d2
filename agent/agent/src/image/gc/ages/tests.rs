#![allow(clippy::unwrap_used)]
use super::*;
use std::time::Duration;

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
fn under_pressure_a_fresh_image_stays_and_an_old_one_goes() {
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let (ages, policy, none) = (ImageAges::new(start), GcPolicy::default(), HashSet::new());
    let (old, fresh) = (image("old", 1), image("fresh", 2));
    // The status of the node lists images, long before the disk is short.
    ages.detect(std::slice::from_ref(&old), at(0));
    let both = [old, fresh];
    let ripe = |used: &HashSet<String>, now| {
        let unused = ages.clone().update(&both, used, &policy, now);
        unused.into_iter().filter(|image| image.is_ripe).map(|image| image.id).collect::<Vec<_>>()
    };
    assert_eq!(ripe(&none, at(120)), ["old"], "the fresh one was never seen before");
    assert_eq!(ripe(&none, at(239)), ["old"]);
    assert_eq!(ripe(&none, at(240)), ["old", "fresh"]);
    assert_eq!(ripe(&HashSet::from(["old".to_owned()]), at(240)), ["fresh"], "what is used stays");
    // It was removed, and is pulled again.
    ages.detect(&both[..1], at(250));
    assert_eq!(ripe(&none, at(251)), ["old"]);
}
