//! Sends a response to the client. A response holds the flow-control seat of its request while it is being sent, for a
//! limited time. It is aborted if the client does not read it, so that slow clients hold neither a seat nor memory.

use super::idle_timeout::ActiveRequest;
use super::pending_response::{PendingResponse, SendPolicy};
use super::respond::{Body, BoxError};
use bytes::Bytes;
use http::{Response, Version};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The rest of a response was not sent.
#[derive(Debug, thiserror::Error)]
#[error("the answer breaks off")]
pub struct ResponseAborted(#[source] BoxError);

impl ActiveRequest {
    /// The same response; the request is active until it is sent or aborted.
    pub fn until_sent(self, response: Response<Body>, version: Version) -> Response<ResponseBody> {
        let (mut head, body) = response.into_parts();
        let policy = head.extensions.remove::<SendPolicy>();
        // HTTP/1.1 sends one response at a time: the connection shows whether it is read.
        let answer = Arc::new(Mutex::new(PendingResponse::new(body, policy, version == Version::HTTP_2)));
        self.track(&answer);
        Response::from_parts(head, ResponseBody { answer, served: self })
    }
}

/// The body of a response that is being sent.
pub struct ResponseBody {
    answer: Arc<Mutex<PendingResponse>>,
    served: ActiveRequest,
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.served.untrack(&self.answer);
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseAborted>>> {
        self.answer.lock().poll(context).map_err(ResponseAborted)
    }

    fn is_end_stream(&self) -> bool {
        self.answer.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.lock().size_hint()
    }
}

#[cfg(test)]
mod tests;
