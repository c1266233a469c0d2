//! A proxy on the loopback interface that has the user's credentials: for the page (`coracle ui`), which only reads, and for the command
//! of `coracle trace -- COMMAND`.

// Whom it serves.
mod mode;
// Which requests are forwarded.
mod check;
// One request.
mod forward;
// Root causes.
mod why;

pub use mode::{Mode, Page};

use super::connect::{ConnectArgs, Connected, connect};
use super::page;
use anyhow::Context as _;
use check::Rules;
use clap::Args;
use coracle_apiserver::respond::{Body, full};
use forward::{forward, plain};
use http::header::{HeaderValue, LOCATION};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use why::Analyses;

/// Within this time the head of a request must be there.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Options of `coracle ui`.
#[derive(Debug, Args)]
pub struct UiArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Only print the address.
    #[arg(long)]
    no_open: bool,
}

/// A proxy that listens until it is dropped.
pub struct Proxy {
    port: u16,
    token: String,
    once: String,
    forwarded: Arc<AtomicU64>,
    changes: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

struct Server {
    client: kube::Client,
    mode: Mode,
    /// Only for the page.
    analyses: Option<Analyses>,
    port: u16,
    token: String,
    /// Leads to the page once: arguments of a browser can be seen by every user of the machine.
    once: Mutex<Option<String>>,
    forwarded: Arc<AtomicU64>,
    changes: Arc<AtomicUsize>,
}

impl Proxy {
    /// Listens on a port of 127.0.0.1, 0 for a free one.
    pub async fn start(client: kube::Client, mode: Mode, port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let [token, once] = [(); 2].map(|()| format!("{:032x}", rand::random::<u128>()));
        let (forwarded, changes) = (Arc::<AtomicU64>::default(), Arc::<AtomicUsize>::default());
        let analyses = match &mode {
            Mode::Page { namespace, .. } => Some(Analyses::new(client.clone(), namespace.clone())),
            Mode::Command { .. } => None,
        };
        let server = Server {
            client,
            mode,
            port,
            token: token.clone(),
            once: Mutex::new(analyses.is_some().then(|| once.clone())),
            analyses,
            forwarded: forwarded.clone(),
            changes: changes.clone(),
        };
        let task = tokio::spawn(serve(listener, Arc::new(server)));
        Ok(Self { port, token, once, forwarded, changes, task })
    }

    /// The address of the API server behind it.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, self.token)
    }

    /// The address of the page for a browser, which can be opened once.
    fn opening(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, self.once)
    }

    /// How many requests were forwarded.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// How many of them were in the proxy's own trace, asked for a change and succeeded.
    pub fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, server: Arc<Server>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // No more files can be opened: connections that end make room.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let server = server.clone();
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        });
    }
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let page = match &self.mode {
            Mode::Page { own, .. } => Some(*own),
            Mode::Command { .. } => None,
        };
        let is_root =
            *request.method() == Method::GET && request.uri().path().trim_end_matches('/') == self.root();
        if self.is_opening(&request) {
            return redirect(&format!("{}/ui/", self.root()));
        }
        let rules = Rules { token: &self.token, port: self.port, read_only: page.is_some() && !is_root };
        let target = match rules.check(&request) {
            Ok(target) => target,
            Err(refusal) => return plain(refusal.status(), refusal.text()),
        };
        if page.is_some() && is_root {
            return redirect(&format!("{}/ui/", self.root()));
        }
        if let Some(analyses) = &self.analyses
            && target.path() == why::PATH
        {
            return analyses.respond(request.method(), target.query().unwrap_or_default()).await;
        }
        if let Some(Some(own)) = page
            && target.path().starts_with("/ui")
        {
            let file = own(target.path(), request.headers());
            return file.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "not found"));
        }
        self.forwarded.fetch_add(1, Ordering::Relaxed);
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let is_change = !is_read && !request.headers().contains_key(forward::TRACEPARENT);
        let answer = forward(&self.client, &self.mode, request, target).await;
        if is_change && answer.status().is_success() {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Whether a request is for the address that can be opened once; it cannot be again.
    fn is_opening<B>(&self, request: &Request<B>) -> bool {
        let mut once = self.once.lock();
        let is_right = once.as_deref().is_some_and(|token| {
            let rules = Rules { token, port: self.port, read_only: false };
            *request.method() == Method::GET && rules.check(request).is_ok()
        });
        if is_right {
            *once = None;
        }
        is_right
    }

    fn root(&self) -> String {
        format!("/{}", self.token)
    }
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::FOUND;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

/// Serves the page until it is interrupted.
pub fn ui(args: &UiArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(serve_page(args));
    runtime.shutdown_background();
    result
}

async fn serve_page(args: &UiArgs) -> anyhow::Result<()> {
    let connected = connect(&args.connect).await?;
    let own = (!has_page(&connected).await).then_some(page::serve as Page);
    let mode = Mode::Page { own, namespace: connected.namespace };
    let proxy = Proxy::start(connected.client, mode, args.port)
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{}", args.port))?;
    let address = format!("{}/ui/", proxy.address());
    println!("{address}");
    eprintln!("everybody who knows this address can read what you can; interrupt to end");
    if !args.no_open {
        open(&proxy.opening());
    }
    tokio::signal::ctrl_c().await.context("cannot wait for an interrupt")
}

/// Whether the server has a page. Those of others, older ones and those that record nothing have none.
async fn has_page(connected: &Connected) -> bool {
    let Ok(request) = Request::get("/ui/").body(Vec::new()) else { return false };
    let asked = tokio::time::timeout(connected.timeout, connected.client.request_text(request));
    connected.is_coracle && asked.await.is_ok_and(|answer| answer.is_ok())
}

/// Shows an address in the browser of the desktop, if there is one.
fn open(address: &str) {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !std::io::stdout().is_terminal() || !(has("DISPLAY") || has("WAYLAND_DISPLAY")) {
        return;
    }
    let mut browser = tokio::process::Command::new("xdg-open");
    browser.arg(address).stdin(std::process::Stdio::null());
    browser.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    if let Ok(mut child) = browser.spawn() {
        tokio::spawn(async move { child.wait().await });
    }
}

#[cfg(test)]
mod tests;
