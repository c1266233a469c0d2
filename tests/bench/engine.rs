//! The container engine: start, stop and exec through every OCI runtime against the runtime alone, CNI against the Go
//! plugins, unpacking against tar, memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use coracle_engine::image::ImageStore;
use coracle_engine::runtime::{Containers, Sandboxes};
use coracle_tests::lab::{Lab, in_lab};
use coracle_tests::program;

use crate::node::{Node, processes, run as shell};
use crate::report::{Report, percentile};

const ROUNDS: usize = 20;
const PODS: usize = 100;

/// Measures everything; in namespaces of its own.
pub async fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    for runtime in runtimes() {
        // SAFETY: nothing else reads the environment now.
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var("CORACLE_OCI_RUNTIME", &runtime)
        };
        let name = Path::new(&runtime).file_name().unwrap().to_string_lossy().into_owned();
        start_and_stop(&mut report, &runtime, &name).await;
        if name == "runc" {
            memory(&mut report).await;
        }
    }
    tokio::task::spawn_blocking(move || {
        in_lab(|lab| cni(&mut report, lab));
        report
    })
    .await
    .map(|mut report| {
        let unpacked = std::thread::scope(|s| s.spawn(|| unpack(&mut report)).join());
        unpacked.map_err(|_| anyhow::anyhow!("unpacking failed")).map(|()| report)
    })?
}

/// The runtimes that are there and can run a container here.
fn runtimes() -> Vec<String> {
    let named = [("CORACLE_RUNC", "runc"), ("CORACLE_CRUN", "crun"), ("CORACLE_YOUKI", "youki")];
    let paths = named.map(|(variable, name)| std::env::var(variable).unwrap_or_else(|_| name.into()));
    let own = program("coracle-runtime").display().to_string();
    let there =
        |path: &String| Command::new(path).arg("--version").output().is_ok_and(|o| o.status.success());
    paths.into_iter().chain([own]).filter(there).collect()
}

#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn since(&mut self, begun: Instant) {
        self.0.push(begun.elapsed().as_secs_f64() * 1e3);
    }

    fn median(&mut self) -> f64 {
        percentile(&mut self.0, 0.5)
    }
}

async fn start_and_stop(report: &mut Report, runtime: &str, name: &str) {
    let node = Node::start().await;
    let trial = node.sandbox("trial").await;
    let config = node.container_config("c", &["sleep", "1000"]);
    let id = node.cri.create_container(&trial, config, node.sandbox_config("trial")).await.unwrap();
    if let Err(error) = node.cri.start_container(&id).await {
        eprintln!("{name} is left out, it cannot run a container here: {error}");
        return;
    }
    node.cri.remove_pod_sandbox(&trial).await.unwrap();
    let [mut sandboxes, mut starts, mut wholes, mut execs, mut stops, mut removes, mut alone] =
        std::array::from_fn(|_| Times::default());
    for round in 0..ROUNDS {
        let pod = format!("bench{round}");
        let begun = Instant::now();
        let sandbox = node.sandbox(&pod).await;
        sandboxes.since(begun);
        let made = Instant::now();
        let config = node.container_config("c", &["sleep", "1000"]);
        let id = node.cri.create_container(&sandbox, config, node.sandbox_config(&pod)).await.unwrap();
        node.cri.start_container(&id).await.unwrap();
        starts.since(made);
        wholes.since(begun);
        let begun = Instant::now();
        node.exec(&id, "true").await;
        execs.since(begun);
        let begun = Instant::now();
        node.cri.stop_container(&id, Duration::ZERO).await.unwrap();
        stops.since(begun);
        // The same bundle by the runtime alone, in the same round: whatever the machine does, both feel it.
        let config = node.container_config("again", &["sleep", "1000"]);
        let id = node.cri.create_container(&sandbox, config, node.sandbox_config(&pod)).await.unwrap();
        let (root, bundle) = (node.path("alone"), node.path("run/containers").join(&id));
        let begun = Instant::now();
        quietly(runtime, &["--root", text(&root), "create", "--bundle", text(&bundle), "x"]);
        quietly(runtime, &["--root", text(&root), "start", "x"]);
        alone.since(begun);
        quietly(runtime, &["--root", text(&root), "delete", "--force", "x"]);
        let begun = Instant::now();
        node.cri.remove_pod_sandbox(&sandbox).await.unwrap();
        removes.since(begun);
    }
    let (whole, own) = (wholes.median(), alone.median());
    for (what, value) in [
        ("sandbox with network", sandboxes.median()),
        ("container create + start", starts.median()),
        ("sandbox + container", whole),
        ("create + start by the runtime alone", own),
        ("on top of the runtime", whole - own),
        ("exec", execs.median()),
        ("stop container", stops.median()),
        ("remove pod", removes.median()),
    ] {
        report.add(&format!("{name}: {what}, p50"), value, "ms");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn quietly(program: &str, args: &[&str]) {
    let mut command = Command::new(program);
    command.args(args).stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    assert!(command.status().unwrap().success(), "{program} {args:?}");
}

fn resident_kib(pid: i32) -> f64 {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: i32, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0.0)
}

async fn memory(report: &mut Report) {
    let node = Node::start().await;
    let (engine, keeper) = (node.engine_pid(), node.keeper_pid());
    report.add("engine, idle", resident_kib(engine) / 1024.0, "MiB");
    // The rest is the program itself, which the kernel can drop.
    report.add("engine, idle, its own", status_kib(engine, "RssAnon:") / 1024.0, "MiB");
    let idle = resident_kib(keeper);
    report.add("keeper, idle", idle, "KiB");
    for round in 0..PODS {
        let pod = format!("many{round}");
        let sandbox = node.sandbox(&pod).await;
        node.run(&sandbox, &pod, node.container_config("c", &["sleep", "1000"])).await;
    }
    report.add("engine, 100 pods", resident_kib(engine) / 1024.0, "MiB");
    report.add("engine, 100 pods, its own", status_kib(engine, "RssAnon:") / 1024.0, "MiB");
    let full = resident_kib(keeper);
    report.add("keeper, 100 pods", full, "KiB");
    let pauses: Vec<f64> =
        processes().iter().filter(|(_, c)| c == "/pause").map(|(pid, _)| resident_kib(*pid)).collect();
    let pause = pauses.iter().sum::<f64>() / pauses.len().max(1) as f64;
    report.add("pause, per pod", pause, "KiB");
    report.add("keeper + pause, per pod", (full - idle) / PODS as f64 + pause, "KiB");
    for sandbox in node.cri.list_pod_sandboxes(None).await.unwrap() {
        node.cri.remove_pod_sandbox(&sandbox.id).await.unwrap();
    }
}

/// bridge + host-local, ours and Debian's, turn by turn.
fn cni(report: &mut Report, lab: &Lab) {
    let ours = program("bridge").parent().unwrap().to_owned();
    let theirs = PathBuf::from("/usr/lib/cni");
    let mut both = vec![("coracle", ours)];
    if theirs.join("bridge").exists() {
        both.push(("Go plugins", theirs));
    }
    let mut times: Vec<[Times; 2]> = both.iter().map(|_| Default::default()).collect();
    for round in 0..ROUNDS * 2 {
        for (at, (name, dir)) in both.iter().enumerate() {
            let config = serde_json::json!({
                "cniVersion": "1.0.0", "name": format!("bench{at}"), "type": "bridge", "bridge": format!("bench{at}"),
                "isGateway": true, "ipMasq": at == 0,
                "ipam": { "type": "host-local", "dataDir": lab.path("ipam"), "ranges": [[{ "subnet": format!("10.9{at}.0.0/16") }]] },
            });
            let netns = lab.netns(&format!("{at}-{round}"));
            for (verb, command) in ["ADD", "DEL"].into_iter().enumerate() {
                let begun = Instant::now();
                call(dir, command, &format!("{name}{round}").replace(' ', ""), &netns, &config);
                times[at][verb].since(begun);
            }
            lab.end_netns(&netns);
        }
    }
    for ((name, _), times) in both.iter().zip(&mut times) {
        for (verb, times) in ["ADD", "DEL"].into_iter().zip(times) {
            report.add(&format!("CNI {verb} bridge + host-local, {name}, p50"), times.median(), "ms");
        }
    }
}

fn call(dir: &Path, verb: &str, id: &str, netns: &Path, config: &serde_json::Value) {
    use std::io::Write;
    let mut child = Command::new(dir.join("bridge"))
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", id)
        .env("CNI_NETNS", netns)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", dir)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stdout));
}

/// A layer of this machine's own programs: import, with digests and flushing, against tar.
fn unpack(report: &mut Report) {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path().display();
    shell(&format!(
        "set -e; mkdir -p {d}/image; tar -C /usr -cf {d}/layer.tar bin; gzip -1 -k {d}/layer.tar; mv {d}/layer.tar.gz {d}/image/"
    ));
    let bytes = fs::metadata(dir.path().join("layer.tar")).unwrap().len() as f64;
    let digest = shell(&format!("sha256sum {d}/layer.tar | cut -d' ' -f1"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = serde_json::json!({ "architecture": arch, "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest.trim())] } });
    let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": ["bench.test/usr:1"], "Layers": ["layer.tar.gz"] }]);
    fs::write(dir.path().join("image/config.json"), config.to_string()).unwrap();
    fs::write(dir.path().join("image/manifest.json"), manifest.to_string()).unwrap();
    shell(&format!("tar -C {d}/image -cf {d}/image.tar manifest.json config.json layer.tar.gz"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let speed = |begun: Instant| bytes / 1e6 / begun.elapsed().as_secs_f64();
    let (mut import, mut tar) = (vec![], vec![]);
    for round in 0..3 {
        let store = ImageStore::open(&dir.path().join(format!("store{round}"))).unwrap();
        let begun = Instant::now();
        runtime.block_on(store.import(&dir.path().join("image.tar"), None)).unwrap();
        import.push(speed(begun));
        let begun = Instant::now();
        shell(&format!(
            "mkdir {d}/tar{round} && tar -C {d}/tar{round} -xzf {d}/image/layer.tar.gz && sync -f {d}"
        ));
        tar.push(speed(begun));
    }
    report.add("image import of one gzip layer, verified and flushed", percentile(&mut import, 0.5), "MB/s");
    report.add("the same layer by tar and sync", percentile(&mut tar, 0.5), "MB/s");
}
