#![allow(clippy::unwrap_used)]
use super::*;
use crate::filters::flow_control::Permit;
use crate::idle_timeout::{ConnectionTimeout, ConnectionTimer, TimedStream, Timeouts};
use crate::pending_response::SLICE;
use crate::respond::full;
use futures::stream;
use http_body::Body as _;
use http_body_util::{BodyExt, StreamBody};
use std::future::pending;
use std::pin::pin;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(600);
const TIMEOUTS: Timeouts = Timeouts { head: LONG, idle: LONG, unread: SHORT, seat: LONG };

fn answer(timer: &ConnectionTimer, body: Body, version: Version) -> ResponseBody {
    timer.request().until_sent(Response::new(body), version).into_body()
}

/// A body with endless data.
fn endless() -> Body {
    let frames = stream::repeat_with(|| Ok::<_, BoxError>(Frame::data(Bytes::from_static(&[b' '; 100]))));
    StreamBody::new(frames).boxed_unsync()
}

/// A body that never has data.
fn quiet() -> Body {
    StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()).boxed_unsync()
}

/// Runs progress checks for a while; `Some` if the connection timed out.
async fn check_for_a_while(timer: &ConnectionTimer) -> Option<ConnectionTimeout> {
    timeout(SHORT * 5, timer.drive(pin!(pending::<()>()))).await.ok().map(Result::unwrap_err)
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_until_it_is_sent() {
    let timer = ConnectionTimer::begin(Timeouts { idle: SHORT, ..TIMEOUTS });
    let sending = answer(&timer, full("x"), Version::HTTP_11);
    assert_eq!(sending.size_hint().exact(), Some(1));
    assert_eq!(check_for_a_while(&timer).await, None);
    assert_eq!(sending.collect().await.unwrap().to_bytes(), "x");
    assert_eq!(check_for_a_while(&timer).await, Some(ConnectionTimeout::Idle));
}

#[tokio::test(start_paused = true)]
async fn a_seat_is_kept_until_the_answer_is_sent_and_not_for_long() {
    let timer = ConnectionTimer::begin(Timeouts { unread: SHORT * 6, seat: SHORT, ..TIMEOUTS });
    let seat = Arc::new(Permit::exempt());
    let sending = || {
        let response =
            Response::builder().extension(SendPolicy::HoldSeat(seat.clone())).body(full("x")).unwrap();
        timer.request().until_sent(response, Version::HTTP_11).into_body()
    };
    let sent = sending();
    assert_eq!(Arc::strong_count(&seat), 2);
    sent.collect().await.unwrap();
    assert_eq!(Arc::strong_count(&seat), 1);
    let slow = sending();
    assert_eq!(Arc::strong_count(&seat), 2);
    assert_eq!(check_for_a_while(&timer).await, None);
    assert_eq!(Arc::strong_count(&seat), 1);
    assert_eq!(slow.collect().await.unwrap().to_bytes(), "x", "the answer goes on");
}

#[tokio::test(start_paused = true)]
async fn large_frames_are_sent_in_slices_where_streams_share_a_connection() {
    let timer = ConnectionTimer::begin(TIMEOUTS);
    let body = || full(vec![b'x'; SLICE * 2 + 1]);
    let mut sending = answer(&timer, body(), Version::HTTP_2);
    for (length, left) in [(SLICE, SLICE + 1), (SLICE, 1), (1, 0)] {
        let slice = sending.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((slice.len(), sending.size_hint().exact()), (length, Some(left as u64)));
        assert_eq!(sending.is_end_stream(), left == 0);
    }
    let mut sending = answer(&timer, body(), Version::HTTP_11);
    assert_eq!(sending.frame().await.unwrap().unwrap().into_data().unwrap().len(), SLICE * 2 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_is_given_up_and_quiet_ones_are_not() {
    let timer = ConnectionTimer::begin(TIMEOUTS);
    let mut unread = answer(&timer, endless(), Version::HTTP_2);
    let never = answer(&timer, endless(), Version::HTTP_2);
    let mut watch = answer(&timer, quiet(), Version::HTTP_2);
    let response = Response::builder().extension(SendPolicy::NoTimeout).body(endless()).unwrap();
    let mut log = timer.request().until_sent(response, Version::HTTP_2).into_body();
    unread.frame().await.unwrap().unwrap();
    log.frame().await.unwrap().unwrap();
    assert!(timeout(Duration::from_millis(1), watch.frame()).await.is_err());
    assert_eq!(check_for_a_while(&timer).await, None);
    assert!(unread.answer.lock().body.is_none() && never.answer.lock().body.is_none());
    let broken = unread.frame().await.unwrap().unwrap_err();
    assert_eq!(std::error::Error::source(&broken).unwrap().to_string(), "the client does not read");
    assert!(log.frame().await.unwrap().is_ok());
    assert!(watch.answer.lock().body.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_none_of_its_streams_is_hung_up_on() {
    let timer = ConnectionTimer::begin(TIMEOUTS);
    let _answers: Vec<ResponseBody> = (0..20).map(|_| answer(&timer, endless(), Version::HTTP_2)).collect();
    assert_eq!(check_for_a_while(&timer).await, Some(ConnectionTimeout::WriteStalled));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_a_little_now_and_then_is_not() {
    let timer = ConnectionTimer::begin(Timeouts { unread: SHORT * 10, ..TIMEOUTS });
    let mut slow = answer(&timer, endless(), Version::HTTP_2);
    let reads = async {
        for _ in 0..10 {
            tokio::time::sleep(SHORT * 2).await;
            slow.frame().await.unwrap().unwrap();
        }
    };
    let connection = pin!(pending::<()>());
    tokio::select! {
        ended = timer.drive(connection) => panic!("{ended:?}"),
        () = reads => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_no_byte_ends_unless_it_may_wait() {
    for no_timeout in [false, true] {
        let timer = ConnectionTimer::begin(TIMEOUTS);
        let mut response = Response::new(endless());
        if no_timeout {
            response.extensions_mut().insert(SendPolicy::NoTimeout);
        }
        let _sending = timer.request().until_sent(response, Version::HTTP_11);
        let (near, _far) = tokio::io::duplex(100);
        let mut stream = TimedStream::new(near, Some(timer.clone()), None);
        let writes = async { while stream.write_all(&[b' '; 64]).await.is_ok() {} };
        let ended = timeout(SHORT * 5, timer.drive(pin!(writes))).await;
        match no_timeout {
            true => assert!(ended.is_err()),
            false => assert_eq!(ended.unwrap(), Err::<(), _>(ConnectionTimeout::WriteStalled)),
        }
    }
}
