//! Chromium without a window, driven by its DevTools protocol over two pipes.

use nix::sys::stat::Mode;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine.
const WAIT: Duration = Duration::from_secs(30);
/// Programs that are Chromium.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser with one page.
pub struct Browser {
    child: Child,
    input: File,
    messages: Receiver<Value>,
    next: u64,
    session: String,
    /// Events since the page was opened.
    events: Vec<Value>,
    /// What the addresses of the page begin with; empty before the first page.
    origin: String,
    dir: tempfile::TempDir,
}

impl Browser {
    /// The program that `CORACLE_CHROMIUM` names, or one in the path.
    pub fn find() -> Option<PathBuf> {
        if let Some(named) = std::env::var_os("CORACLE_CHROMIUM") {
            return Some(named.into());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let mut programs = NAMES.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
        programs.find(|program| program.exists())
    }

    pub fn start(program: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = dir.path().join(name);
            nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
            // Both ways: opening does not wait for the other end.
            (OpenOptions::new().read(true).write(true).open(&path).unwrap(), path)
        };
        let ((input, input_path), (output, output_path)) = (pipe("in"), pipe("out"));
        let child = Command::new("sh")
            .args(["-c", r#"exec "$@" 3<"$IN" 4>"$OUT""#, "sh"])
            .arg(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-proxy-server",
            ])
            .args(["--window-size=1300,800", "--remote-debugging-pipe", "about:blank"])
            .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
            .envs([("IN", input_path), ("OUT", output_path)])
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let (sender, messages) = channel::<Value>();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap_or_default()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (session, origin) = (String::new(), String::new());
        let mut browser = Self { child, input, messages, next: 0, session, events: Vec::new(), origin, dir };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        let begun = Instant::now();
        loop {
            let left = WAIT.saturating_sub(begun.elapsed());
            let Ok(message) = self.messages.recv_timeout(left) else {
                let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("{method}: no answer within {WAIT:?}\n{log}");
            };
            if message["id"] == self.next {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// Opens a page as if for the first time. Fails if something went wrong in the one before it.
    pub fn open(&mut self, origin: &str, fragment: &str) {
        if !self.origin.is_empty() {
            self.check();
        }
        // Only a page that is another one is loaded again.
        self.call("Page.navigate", json!({"url": "about:blank"}));
        self.call("Network.clearBrowserCache", json!({}));
        self.events.clear();
        self.origin = origin.to_owned();
        self.call("Page.navigate", json!({"url": format!("{origin}{fragment}")}));
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    pub fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true; how long that took.
    pub fn wait(&mut self, what: &str, expression: &str) -> Duration {
        let begun = Instant::now();
        // The page may not be there yet.
        let safe =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        while self.value(&safe) != true {
            if begun.elapsed() > WAIT {
                let page = self.text("document.body.innerText");
                panic!("{what}: not within {WAIT:?}: {expression}\n{page}\n{:#?}", self.problems());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed()
    }

    /// Presses a key: a character, or the name of a key.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "ArrowLeft" => (37, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "Tab" => (9, ""),
            character => (0, character),
        };
        let down = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        let event = json!({"type": down, "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", event);
        self.call(
            "Input.dispatchKeyEvent",
            json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}),
        );
    }

    pub fn type_text(&mut self, text: &str) {
        text.chars().for_each(|character| self.press(&character.to_string()));
    }

    /// Errors of scripts, violations of the policy, and requests to anybody else since the page was opened.
    pub fn problems(&mut self) -> Vec<String> {
        // Events that are under way come before the answer.
        self.value("new Promise((done) => setTimeout(() => done(1), 100))");
        let origin = self.origin.trim_end_matches('/').trim_end_matches("ui").to_owned();
        let mut problems = Vec::new();
        for event in &self.events {
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Runtime.exceptionThrown" => problems.push(params["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled"
                    if matches!(params["type"].as_str(), Some("error" | "warning")) =>
                {
                    problems.push(params["args"].to_string());
                }
                // Answers that are no success are what some steps want.
                "Log.entryAdded" if params["entry"]["source"] != "network" => {
                    problems.push(params["entry"].to_string());
                }
                "Network.requestWillBeSent" => {
                    let url = params["request"]["url"].as_str().unwrap_or_default();
                    let is_own =
                        url.starts_with(&origin) || url.starts_with("data:") || url.starts_with("about:");
                    if !is_own {
                        problems.push(format!("a request to {url}"));
                    }
                }
                _ => {}
            }
        }
        problems
    }

    /// Fails if something went wrong in the page.
    pub fn check(&mut self) {
        let problems = self.problems();
        assert!(problems.is_empty(), "{problems:#?}");
    }

    /// Leaves the page and what went wrong in it: its server may be gone, which is no problem of the next page.
    pub fn leave(&mut self) {
        self.origin.clear();
        self.events.clear();
    }

    /// Writes what is seen to a file of the directory that `CORACLE_SCREENSHOTS` names.
    pub fn screenshot(&mut self, name: &str) {
        use base64::Engine as _;
        let Some(dir) = std::env::var_os("CORACLE_SCREENSHOTS") else { return };
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&dir).join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
