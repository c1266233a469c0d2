//! kubectl, in whatever versions are to be had: every one on the machine, the oldest and the newest count.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// One kubectl with a configuration.
#[derive(Clone)]
pub struct Kubectl {
    binary: PathBuf,
    kubeconfig: PathBuf,
    home: std::sync::Arc<tempfile::TempDir>,
    /// Its version, such as `(1, 33)`.
    pub version: (u32, u32),
}

/// What a command printed.
#[derive(Debug, Clone)]
pub struct Output {
    /// Whether it ended with 0.
    pub ok: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// Every kubectl found, by version: `CORACLE_KUBECTL` (colon separated), the path, and other tools' private copies. They are
/// looked for once per process: each has to be started to know its version.
pub fn found() -> &'static BTreeMap<(u32, u32), PathBuf> {
    static FOUND: OnceLock<BTreeMap<(u32, u32), PathBuf>> = OnceLock::new();
    FOUND.get_or_init(look)
}

fn look() -> BTreeMap<(u32, u32), PathBuf> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    let listed = std::env::var("CORACLE_KUBECTL").unwrap_or_default();
    candidates.extend(listed.split(':').filter(|p| !p.is_empty()).map(PathBuf::from));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = path.split(':').map(PathBuf::from).collect();
    // Where `scripts/kubectl` puts one when the machine has none.
    dirs.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/bin"));
    for base in ["/usr/lib", "/opt"] {
        let inside = std::fs::read_dir(base).into_iter().flatten().flatten();
        dirs.extend(inside.map(|entry| entry.path().join("bin")));
    }
    for dir in dirs {
        let inside = std::fs::read_dir(dir).into_iter().flatten().flatten();
        candidates.extend(inside.map(|e| e.path()).filter(|p| {
            p.file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n == "kubectl" || n.starts_with("kubectl.1."))
        }));
    }
    // The suites use flags that 1.26 and older do not know.
    let known = candidates.into_iter().filter_map(|path| Some((version(&path)?, path)));
    known.filter(|(version, _)| *version >= (1, 27)).collect()
}

fn version(binary: &Path) -> Option<(u32, u32)> {
    let output = Command::new(binary).args(["version", "--client", "-o", "json"]).output().ok()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let text = json["clientVersion"]["gitVersion"].as_str()?.trim_start_matches('v').to_owned();
    let mut parts = text.split('.').map(|p| p.parse::<u32>().ok());
    Some((parts.next()??, parts.next()??))
}

/// The oldest and the newest kubectl, each with its own empty cache.
///
/// # Panics
/// When there is none at all.
pub fn oldest_and_newest(kubeconfig: &Path) -> Vec<Kubectl> {
    let found = found();
    assert!(!found.is_empty(), "no kubectl 1.27 or later on this machine: run scripts/kubectl");
    let (first, last) = (found.iter().next(), found.iter().next_back());
    let mut picked: Vec<_> = first.into_iter().chain(last).collect();
    picked.dedup();
    picked.into_iter().map(|(version, binary)| Kubectl::new(binary, *version, kubeconfig)).collect()
}

/// The newest kubectl.
///
/// # Panics
/// When there is none at all.
pub fn newest(kubeconfig: &Path) -> Kubectl {
    oldest_and_newest(kubeconfig).pop().expect("there is at least one")
}

impl Kubectl {
    fn new(binary: &Path, version: (u32, u32), kubeconfig: &Path) -> Self {
        let home = std::sync::Arc::new(tempfile::tempdir().expect("a temporary directory"));
        Self { binary: binary.into(), kubeconfig: kubeconfig.into(), home, version }
    }

    /// The command itself, for those who need pipes.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).env("KUBECONFIG", &self.kubeconfig).env("HOME", self.home.path());
        command
    }

    /// Runs it with input and gives what it printed.
    pub fn with_input(&self, args: &[&str], input: &str) -> Output {
        // Some versions take everything that begins with a brace for JSON, and YAML may do so too.
        let is_yaml =
            input.trim_start().starts_with('{') && serde_json::from_str::<serde_json::Value>(input).is_err();
        let input = if is_yaml { format!("---\n{input}") } else { input.to_owned() };
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl can be started");
        let mut stdin = child.stdin.take().expect("piped");
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("kubectl ends");
        Output {
            ok: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command line that must succeed and gives its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, line: &str) -> String {
        self.run_with(line, "")
    }

    /// The same with input.
    ///
    /// # Panics
    /// When it fails.
    pub fn run_with(&self, line: &str, input: &str) -> String {
        let output = self.try_with(line, input);
        assert!(
            output.ok,
            "kubectl {}.{} {line}\n{}{}",
            self.version.0, self.version.1, output.out, output.err
        );
        output.out
    }

    /// Runs a command line, whatever comes of it. Words are split at blanks; `'…'` keeps blanks.
    pub fn try_with(&self, line: &str, input: &str) -> Output {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.with_input(&words, input)
    }

    /// Runs a command line that must fail, and gives its message.
    ///
    /// # Panics
    /// When it succeeds.
    pub fn fails(&self, line: &str) -> String {
        let output = self.try_with(line, "");
        assert!(!output.ok, "kubectl {line} should have failed:\n{}", output.out);
        output.err
    }
}

fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted, mut any) = (String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                any = true;
            }
            ' ' if !quoted => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => word.push(c),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
}
