//! The only server is lost, and its backup is restored at the same address: pods of the backup go on, younger ones end.

use super::failover::{READY, RENEWED, pod};
use super::{Machine, SERVER, WAIT, link, token};
use coracle_tests::kubectl::{Kubectl, newest};
use coracle_tests::lab::{in_lab, run, try_run};
use coracle_tests::pods::{archive, import};
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};

/// A pod whose process can be found on this machine.
struct Sleeper {
    name: &'static str,
    command: String,
}

impl Sleeper {
    fn start(kubectl: &Kubectl, name: &'static str, number: u32) -> Self {
        let command = format!("sleep {}", number + std::process::id());
        kubectl.run_with("apply --validate=false -f -", &pod(name, &format!("exec {command}")));
        let sleeper = Self { name, command };
        eventually("the pod runs", WAIT, || sleeper.get(kubectl, "{.status.phase}") == "Running");
        eventually("its process runs", WAIT, || sleeper.processes().len() == 1);
        sleeper
    }

    fn get(&self, kubectl: &Kubectl, path: &str) -> String {
        kubectl.run(&format!("get pod {} -o jsonpath={path}", self.name))
    }

    /// Its container, and how often that was started again.
    fn container(&self, kubectl: &Kubectl) -> String {
        self.get(
            kubectl,
            "{.status.containerStatuses[0].containerID}/{.status.containerStatuses[0].restartCount}",
        )
    }

    fn processes(&self) -> Vec<String> {
        let found = try_run("pgrep", &["-x", "-f", &self.command]).unwrap();
        String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
    }
}

#[test]
fn pods_of_a_backup_go_on_after_a_restore() {
    in_lab(|lab| {
        link();
        let mut lost = Server::with(&["--bind", &format!("{SERVER}:0")]);
        let address = lost.url().trim_start_matches("https://").to_owned();
        let mut machine = Machine::new(lab, &lost);
        import(&machine.dir.join("engine/images"), &archive(&lab.dir));
        let (worked, said) = machine.join(&lost.url(), &token(&lost));
        assert!(worked, "{said}");
        machine.run();
        let kubectl = newest(&lost.kubeconfig());
        eventually("the machine is a ready node", WAIT, || kubectl.try_with(READY, "").out == "True");

        let kept = Sleeper::start(&kubectl, "kept", 10_000_000);
        let (container, process) = (kept.container(&kubectl), kept.processes());
        assert!(container.ends_with("/0"), "{container}");
        let (file, dir) = (lab.path("backup"), tempfile::tempdir().unwrap());
        let coracle = program("coracle").display().to_string();
        let (from, to) = (lost.data_dir().display().to_string(), dir.path().display().to_string());
        run(&coracle, &["backup", "save", "--data-dir", &from, &file.display().to_string()]);
        let younger = Sleeper::start(&kubectl, "younger", 20_000_000);

        lost.kill();
        run(&coracle, &["restore", "--data-dir", &to, &file.display().to_string()]);
        let restored = Server::in_directory(dir, &["--bind", &address], &[]);
        let kubectl = newest(&restored.kubeconfig());
        let renewed = kubectl.run(RENEWED);
        eventually("the pod that the backup does not know is stopped", WAIT, || {
            younger.processes().is_empty()
        });
        let gone = kubectl.try_with("get pod younger", "");
        assert!(gone.err.contains("NotFound"), "{}{}", gone.out, gone.err);
        eventually("the node goes on", WAIT, || {
            kubectl.run(RENEWED) != renewed && kubectl.run(READY) == "True"
        });
        assert_eq!(
            kept.container(&kubectl),
            container,
            "the container is the same, and was not started again"
        );
        assert_eq!(kept.processes(), process);
        kubectl.run_with("apply --validate=false -f -", &pod("new", "sleep 3600"));
        eventually("a new pod runs", WAIT, || {
            kubectl.run("get pod new -o jsonpath={.status.phase}") == "Running"
        });
        assert_eq!(kept.container(&kubectl), container);
    });
}
