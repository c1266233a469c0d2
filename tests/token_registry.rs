//! A registry of one image that wants a token, and the server that gives tokens for a password.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

const TOKEN: &str = "a-token-of-its-own";
/// base64 of `tester:secret`.
const PASSWORD: &str = "Basic dGVzdGVyOnNlY3JldA==";

/// A registry that lives as long as the process.
#[derive(Debug)]
pub struct TokenRegistry {
    /// `host:port`.
    pub address: String,
    /// Paths that were asked for, in order.
    pub asked: Arc<Mutex<Vec<String>>>,
}

/// A blob or manifest: its type and bytes.
pub type Document = (&'static str, Vec<u8>);

impl TokenRegistry {
    /// Serves documents by path, such as `/v2/app/manifests/latest`, to whoever has a token.
    ///
    /// # Panics
    /// When there is no port to listen on.
    pub fn start(documents: HashMap<String, Document>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (own, log, documents) = (address.clone(), asked.clone(), Arc::new(documents));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (own, log, documents) = (own.clone(), log.clone(), documents.clone());
                std::thread::spawn(move || {
                    let _ = answer(stream, &own, &log, &documents);
                });
            }
        });
        Self { address, asked }
    }
}

fn answer(
    stream: TcpStream,
    own: &str,
    log: &Mutex<Vec<String>>,
    documents: &HashMap<String, Document>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    let path = target.split('?').next().unwrap_or_default();
    let mut authorization = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            authorization = value.trim().to_owned();
        }
    }
    if let Ok(mut log) = log.lock() {
        log.push(path.to_owned());
    }
    let json = "application/json";
    let denied = br#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#.to_vec();
    let unknown = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#.to_vec();
    let (status, kind, body) = if path == "/token" {
        match authorization == PASSWORD {
            true => ("200 OK", json, format!(r#"{{"token":"{TOKEN}"}}"#).into_bytes()),
            false => ("401 Unauthorized", json, denied),
        }
    } else if authorization != format!("Bearer {TOKEN}") {
        ("401 Unauthorized", json, denied)
    } else if path == "/v2/" {
        ("200 OK", json, b"{}".to_vec())
    } else {
        match documents.get(path) {
            Some((kind, body)) => ("200 OK", *kind, body.clone()),
            None => ("404 Not Found", json, unknown),
        }
    };
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    )?;
    if status.starts_with("401") && path != "/token" {
        write!(
            stream,
            "WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"test\",scope=\"repository:app:pull\"\r\n"
        )?;
    }
    stream.write_all(b"\r\n")?;
    if method != "HEAD" {
        stream.write_all(&body)?;
    }
    Ok(())
}
