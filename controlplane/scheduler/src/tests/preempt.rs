use super::*;
use crate::preempt::{self, Budget};
use coracle_proto::selector::LabelSelector;
use proptest::prelude::*;

#[test]
fn preemption_takes_the_least_important_and_spares_what_it_can() {
    let mut placer = with_nodes(vec![node("a"), node("b")]);
    for (name, amount, priority, at) in [("low", "2", 1, "a"), ("lower", "2", 0, "a"), ("mid", "4", 5, "b")] {
        let id = placer.snapshot.node_named(at).unwrap();
        placer.snapshot.assume(&ranked(name, amount, priority), id);
    }
    let high = ranked("high", "2", 10);
    let why = placer.place(&high).unwrap_err();
    let plan = placer.preempt(&high, &why, &[]).unwrap();
    assert_eq!(plan.victims.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["lower"]);
    assert_eq!(placer.snapshot.node(plan.node).unwrap().pods.len(), 2, "trying changed nothing");
    // A budget on the cheapest victim makes the next best one go.
    let budget = Budget {
        namespace: "default".into(),
        selector: LabelSelector::from_map(&json!({"app": "lower"})),
        allowed: 0,
        disrupted: Vec::new(),
    };
    let plan = preempt::plan(&mut placer.snapshot, &high, &why, &[budget]).unwrap();
    assert_eq!((plan.victims[0].name.as_str(), plan.violations), ("low", 0));
    // Nobody is less important than this one.
    let equal = ranked("equal", "2", 0);
    let why = placer.place(&equal).unwrap_err();
    assert_eq!(
        placer.preempt(&equal, &why, &[]).unwrap_err().to_string(),
        "0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
    let huge = ranked("huge", "64", 10);
    let why = placer.place(&huge).unwrap_err();
    assert_eq!(
        placer.preempt(&huge, &why, &[]).unwrap_err().to_string(),
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
}

#[test]
fn room_that_was_made_is_kept_for_the_one_it_was_made_for() {
    let mut placer = with_nodes(vec![node("a")]);
    let high = ranked("high", "3", 10);
    placer.snapshot.nominate(&high, "a");
    assert!(put(&mut placer, &ranked("low", "2", 0)).is_err());
    assert_eq!(put(&mut placer, &ranked("higher", "2", 20)).unwrap(), "a");
    placer.snapshot.remove_pod("default/higher");
    assert_eq!(put(&mut placer, &high).unwrap(), "a");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn preemption_leaves_room_and_touches_only_the_less_important(pods in prop::collection::vec((1..20u8, 0..5i32), 1..40), asked in 1..30u8) {
        let mut placer = with_nodes((0..4).map(|i| node(&format!("n{i}"))).collect());
        for (i, (amount, priority)) in pods.iter().enumerate() {
            let _ = put(&mut placer, &ranked(&format!("p{i}"), &format!("{amount}00m"), *priority));
        }
        let high = ranked("high", &format!("{asked}00m"), 3);
        if let Err(why) = placer.place(&high)
            && let Ok(plan) = placer.preempt(&high, &why, &[])
        {
            prop_assert!(!plan.victims.is_empty());
            prop_assert!(plan.victims.iter().all(|v| v.priority < 3));
            for victim in &plan.victims {
                placer.snapshot.remove_pod(&victim.key);
            }
            prop_assert!(placer.place(&high).is_ok());
        }
    }
}
