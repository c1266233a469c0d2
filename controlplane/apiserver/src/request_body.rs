//! The body of a request, as a stream.

use bytes::{Buf, Bytes};
use http::Request;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// How much of a body is read after the request was rejected.
const REST_BYTES: usize = 4 * 1024 * 1024;
const REST_TIME: Duration = Duration::from_secs(2);

/// A request body. On drop, the unread rest is read and discarded, within limits: closing a connection with unread data
/// resets it, and the client would not receive the error response.
pub struct RequestBody(Option<Incoming>);

impl RequestBody {
    /// Wraps the body of a request.
    pub fn of(request: Request<Incoming>) -> Request<Self> {
        request.map(|body| Self(Some(body)))
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let Some(mut body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let rest = async {
                let mut total = 0;
                while let Some(Ok(frame)) = body.frame().await
                    && total < REST_BYTES
                {
                    total += frame.data_ref().map_or(0, Buf::remaining);
                }
            };
            let _ = tokio::time::timeout(REST_TIME, rest).await;
        });
    }
}
