use std::{collections::HashSet, path::Path, time::Duration};

use coracle_tests::lab::in_lab;
use serde_json::json;

use crate::caller::{Caller, addresses, elements, finish, reserved, veths};

#[test]
fn hundred_concurrent_adds_share_no_address() {
    in_lab(|lab| {
        let bridge = Caller::bridge(lab);
        let containers: Vec<_> = (0..100).map(|n| (format!("c{n}"), lab.netns(&format!("c{n}")))).collect();
        let children: Vec<_> = containers.iter().map(|(id, netns)| bridge.spawn("ADD", id, netns)).collect();
        let mut seen = HashSet::new();
        for child in children {
            for address in addresses(&finish(child).unwrap()) {
                assert!(seen.insert(address.clone()), "{address} was given twice");
            }
        }
        assert_eq!((seen.len(), reserved(lab).len(), veths().len(), elements()), (200, 200, 100, 200));
        let children: Vec<_> = containers.iter().map(|(id, netns)| bridge.spawn("DEL", id, netns)).collect();
        for child in children {
            finish(child).unwrap();
        }
        assert_eq!((reserved(lab).len(), veths().len(), elements()), (0, 0, 0));
    });
}

#[test]
fn killed_in_the_middle_of_add_then_del_then_add() {
    in_lab(|lab| {
        let bridge = Caller::bridge(lab);
        let netns = lab.netns("a");
        for round in 0..60_u64 {
            let mut child = bridge.spawn("ADD", "a", &netns);
            std::thread::sleep(Duration::from_micros(round * 150));
            let _ = child.kill();
            child.wait().unwrap();
            bridge.call("DEL", "a", &netns).unwrap();
            assert_eq!((reserved(lab).len(), veths().len(), elements()), (0, 0, 0), "round {round}");
            bridge.call("ADD", "a", &netns).unwrap();
            bridge.call("DEL", "a", &netns).unwrap();
        }
    });
}

#[test]
fn killed_add_whose_namespace_is_gone_too() {
    in_lab(|lab| {
        let bridge = Caller::bridge(lab);
        for round in 0..20_u64 {
            let netns = lab.netns("a");
            let mut child = bridge.spawn("ADD", "a", &netns);
            std::thread::sleep(Duration::from_micros(round * 400));
            let _ = child.kill();
            child.wait().unwrap();
            lab.end_netns(&netns);
            bridge.call("DEL", "a", Path::new("")).unwrap();
            assert_eq!((reserved(lab).len(), elements()), (0, 0), "round {round}");
        }
        coracle_tests::eventually("links of ended namespaces go", Duration::from_secs(5), || {
            veths().is_empty()
        });
    });
}

#[test]
fn gc_keeps_the_valid_and_nothing_else() {
    in_lab(|lab| {
        let bridge = Caller::bridge(lab);
        for id in ["a", "b", "c"] {
            bridge.call("ADD", id, &lab.netns(id)).unwrap();
        }
        let valid = json!([{ "containerID": "b", "ifname": "eth0" }]);
        bridge.with("cni.dev/valid-attachments", valid).call("GC", "", Path::new("")).unwrap();
        let mut left = reserved(lab);
        left.sort();
        assert_eq!(left, ["10.77.0.3", "fd77::3"]);
        assert_eq!(elements(), 2);
        bridge.call("STATUS", "", Path::new("")).unwrap();
    });
}
