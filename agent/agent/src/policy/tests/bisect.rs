use super::super::bisect::{ATTEMPTS, RejectedPolicies, Specs};
use super::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Peers that the kernel of these tests refuses.
const BAD: &str = "198.51.100.0/24";

#[derive(Debug, PartialEq, Eq)]
struct Einval;

/// A kernel that refuses every rule about [`BAD`], or all rules, and keeps what it accepted last.
#[derive(Default)]
struct Picky {
    refuses_all: bool,
    rules: Ruleset,
    asked: usize,
}

impl Picky {
    fn replace(&mut self, rules: Ruleset) -> Result<(), Einval> {
        self.asked += 1;
        let bad = BAD.parse::<coracle_cni::route::Cidr>().unwrap();
        let bad = coracle_cni::route::octets(bad.network().ip);
        let mut all = rules.chains.values().flat_map(|chain| &chain.rules).flatten();
        if self.refuses_all || all.any(|expr| matches!(expr, Expr::Compare { value, .. } if *value == bad)) {
            return Err(Einval);
        }
        self.rules = rules;
        Ok(())
    }

    fn passes(&self, from: &str, to: &str) -> bool {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        Kernel(&self.rules).passes(Packet { from, to, protocol: 6, port: 80 })
    }
}

/// One change of the rules, as the node makes it; the policies that are news, and how often the kernel was asked.
fn change(
    world: &World,
    kernel: &mut Picky,
    refusals: &mut RejectedPolicies,
    now: Instant,
) -> Result<(Vec<String>, usize), Einval> {
    kernel.asked = 0;
    let specs: Specs =
        world.policies.iter().map(|(name, policy)| (name.clone(), Arc::new(policy.clone()))).collect();
    let mut search = refusals.begin(&specs, now);
    while let Some(refused) = search.attempt() {
        search.answer(kernel.replace(world.without(&refused).rules))?;
    }
    let news = refusals.finish(search, specs, now).into_iter().map(|(name, _)| name.to_string());
    Ok((news.collect(), kernel.asked))
}

fn from_block(app: &str, cidr: &str) -> Value {
    json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"from": [{"ipBlock": {"cidr": cidr}}]}]})
}

#[test]
fn a_refused_policy_isolates_its_pods_and_the_others_are_enforced() {
    let good = [("a/db", from_block("db", "172.16.0.0/16")), ("b/web", from_block("web", "172.17.0.0/16"))];
    let mut world = World::new(&good);
    let (mut kernel, mut refusals, now) = (Picky::default(), RejectedPolicies::default(), Instant::now());
    assert_eq!(change(&world, &mut kernel, &mut refusals, now), Ok((vec![], 1)));
    assert!(kernel.passes("192.0.2.7", "10.0.0.1"), "no policy is about it yet");

    world.policies.insert(name("a/bad"), policy(from_block("web", BAD)));
    world.policies.insert(name("b/web"), policy(from_block("web", "172.18.0.0/16")));
    let (news, asked) = change(&world, &mut kernel, &mut refusals, now).unwrap();
    assert_eq!(news, ["a/bad"]);
    assert!(asked <= 4, "only what changed is suspected: {asked}");
    for (from, to, want) in [
        ("192.0.2.7", "10.0.0.1", false),
        ("198.51.100.1", "10.0.0.1", false),
        ("172.16.0.1", "10.0.0.2", true),
        ("192.0.2.7", "10.0.0.2", false),
        ("172.17.0.1", "10.0.1.1", false),
        ("172.18.0.1", "10.0.1.1", true),
        ("192.0.2.7", "10.0.1.2", true),
        // The direction that the refused policy is not about.
        ("10.0.0.1", "192.0.2.7", true),
    ] {
        assert_eq!(kernel.passes(from, to), want, "{from}>{to}");
    }
}

#[test]
fn a_refused_policy_is_tried_again_less_and_less_often_and_at_once_when_it_changes() {
    let mut world =
        World::new(&[("a/bad", from_block("web", BAD)), ("a/db", from_block("db", "10.9.0.0/16"))]);
    let (mut kernel, mut refusals, mut now) = (Picky::default(), RejectedPolicies::default(), Instant::now());
    assert_eq!(change(&world, &mut kernel, &mut refusals, now).unwrap().0, ["a/bad"]);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        assert_eq!(change(&world, &mut kernel, &mut refusals, now), Ok((vec![], 1)), "not before it is due");
        let due = refusals.due().unwrap();
        pauses.push(due - now);
        now = due;
        let (news, asked) = change(&world, &mut kernel, &mut refusals, now).unwrap();
        assert!(news.is_empty() && asked == 3, "{news:?}: it is told once; asked {asked} times");
        assert!(kernel.passes("10.9.0.1", "10.0.0.2") && !kernel.passes("10.9.0.1", "10.0.0.1"));
    }
    assert_eq!(pauses[0] * 2, pauses[1]);
    assert_eq!((pauses[8], pauses[9]), (Duration::from_secs(1800), Duration::from_secs(1800)));

    world.policies.insert(name("a/bad"), policy(from_block("web", "198.51.101.0/24")));
    assert_eq!(change(&world, &mut kernel, &mut refusals, now), Ok((vec![], 1)));
    assert!(kernel.passes("198.51.101.1", "10.0.0.1"));
    assert_eq!(refusals.due(), None);
}

#[test]
fn a_kernel_that_refuses_everything_is_asked_a_few_times_only() {
    let mut world = World::new(&[("a/db", from_block("db", "172.16.0.0/16"))]);
    let (mut kernel, mut refusals, now) = (Picky::default(), RejectedPolicies::default(), Instant::now());
    change(&world, &mut kernel, &mut refusals, now).unwrap();
    world.policies.insert(name("a/web"), policy(from_block("web", "172.16.0.0/16")));
    kernel.refuses_all = true;
    assert_eq!(change(&world, &mut kernel, &mut refusals, now), Err(Einval));
    assert_eq!(kernel.asked, 3);
    kernel.refuses_all = false;
    assert_eq!(change(&world, &mut kernel, &mut refusals, now), Ok((vec![], 1)), "no policy is blamed");
}

#[test]
fn many_refused_policies_are_found_in_bounded_steps() {
    let mut world = World::new(&[]);
    for at in 0..40 {
        world.policies.insert(name(&format!("a/bad-{at:02}")), policy(from_block("web", BAD)));
        world.policies.insert(
            name(&format!("b/good-{at:02}")),
            policy(from_block("web", &format!("172.16.{at}.0/24"))),
        );
    }
    let (mut kernel, mut refusals, mut now) = (Picky::default(), RejectedPolicies::default(), Instant::now());
    let (mut found, mut changes) = (Vec::new(), 0);
    while found.len() < 40 {
        let (news, asked) = change(&world, &mut kernel, &mut refusals, now).unwrap();
        assert!(asked <= ATTEMPTS, "{asked}");
        found.extend(news);
        for at in 0..40 {
            assert!(kernel.passes(&format!("172.16.{at}.1"), "10.0.1.1"), "another namespace: {at}");
        }
        assert!(!kernel.passes("192.0.2.7", "10.0.0.1"), "never open");
        changes += 1;
        assert!(changes < 10, "{found:?}");
        now += Duration::from_secs(1);
    }
    assert!(changes > 1, "the bound was reached");
    assert!(found.iter().all(|name| name.starts_with("a/bad-")), "{found:?}");
}
