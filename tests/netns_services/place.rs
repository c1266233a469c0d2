//! Places packets are sent from and answered at: threads of the suite inside network namespaces of nodes and pods.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A network namespace, by a process in it.
#[derive(Clone, Debug)]
pub struct Place {
    netns: Arc<std::fs::File>,
}

impl Place {
    pub fn of(pid: u32) -> Self {
        let path = format!("/proc/{pid}/ns/net");
        Place { netns: Arc::new(std::fs::File::open(path).unwrap()) }
    }

    /// By a path that leads to it.
    pub fn at(path: &std::path::Path) -> Self {
        let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Place { netns: Arc::new(file) }
    }

    /// Runs `work` on a thread inside.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                nix::sched::setns(&*self.netns, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// One HTTP request; the body, or why there is none.
    pub fn get(&self, to: &str) -> Result<String, std::io::Error> {
        self.within(|| get(to))
    }

    /// A UDP server that answers with its name and who asked, until dropped.
    pub fn answer_udp(&self, ip: IpAddr, port: u16, name: &str) -> Server {
        let socket = self.within(|| UdpSocket::bind((ip, port)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let name = name.to_owned();
        Server::start(move |end| {
            let mut buffer = [0; 512];
            while !end.load(Ordering::Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(format!("{name} {}", from.ip()).as_bytes(), from);
                }
            }
        })
    }

    /// A TCP server that sends back what it gets, until dropped.
    pub fn echo_tcp(&self, ip: IpAddr, port: u16) -> Server {
        let listener = self.within(|| TcpListener::bind((ip, port)).unwrap());
        listener.set_nonblocking(true).unwrap();
        Server::start(move |end| {
            while !end.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        std::thread::spawn(move || {
                            let mut buffer = [0; 512];
                            while let Ok(n) = stream.read(&mut buffer) {
                                if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                                    break;
                                }
                            }
                        });
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        })
    }

    /// A UDP socket inside.
    pub fn udp(&self, to: &str) -> UdpSocket {
        let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = self.within(|| UdpSocket::bind(any).unwrap());
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    }

    /// A TCP connection from inside.
    pub fn connect(&self, to: &str) -> std::io::Result<TcpStream> {
        let address: SocketAddr = to.parse().unwrap();
        self.within(|| TcpStream::connect_timeout(&address, Duration::from_secs(2)))
    }
}

/// Sends once and waits for the answer.
pub fn ask(socket: &UdpSocket) -> Option<String> {
    socket.send(b"who").ok()?;
    let mut buffer = [0; 512];
    let n = socket.recv(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..n]).into_owned())
}

/// One HTTP request from the namespace of this thread.
pub fn get(to: &str) -> Result<String, std::io::Error> {
    let address: SocketAddr = to.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    match head.contains(" 200 ") {
        true => Ok(body.trim().to_owned()),
        false => Err(std::io::Error::other(format!("{head:?}"))),
    }
}

/// A server on a thread; it ends when dropped.
pub struct Server {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn start(work: impl FnOnce(Arc<AtomicBool>) + Send + 'static) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let flag = end.clone();
        Server { end, thread: Some(std::thread::spawn(move || work(flag))) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
