//! A network of one's own: a thread in fresh network and mount namespaces, and containers that are just namespaces.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// Runs a test in namespaces that end with it. The host is not touched.
///
/// # Panics
/// Without root: a suite that needs it must not pass without.
pub fn in_lab(test: impl FnOnce(&Lab) + Send) {
    assert!(nix::unistd::geteuid().is_root(), "this suite needs root");
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("unshare");
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
            let dir = tempfile::tempdir().expect("a temporary directory");
            mount(Some("lab"), dir.path(), Some("tmpfs"), MsFlags::empty(), none).expect("tmpfs");
            // Before the directory goes, also when the test fails.
            let mounted = Mounted(dir.path());
            run("ip", &["link", "set", "lo", "up"]);
            test(&Lab { dir: dir.path().to_owned() });
            drop(mounted);
        });
        thread.join()
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// The inside of a lab.
#[derive(Debug)]
pub struct Lab {
    /// A directory of the lab's own, on tmpfs.
    pub dir: PathBuf,
}

impl Lab {
    /// A path in the lab's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes a network namespace and pins it.
    pub fn netns(&self, name: &str) -> PathBuf {
        let path = self.path(&format!("netns-{name}"));
        fs::write(&path, "").expect("a file to pin it to");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).expect("unshare");
                let none: Option<&str> = None;
                mount(Some("/proc/thread-self/ns/net"), &path, none, MsFlags::MS_BIND, none).expect("bind");
            });
        });
        path
    }

    /// Ends a network namespace.
    pub fn end_netns(&self, path: &Path) {
        nix::mount::umount(path).expect("umount");
        fs::remove_file(path).expect("remove");
    }

    /// Runs `work` in a network namespace.
    pub fn within<T: Send>(&self, netns: &Path, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let file = fs::File::open(netns).expect("the namespace is there");
                nix::sched::setns(&file, CloneFlags::CLONE_NEWNET).expect("setns");
                work()
            });
            thread.join().expect("no panic")
        })
    }
}

/// Runs a program to success; its stdout.
///
/// # Panics
/// When it fails.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = try_run(program, args).unwrap_or_else(|e| panic!("{program}: {e}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {} {stderr}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program.
pub fn try_run(program: &str, args: &[&str]) -> io::Result<Output> {
    Command::new(program).args(args).output()
}
