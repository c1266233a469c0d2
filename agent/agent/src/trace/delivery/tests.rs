#![allow(clippy::unwrap_used)]
use super::*;
use coracle_timeline::{Block, Keep, Limits, start_recording};
use coracle_trace::{Recorder, Sizes};
use http_body_util::Full;
use std::collections::VecDeque;

/// What a server answers: status, headers, body. Status 0: nothing, the connection breaks.
struct Answer(u16, &'static [(&'static str, &'static str)], Reply);

enum Reply {
    Empty,
    /// `{"until": <the largest sequence>}`.
    Everything,
    /// `{"until": <sequence of the request>}`.
    Until,
}

/// What a server got.
struct Got {
    path: String,
    spool: u64,
    clock: String,
    texts: Vec<String>,
}

#[derive(Default)]
struct Server {
    answers: Mutex<VecDeque<Answer>>,
    got: Mutex<Vec<Got>>,
}

impl Server {
    /// A client of a server that gives these answers, then acknowledges everything.
    fn client(self: &Arc<Self>) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn answer(&self, request: Request<Body>) -> io::Result<Response<Full<bytes::Bytes>>> {
        let (head, body) = request.into_parts();
        let header = |name: &str| head.headers[name].to_str().unwrap().to_owned();
        let (spans, clock) = (header(SPANS), header(clock::HEADER));
        assert_eq!(header("content-type"), BLOCKS);
        let (spool, sequence) = spans.split_once(' ').unwrap();
        let (path, spool) = (head.uri.path().to_owned(), spool.parse().unwrap());
        let bytes = body.collect().await.unwrap().to_bytes();
        let blocks = Block::split(&bytes).unwrap();
        let records = blocks.iter().flat_map(|block| block.records().unwrap());
        let texts = records.map(|stored| stored.text).collect();
        self.got.lock().push(Got { path, spool, clock, texts });
        let answer = self.answers.lock().pop_front().unwrap_or(Answer(200, &[], Reply::Until));
        let Answer(status @ 1.., headers, reply) = answer else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let body = match reply {
            Reply::Empty => String::new(),
            Reply::Everything => format!("{{\"until\": {}}}", u64::MAX),
            Reply::Until => format!("{{\"until\": {sequence}}}"),
        };
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Ok(response.body(Full::from(body)).unwrap())
    }

    fn texts(&self) -> Vec<Vec<String>> {
        self.got.lock().iter().map(|got| got.texts.clone()).collect()
    }
}

struct Node {
    dir: tempfile::TempDir,
    recorder: Recorder,
    spool: CollectorHandle,
    clock: Arc<ServerClock>,
    counts: Arc<Delivered>,
    server: Arc<Server>,
}

impl Node {
    fn new(answers: Vec<Answer>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), Limits { bytes: 1 << 20, age: Duration::from_secs(3600) }).unwrap();
        let (recorder, spool) = start_recording(None, Sizes::AGENT, keep);
        let server = Arc::new(Server { answers: Mutex::new(answers.into()), ..Server::default() });
        Node { dir, recorder, spool, clock: Arc::default(), counts: Arc::default(), server }
    }

    fn delivery(&self) -> Delivery {
        let spool = (self.dir.path(), self.spool.clone());
        Delivery::new(self.server.client(), "n1", spool, self.clock.clone(), self.counts.clone()).unwrap()
    }

    fn record(&self, text: &str) {
        let now = self.recorder.now();
        self.recorder.span_at(Stage::Volume, SpanId::NONE, (Uid(7), 1), now, now, text, 0);
        self.spool.flushed();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_is_not_sent_again() {
    let node = Node::new(vec![]);
    let delivery = node.delivery();
    assert_eq!(delivery.deliver().await.unwrap(), None, "nothing is recorded yet");
    node.record("a");
    node.record("b");
    assert_eq!(delivery.deliver().await.unwrap(), Some(BUSY));
    assert_eq!(delivery.deliver().await.unwrap(), None);
    node.record("c");
    assert_eq!(delivery.deliver().await.unwrap(), Some(BUSY));
    assert_eq!(node.server.texts(), [vec!["a", "b"], vec!["c"]]);
    assert_eq!(node.delivery().deliver().await.unwrap(), None, "after a restart");
    let got = node.server.got.lock();
    assert_eq!(got[0].path, "/coracle/v1/spans/n1");
    assert_eq!(got[0].spool, node.spool.keep().spool());
    assert!(got[0].clock.starts_with("0 4294967295 "), "{}", got[0].clock);
    assert_eq!(got[0].clock.rsplit(' ').next().unwrap().len(), 36, "boot id: {}", got[0].clock);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_say_when_to_go_on_and_where() {
    let seconds = |count| Some(Duration::from_secs(count));
    for (answer, pause, is_sent_again, rejected) in [
        (Answer(200, &[], Reply::Empty), Some(BUSY), false, 0),
        (Answer(200, &[], Reply::Everything), Some(BUSY), false, 0),
        (Answer(409, &[], Reply::Until), Some(BUSY), false, 0),
        (Answer(409, &[], Reply::Empty), Some(BUSY), false, 0),
        (Answer(429, &[("retry-after", "7")], Reply::Empty), seconds(7), true, 0),
        (Answer(429, &[], Reply::Empty), Some(BUSY), true, 0),
        (Answer(429, &[("retry-after", "99999")], Reply::Empty), Some(REST), true, 0),
        (Answer(404, &[], Reply::Empty), Some(REST), true, 0),
        (Answer(403, &[], Reply::Empty), Some(REST), true, 0),
        (Answer(400, &[], Reply::Empty), Some(BUSY), false, 1),
        (Answer(413, &[], Reply::Empty), Some(BUSY), false, 1),
        (Answer(500, &[], Reply::Empty), None, true, 0),
        (Answer(503, &[("retry-after", "7")], Reply::Empty), None, true, 0),
        (Answer(0, &[], Reply::Empty), None, true, 0),
    ] {
        let status = answer.0;
        let node = Node::new(vec![answer]);
        let delivery = node.delivery();
        node.record("x");
        assert_eq!(delivery.deliver().await.ok().flatten(), pause, "{status}");
        node.record("y");
        assert_eq!(delivery.deliver().await.unwrap(), Some(BUSY), "{status}");
        let second = if is_sent_again { vec!["x", "y"] } else { vec!["y"] };
        assert_eq!(node.server.texts(), [vec!["x"], second], "{status}");
        assert_eq!(node.counts.rejected.load(Ordering::Relaxed), rejected, "{status}");
        assert_eq!(delivery.deliver().await.unwrap(), None, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_offset_of_the_clock_goes_with_the_spans() {
    let node = Node::new(vec![]);
    let mut headers = http::HeaderMap::new();
    let sent = node.clock.ask(&mut headers).unwrap();
    let ahead = sent + 3_000_000_000;
    headers.insert(clock::HEADER, format!("{ahead} {ahead}").parse().unwrap());
    node.clock.answer(sent, &headers);
    node.record("x");
    node.delivery().deliver().await.unwrap();
    let clock = node.server.got.lock()[0].clock.clone();
    let mut parts = clock.split(' ');
    let offset: i64 = parts.next().unwrap().parse().unwrap();
    let uncertainty: u64 = parts.next().unwrap().parse().unwrap();
    assert!(offset.abs_diff(3_000_000_000) <= uncertainty && uncertainty < 1_000_000_000, "{clock}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_delivery_is_woken_by_what_is_recorded() {
    let node = Node::new(vec![]);
    let delivery = node.delivery();
    for text in ["a", "b"] {
        while delivery.deliver().await.unwrap().is_some() {}
        node.record(text);
        tokio::time::timeout(Duration::from_secs(60), delivery.appended.notified()).await.unwrap();
    }
    let task = tokio::spawn(delivery.run());
    let delivered = async {
        while node.server.texts().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), delivered).await.unwrap();
    assert_eq!(node.server.texts(), [["a"], ["b"]]);
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_told() {
    let node = Node::new(vec![]);
    let delivery = node.delivery();
    delivery.record_loss();
    node.spool.flushed();
    delivery.deliver().await.unwrap();
    assert_eq!(node.server.texts(), [vec!["deleted before they were delivered"]]);
}
