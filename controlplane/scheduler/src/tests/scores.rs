use super::*;

#[test]
fn scores_prefer_empty_nodes_liked_labels_and_few_taints() {
    let mut placer = with_nodes(vec![node("a"), node("b")]);
    assert_ne!(put(&mut placer, &cpu("p", "1")), put(&mut placer, &cpu("q", "1")), "the emptier node");

    let liked = node_with("b", |n| n["metadata"]["labels"]["disk"] = json!("ssd"));
    let mut placer = with_nodes(vec![node("a"), liked, node("c")]);
    let picky = pod_with("p", |p| {
        p["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!([{"weight": 10, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]);
    });
    assert_eq!(put(&mut placer, &picky).unwrap(), "b");

    let soft = |name: &str| {
        node_with(name, |n| n["spec"]["taints"] = json!([{"key": "k", "effect": "PreferNoSchedule"}]))
    };
    let mut placer = with_nodes(vec![soft("a"), soft("b"), node("c")]);
    assert_eq!(put(&mut placer, &pod("p")).unwrap(), "c");
}

#[test]
fn replicas_of_a_controller_spread_over_nodes() {
    let mut placer = with_nodes((0..10).map(|i| node(&format!("n{i}"))).collect());
    let mut seen = std::collections::HashSet::new();
    for i in 0..10 {
        let replica = pod_with(&format!("p{i}"), |p| {
            p["metadata"]["ownerReferences"] = json!([{"uid": "rs", "controller": true}])
        });
        seen.insert(put(&mut placer, &replica).unwrap());
    }
    assert_eq!(seen.len(), 10);
}

#[test]
fn the_scores_of_the_chosen_node_and_of_the_next_three_are_kept() {
    let mut placer = with_nodes(["a", "b", "c", "d", "e"].map(node).into());
    placer.keeps_scores = true;
    for (name, amount) in [("x", "3"), ("y", "2"), ("z", "1")] {
        put(&mut placer, &cpu(name, amount)).unwrap();
    }
    for name in ["first", "like the first"] {
        let chosen = placer.place(&pod(name)).unwrap();
        let choice = placer.last();
        assert_eq!(choice.filtered.is_some(), name == "first", "pods that are alike are filtered once");
        assert!(choice.scored.is_some());
        let (nodes, scores): (Vec<usize>, Vec<i64>) = choice.scores.iter().copied().unzip();
        assert_eq!((nodes.len(), nodes[0]), (4, chosen));
        assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
        assert!(scores[0] > scores[3], "{scores:?}");
        placer.snapshot.assume(&pod(name), chosen);
    }
}

#[test]
fn a_pod_that_names_several_nodes_gets_the_best_of_them() {
    let mut placer = with_nodes(vec![node("a"), node("b"), node("c")]);
    let busy = |name: &str, node: &str| {
        pod_with(name, |p| {
            p["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "3", "memory": "6Gi"});
            p["spec"]["affinity"] = names(&[node]);
        })
    };
    fn names(nodes: &[&str]) -> Value {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[0]]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[nodes.len() - 1]]}]}]}}})
    }
    assert_eq!(put(&mut placer, &busy("p", "a")).unwrap(), "a");
    let named = pod_with("q", |p| p["spec"]["affinity"] = names(&["a", "b"]));
    assert_eq!(put(&mut placer, &named).unwrap(), "b", "the other one is nearly full");
    assert_eq!(put(&mut placer, &busy("r", "b")).unwrap(), "b");
    let none = pod_with("s", |p| {
        p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        p["spec"]["affinity"] = names(&["a", "b"]);
    });
    assert_eq!(
        put(&mut placer, &none).unwrap_err(),
        "0/3 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 2 Insufficient cpu."
    );
}
