//! Debian's containerd, in directories of its own.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::eventually;
use crate::pods::run;

/// A containerd that ends with this value.
pub struct Containerd {
    child: Child,
    pub socket: PathBuf,
}

impl Containerd {
    /// True when the suite is to run through it.
    pub fn is_wanted() -> bool {
        std::env::var("CORACLE_RUNTIME").is_ok_and(|name| name == "containerd")
    }

    /// Starts it in `dir`, with `archive` and an image for sandboxes.
    pub fn start(dir: &Path, archive: &Path) -> Self {
        let d = dir.display();
        let config = format!(
            r#"version = 2
root = "{d}/containerd"
state = "{d}/state"
[grpc]
  address = "{d}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "example.test/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{d}/net.d"
"#
        );
        fs::write(dir.join("containerd.toml"), config).unwrap();
        let log = fs::File::create(dir.join("containerd.log")).unwrap();
        let child = Command::new("containerd")
            .arg("--config")
            .arg(dir.join("containerd.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("containerd is installed: scripts/deps test");
        let socket = dir.join("containerd.sock");
        let ctr = format!("ctr -a {} -n k8s.io", socket.display());
        eventually("containerd answers", Duration::from_secs(60), || {
            Command::new("sh")
                .args(["-c", &format!("{ctr} version >/dev/null 2>&1")])
                .status()
                .unwrap()
                .success()
        });
        run(&format!(
            "{ctr} images import {} >/dev/null && {ctr} images import {} >/dev/null",
            archive.display(),
            pause(dir).display()
        ));
        Self { child, socket }
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An image that does nothing for as long as it is asked to.
fn pause(dir: &Path) -> PathBuf {
    let d = dir.join("pause");
    let at = d.display();
    run(&format!(
        "mkdir -p {at}/root/bin && cp $(command -v busybox) {at}/root/bin/busybox && tar -C {at}/root -cf {at}/layer.tar ."
    ));
    let digest = run(&format!("sha256sum {at}/layer.tar | cut -d' ' -f1"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = serde_json::json!({
        "architecture": arch, "os": "linux", "config": {"Entrypoint": ["/bin/busybox", "sleep", "1000000"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest.trim())]},
    });
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": ["example.test/pause:1"], "Layers": ["layer.tar"]}]);
    fs::write(d.join("config.json"), config.to_string()).unwrap();
    fs::write(d.join("manifest.json"), manifest.to_string()).unwrap();
    run(&format!("tar -C {at} -cf {at}/pause.tar manifest.json config.json layer.tar"));
    d.join("pause.tar")
}
