#![allow(clippy::unwrap_used)]
use super::*;

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
