#![allow(clippy::unwrap_used)]
//! Table tests of single decisions, and a model check: random specs against random events.

use super::*;
use crate::pod::observed::Sandbox;
use proptest::prelude::*;
use serde_json::json;

const SECOND: i64 = 1_000_000_000;

fn spec_of(value: serde_json::Value) -> PodSpec {
    serde_json::from_value(value).unwrap()
}

/// A runtime that does what it is told, and a worker that tells it what `plan` says.
struct Model {
    spec: PodSpec,
    observed: Observed,
    verdicts: BTreeMap<String, Verdict>,
    replaced: BTreeSet<String>,
    backoffs: Backoffs,
    next_attempts: BTreeMap<String, u32>,
    max_dead: Option<usize>,
    now: i64,
    serial: u32,
    ended: bool,
    /// Init containers and sidecars that were up or done, per sandbox.
    passed: BTreeSet<(String, String)>,
}

impl Model {
    fn new(spec: PodSpec) -> Self {
        Model {
            spec,
            observed: Observed::default(),
            verdicts: BTreeMap::new(),
            replaced: BTreeSet::new(),
            backoffs: Backoffs::default(),
            next_attempts: BTreeMap::new(),
            max_dead: None,
            now: SECOND,
            serial: 0,
            ended: false,
            passed: BTreeSet::new(),
        }
    }

    fn plan(&self) -> Plan {
        let none = BTreeSet::new();
        plan(&Facts {
            spec: &self.spec,
            observed: &self.observed,
            verdicts: &self.verdicts,
            stopping: &none,
            starting: &none,
            replaced: &self.replaced,
            backoffs: &self.backoffs,
            next_attempts: &self.next_attempts,
            max_dead: self.max_dead,
            now: self.now,
        })
    }

    fn exit(&mut self, id: &str, code: i32) {
        let now = self.now;
        for instance in self.observed.instances.iter_mut().filter(|i| i.id == id) {
            instance.state = State::Exited;
            instance.exit_code = code;
            instance.finished_at = now;
            if code == 0 {
                self.passed.insert((instance.sandbox.clone(), instance.name.clone()));
            }
        }
    }

    fn check_start(&self, start: &Start) {
        let sandbox = self.observed.ready_sandbox().expect("a start needs a sandbox");
        let (role, container) = spec::container(&self.spec, &start.name).unwrap();
        assert_eq!(role, start.role);
        if let Some(last) = self.observed.latest(&start.name) {
            assert_eq!(last.state, State::Exited, "two instances of {}", start.name);
            assert!(start.attempt > last.attempt, "restart count must grow");
            let allowed = match role {
                Role::Ephemeral => false,
                Role::Sidecar => true,
                // Init containers run again in a new sandbox.
                Role::Init => {
                    last.sandbox != sandbox.id
                        || spec::restarts_after(&self.spec, role, &container, last.exit_code)
                }
                Role::Regular => {
                    self.replaced.contains(&last.id)
                        || spec::restarts_after(&self.spec, role, &container, last.exit_code)
                }
            };
            assert!(allowed, "policy forbids {start:?} after {last:?}");
        }
        let inits = self.spec.init_containers.iter().flatten();
        let before: Vec<_> = match role {
            Role::Ephemeral => vec![],
            Role::Regular => inits.collect(),
            Role::Init | Role::Sidecar => inits.take_while(|c| c.name != start.name).collect(),
        };
        for container in before {
            let key = (sandbox.id.clone(), container.name.clone());
            assert!(self.passed.contains(&key), "{} starts before {} is done", start.name, container.name);
        }
    }

    fn apply(&mut self, plan: Plan) {
        for kill in &plan.kills {
            self.exit(&kill.id, 137);
            if kill.replace {
                self.replaced.insert(kill.id.clone());
            }
        }
        self.observed.instances.retain(|i| !plan.remove.contains(&i.id));
        for id in &plan.reset {
            assert!(self.observed.alive().next().is_none(), "removed while others run");
            let at = self.observed.instances.iter().position(|i| i.id == *id).unwrap();
            let removed = self.observed.instances.remove(at);
            let next = self.next_attempts.entry(removed.name).or_default();
            *next = (*next).max(removed.attempt + 1);
        }
        for sandbox in &mut self.observed.sandboxes {
            if plan.stop_sandboxes.contains(&sandbox.id) {
                sandbox.ready = false;
            }
        }
        for id in &plan.remove_sandboxes {
            assert!(self.observed.instances.iter().all(|i| &i.sandbox != id), "sandbox in use removed");
        }
        self.observed.sandboxes.retain(|s| !plan.remove_sandboxes.contains(&s.id));
        if let Some(attempt) = plan.create_sandbox {
            assert!(self.observed.alive().next().is_none());
            self.serial += 1;
            let id = format!("s{}", self.serial);
            let sandbox = Sandbox { id, attempt, ready: true, created_at: self.now, ..Sandbox::default() };
            self.observed.sandboxes.insert(0, sandbox);
        }
        for start in &plan.starts {
            self.check_start(start);
            self.serial += 1;
            let (_, container) = spec::container(&self.spec, &start.name).unwrap();
            let sandbox = self.observed.ready_sandbox().unwrap().id.clone();
            if let Some(at) = start.failed_at {
                self.backoffs.retried(&backoff_key(&container), at, self.now);
            }
            if spec::is_sidecar(&container) && container.startup_probe.is_none() {
                self.passed.insert((sandbox.clone(), start.name.clone()));
            }
            let instance = Instance {
                id: format!("c{}", self.serial),
                sandbox,
                name: start.name.clone(),
                attempt: start.attempt,
                state: State::Running,
                created_at: self.now,
                started_at: self.now,
                hash: spec::container_hash(&container),
                ..Instance::default()
            };
            self.observed.instances.insert(0, instance);
            self.observed.sort();
        }
        self.ended |= plan.finished;
    }

    /// Does what is planned until nothing is left to do now.
    fn settle(&mut self) {
        for _ in 0..40 {
            if self.ended {
                return;
            }
            let plan = self.plan();
            if plan.is_idle() {
                if let Some(until) = plan.held.iter().map(|held| held.until).min() {
                    self.now = until;
                    continue;
                }
                self.ended |= plan.finished;
                return;
            }
            self.apply(plan);
        }
        panic!("no end: {:?} of {:?}", self.plan(), self.observed);
    }

    fn stop(&mut self) {
        for _ in 0..20 {
            let kills = plan_stop(&self.observed, &BTreeSet::new());
            let alive: BTreeSet<String> = self.observed.alive().map(|i| i.name.clone()).collect();
            let has_turn = |kill: &Kill| stops_after(&self.spec, &kill.name).is_disjoint(&alive);
            let kills: Vec<Kill> = kills.into_iter().filter(has_turn).collect();
            if kills.is_empty() {
                assert!(self.observed.alive().next().is_none());
                return;
            }
            for kill in kills {
                if spec::container(&self.spec, &kill.name).is_some_and(|(role, _)| role == Role::Sidecar) {
                    let others = self.observed.alive().filter(|i| {
                        spec::container(&self.spec, &i.name).is_some_and(|(role, _)| role == Role::Regular)
                    });
                    assert_eq!(others.count(), 0, "a sidecar stopped before the containers it serves");
                }
                self.exit(&kill.id, 143);
            }
        }
        panic!("stop does not end");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Exit(usize, i32),
    Liveness(usize),
    Startup(usize, bool),
    Image(usize),
    SandboxDies,
    Lost(usize),
    Later,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0usize..6, prop_oneof![Just(0), Just(1), Just(42)]).prop_map(|(i, code)| Event::Exit(i, code)),
        1 => (0usize..6).prop_map(Event::Liveness),
        2 => (0usize..6, any::<bool>()).prop_map(|(i, ok)| Event::Startup(i, ok)),
        1 => (0usize..6).prop_map(Event::Image),
        1 => Just(Event::SandboxDies),
        1 => (0usize..6).prop_map(Event::Lost),
        1 => Just(Event::Later),
    ]
}

fn any_spec() -> impl Strategy<Value = PodSpec> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let init = prop::collection::vec((any::<bool>(), any::<bool>()), 0..4);
    (policy, init, 1usize..4, 0usize..2, any::<bool>()).prop_map(|(policy, init, regular, ephemeral, rules)| {
        let inits: Vec<_> = init
            .iter()
            .enumerate()
            .map(|(i, (sidecar, startup))| {
                let mut container = json!({"name": format!("i{i}"), "image": "a"});
                if *sidecar {
                    container["restartPolicy"] = json!("Always");
                    if *startup {
                        container["startupProbe"] = json!({"exec": {"command": ["true"]}});
                    }
                }
                container
            })
            .collect();
        let containers: Vec<_> = (0..regular)
            .map(|i| {
                let mut container = json!({"name": format!("r{i}"), "image": "a"});
                if rules && i == 0 {
                    container["restartPolicy"] = json!("Never");
                    container["restartPolicyRules"] =
                        json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
                }
                container
            })
            .collect();
        let debug: Vec<_> = (0..ephemeral).map(|i| json!({"name": format!("e{i}"), "image": "a"})).collect();
        spec_of(json!({"restartPolicy": policy, "initContainers": inits, "containers": containers, "ephemeralContainers": debug}))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_pod_under_any_events_settles_and_ends(spec in any_spec(), events in prop::collection::vec(event(), 0..24)) {
        let mut model = Model::new(spec);
        model.settle();
        for event in events {
            let alive: Vec<(String, String)> =
                model.observed.alive().map(|i| (i.id.clone(), i.name.clone())).collect();
            let pick = |index: usize| alive.get(index % alive.len().max(1)).cloned();
            model.now += SECOND;
            match event {
                Event::Exit(index, code) => if let Some((id, _)) = pick(index) { model.exit(&id, code) },
                Event::Liveness(index) => if let Some((id, _)) = pick(index) {
                    model.verdicts.entry(id).or_default().dead = true;
                },
                Event::Startup(index, ok) => if let Some((id, name)) = pick(index) {
                    model.verdicts.entry(id).or_default().started = Some(ok);
                    if ok {
                        let sandbox = model.observed.sandboxes[0].id.clone();
                        model.passed.insert((sandbox, name));
                    }
                },
                Event::Image(index) => {
                    let count = model.spec.containers.len();
                    let container = &mut model.spec.containers[index % count];
                    let image = container.image.take().unwrap_or_default() + "b";
                    container.image = Some(image);
                }
                Event::SandboxDies => if let Some(sandbox) = model.observed.sandboxes.first_mut() { sandbox.ready = false },
                Event::Lost(index) => if let Some((id, _)) = pick(index) {
                    for instance in model.observed.instances.iter_mut().filter(|i| i.id == id) {
                        instance.state = State::Unknown;
                    }
                },
                Event::Later => model.now += 700 * SECOND,
            }
            model.settle();
            if model.ended {
                break;
            }
        }
        model.stop();
    }
}

fn run(name: &str, sandbox: &str, state: State, code: i32) -> Instance {
    let container = Container { name: name.into(), image: Some("a".into()), ..Container::default() };
    Instance {
        id: format!("{name}-id"),
        name: name.into(),
        sandbox: sandbox.into(),
        state,
        exit_code: code,
        finished_at: SECOND,
        hash: spec::container_hash(&container),
        ..Instance::default()
    }
}

#[test]
fn single_decisions() {
    let two = json!({"restartPolicy": "OnFailure", "containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "a"}]});
    let never = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]});
    let with_init = json!({"restartPolicy": "Never", "initContainers": [{"name": "i", "image": "a"}],
        "containers": [{"name": "a", "image": "a"}]});
    let ready = |ready| vec![Sandbox { id: "s".into(), ready, ..Sandbox::default() }];
    // (case, spec, sandboxes, instances) → (starts, kills, new sandbox, finished)
    #[allow(clippy::type_complexity)]
    let table: Vec<(
        &str,
        &serde_json::Value,
        Vec<Sandbox>,
        Vec<Instance>,
        (Vec<&str>, usize, Option<u32>, bool),
    )> = vec![
        ("nothing yet", &two, vec![], vec![], (vec![], 0, Some(0), false)),
        ("sandbox made", &two, ready(true), vec![], (vec!["a", "b"], 0, None, false)),
        (
            "one done",
            &two,
            ready(true),
            vec![run("a", "s", State::Exited, 0), run("b", "s", State::Running, 0)],
            (vec![], 0, None, false),
        ),
        (
            "one failed",
            &two,
            ready(true),
            vec![run("a", "s", State::Exited, 1), run("b", "s", State::Exited, 0)],
            (vec!["a"], 0, None, false),
        ),
        (
            "all done",
            &two,
            ready(true),
            vec![run("a", "s", State::Exited, 0), run("b", "s", State::Exited, 0)],
            (vec![], 0, None, true),
        ),
        (
            "sandbox died under a run-once pod",
            &never,
            ready(false),
            vec![run("a", "s", State::Exited, 137)],
            (vec![], 0, None, true),
        ),
        (
            "sandbox died, still alive",
            &two,
            ready(false),
            vec![run("a", "s", State::Running, 0)],
            (vec![], 1, None, false),
        ),
        (
            "sandbox died, all stopped",
            &two,
            ready(false),
            vec![run("a", "s", State::Exited, 137)],
            (vec![], 0, Some(1), false),
        ),
        ("init first", &with_init, ready(true), vec![], (vec!["i"], 0, None, false)),
        (
            "init runs",
            &with_init,
            ready(true),
            vec![run("i", "s", State::Running, 0)],
            (vec![], 0, None, false),
        ),
        (
            "init done",
            &with_init,
            ready(true),
            vec![run("i", "s", State::Exited, 0)],
            (vec!["a"], 0, None, false),
        ),
        (
            "init failed for good",
            &with_init,
            ready(true),
            vec![run("i", "s", State::Exited, 1)],
            (vec![], 0, None, true),
        ),
        (
            "crashed between create and start",
            &never,
            ready(true),
            vec![run("a", "s", State::Created, 0)],
            (vec!["a"], 0, None, false),
        ),
    ];
    for (case, spec, sandboxes, instances, want) in table {
        let mut model = Model::new(spec_of(spec.clone()));
        model.observed = Observed { sandboxes, instances };
        let plan = model.plan();
        let starts: Vec<&str> = plan.starts.iter().map(|start| start.name.as_str()).collect();
        assert_eq!((starts, plan.kills.len(), plan.create_sandbox, plan.finished), want, "{case}");
    }
}

#[test]
fn as_many_dead_instances_are_kept_as_the_node_says() {
    let mut model = Model::new(spec_of(json!({"containers": [{"name": "a", "image": "a"}]})));
    model.observed.sandboxes = vec![Sandbox { id: "s".into(), ready: true, ..Sandbox::default() }];
    for (newest, max_dead, removed) in [
        (State::Running, None, vec!["d2", "d3"]),
        (State::Exited, None, vec!["d2", "d3"]),
        (State::Running, Some(1), vec!["d2", "d3"]),
        (State::Exited, Some(1), vec!["d1", "d2", "d3"]),
        (State::Running, Some(0), vec!["d1", "d2", "d3"]),
        (State::Exited, Some(0), vec!["d1", "d2", "d3"]),
        (State::Running, Some(2), vec!["d3"]),
        (State::Running, Some(usize::MAX), vec![]),
    ] {
        let states = [newest, State::Exited, State::Exited, State::Exited];
        let instances = states
            .into_iter()
            .enumerate()
            .map(|(number, state)| Instance { id: format!("d{number}"), ..run("a", "s", state, 0) });
        model.observed.instances = instances.collect();
        model.max_dead = max_dead;
        assert_eq!(model.plan().remove, removed, "{newest:?} {max_dead:?}");
    }
}

#[test]
fn a_container_never_started_keeps_its_restart_count() {
    let mut model = Model::new(spec_of(json!({"containers": [{"name": "a", "image": "a"}]})));
    model.observed.sandboxes = vec![Sandbox { id: "s".into(), ready: true, ..Sandbox::default() }];
    model.observed.instances = vec![run("a", "s", State::Created, 0)];
    let plan = model.plan();
    assert_eq!((plan.starts[0].attempt, plan.remove), (0, vec!["a-id".to_owned()]));
}

#[test]
fn restart_waits_for_its_back_off() {
    let mut model = Model::new(spec_of(json!({"containers": [{"name": "a", "image": "a"}]})));
    model.settle();
    for wait in [0, 10, 20, 40] {
        let id = model.observed.latest("a").unwrap().id.clone();
        model.now += SECOND;
        model.exit(&id, 1);
        let plan = model.plan();
        if wait == 0 {
            assert_eq!(plan.starts.len(), 1);
        } else {
            assert_eq!(plan.held, [DelayedStart { name: "a".into(), until: model.now + wait * SECOND }]);
        }
        model.settle();
    }
    assert_eq!(model.observed.latest("a").unwrap().attempt, 4);
}

#[test]
fn a_clock_set_back_holds_no_restart() {
    let mut model = Model::new(spec_of(json!({"containers": [{"name": "a", "image": "a"}]})));
    model.settle();
    for _ in 0..2 {
        let id = model.observed.latest("a").unwrap().id.clone();
        model.now += SECOND;
        model.exit(&id, 1);
        if model.plan().held.is_empty() {
            model.settle();
        }
    }
    assert_eq!(model.plan().held.len(), 1);
    model.now -= 3600 * SECOND;
    assert_eq!((model.plan().held.len(), model.plan().starts.len()), (0, 1));
}

#[test]
fn restart_all_containers_starts_the_pod_anew() {
    let rule = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    let spec = spec_of(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "done"}, {"name": "main"},
            {"name": "watcher", "restartPolicy": "Never", "restartPolicyRules": rule}],
    }));
    let mut model = Model::new(spec);
    model.settle();
    let id = |model: &Model, name: &str| model.observed.latest(name).unwrap().id.clone();
    let init = id(&model, "init");
    model.exit(&init, 0);
    model.settle();
    let (done, watcher) = (id(&model, "done"), id(&model, "watcher"));
    model.exit(&done, 0);
    model.settle();
    assert!(!reset::is_due(&model.spec, &model.observed));
    model.exit(&watcher, 88);
    assert!(reset::is_due(&model.spec, &model.observed));
    let plan = model.plan();
    assert_eq!(plan.kills.iter().map(|kill| kill.name.as_str()).collect::<Vec<_>>(), ["main"]);
    assert!(plan.reset.is_empty() && plan.starts.is_empty() && !plan.finished);
    model.apply(plan);
    let plan = model.plan();
    assert_eq!((plan.reset.len(), plan.reset.last()), (4, Some(&watcher)), "the cause goes last");
    model.apply(plan);
    let plan = model.plan();
    let starts: Vec<_> = plan.starts.iter().map(|start| (start.name.as_str(), start.attempt)).collect();
    assert_eq!(starts, [("init", 1)], "init containers run again, and restarts are counted");
    model.passed.clear();
    model.settle();
    let init = id(&model, "init");
    model.exit(&init, 0);
    model.settle();
    for name in ["done", "main", "watcher"] {
        let latest = model.observed.latest(name).unwrap();
        assert_eq!((latest.state, latest.attempt), (State::Running, 1), "{name}");
    }
    // Another exit code is the policy's.
    let watcher = id(&model, "watcher");
    model.exit(&watcher, 1);
    assert!(model.plan().is_idle());
}
