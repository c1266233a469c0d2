//! `kubectl debug`.

use crate::cluster::IMAGE;
use crate::tools::{Stage, run};

pub fn ephemeral(stage: &mut Stage) {
    for k in &stage.kubectls {
        let (image, name) = (format!("--image={IMAGE}"), format!("dbg{}", k.version.1));
        // The file system and the processes of the target are to be seen.
        let args = [
            "debug",
            "-i",
            "web",
            &image,
            "-c",
            &name,
            "--target=c",
            "--",
            "sh",
            "-c",
            "read x; echo debugs $x; ps",
        ];
        let (code, out, err) = run(k, &args, "it\n");
        assert_eq!(code, Some(0), "{out}{err}");
        assert!(out.contains("debugs it"), "{out}{err}");
        assert!(out.contains("httpd"), "processes of the target: {out}{err}");
        let logs = k.run(&format!("logs web -c {name}"));
        assert!(logs.contains("debugs it"), "{logs}");
    }
}

pub fn copy_and_node(stage: &mut Stage) {
    let k = stage.newest();
    k.run(&format!("debug web --copy-to=web-copy --image={IMAGE} -c dbg --share-processes -- sleep 3600"));
    stage.cluster.wait_ready("web-copy");
    let out = k.run("exec web-copy -c dbg -- ps");
    assert!(out.contains("httpd"), "{out}");
    let image = format!("--image={IMAGE}");
    for k in &stage.kubectls {
        // kubectl attaches to a container that runs, and sees nothing of what was written before.
        let list = ["debug", "-i", "node/node1", &image, "--", "sh", "-c", "sleep 3; ls /host"];
        let (code, out, err) = run(k, &list, "");
        assert_eq!(code, Some(0), "{out}{err}");
        assert!(out.contains("proc\n") && out.contains("usr\n"), "{out}{err}");
    }
    k.run("delete pod web-copy --wait=false");
}
