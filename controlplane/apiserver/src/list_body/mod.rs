//! The body of a list, rendered chunk by chunk as the client reads. A client that does not read holds the shared
//! objects of the list and one chunk, but no copy of the whole body.

use super::conversion::without_webhook;
use super::list::Page;
use super::negotiate::Form;
use super::offload::offload_blocking;
use super::respond::{self, Body, BoxError, COMPRESS_FROM, JSON};
use super::table::{self, Cells};
use bytes::Bytes;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use flate2::{Compression, write::GzEncoder};
use http::Response;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use serde_json::Value;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

/// Size of a chunk, of lists and watches.
pub const CHUNK_SIZE: usize = 64 * 1024;

/// Renders a list in chunks.
pub struct ListChunks {
    kind: Arc<Kind>,
    form: Form,
    include: String,
    cells: Cells,
    /// Whether the objects are converted already; otherwise they are converted when rendered.
    converted: bool,
    objects: IntoIter<Arc<Object>>,
    /// The rest of an item that did not fit into the last chunk.
    rest: Bytes,
    begun: bool,
    closed: bool,
    /// Remaining bytes, if known in advance.
    left: Option<usize>,
}

impl ListChunks {
    /// A page; `include` is the `includeObject` parameter of Tables.
    pub fn of(kind: &Arc<Kind>, page: Page, form: Form, include: String, converted: bool) -> Self {
        let metadata = page.metadata();
        let (head, cells) = match form {
            Form::Plain => {
                let (name, version) = (&kind.kind, kind.api_version());
                let head = format!(
                    "{{\"kind\":\"{name}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":["
                );
                (head, Cells::default())
            }
            Form::Partial(version) => (table::partial_head(&metadata, version), Cells::default()),
            Form::Table(version) => (table::head(kind, &metadata, version), Cells::of(kind)),
        };
        let left = (form == Form::Plain && (converted || !kind.is_view())).then(|| {
            let objects: usize = page.items.iter().map(|object| object.json.len()).sum();
            head.len() + objects + page.items.len().saturating_sub(1) + tail(form).len()
        });
        Self {
            kind: kind.clone(),
            form,
            include,
            cells,
            converted,
            objects: page.items.into_iter(),
            rest: head.into(),
            begun: false,
            closed: false,
            left,
        }
    }

    /// The response: one buffer if it is small, otherwise a stream. An error in the first chunk becomes an error response;
    /// a later one aborts the stream.
    pub fn into_response(mut self, accept_encoding: &str) -> Result<Response<Body>, ApiError> {
        let first = self.next(COMPRESS_FROM)?;
        if self.closed && self.rest.is_empty() {
            return Ok(respond::compressible(200, JSON, first, accept_encoding));
        }
        let mut response = respond::bytes(200, JSON, Bytes::new());
        let gzip = accept_encoding.contains("gzip").then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        if gzip.is_some() {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        let copies = self.left.is_some() && gzip.is_none();
        let body = ListBody { first, chunks: self, gzip, copies, over: false };
        *response.body_mut() = body.boxed_unsync();
        Ok(response)
    }

    /// The next chunk of about `size` bytes; empty at the end.
    fn next(&mut self, size: usize) -> Result<Bytes, ApiError> {
        let mut out = Vec::with_capacity(self.left.map_or(0, |left| left.min(size)));
        while out.len() < size {
            if self.rest.is_empty() {
                self.rest = match self.objects.next() {
                    Some(object) => {
                        if std::mem::replace(&mut self.begun, true) {
                            out.push(b',');
                        }
                        if self.left.is_some() && object.json.len() <= size - out.len() {
                            out.extend_from_slice(&object.json);
                            continue;
                        }
                        self.item(&object)?
                    }
                    None if self.closed => break,
                    None => {
                        self.closed = true;
                        Bytes::from_static(tail(self.form))
                    }
                };
            }
            let part = self.rest.split_to(self.rest.len().min(size - out.len()));
            out.extend_from_slice(&part);
        }
        self.left = self.left.map(|left| left.saturating_sub(out.len()));
        Ok(out.into())
    }

    /// An object as it stands in the list.
    fn item(&self, object: &Arc<Object>) -> Result<Bytes, ApiError> {
        let object = if self.converted { object.clone() } else { without_webhook(&self.kind, object)? };
        match self.form {
            Form::Plain => Ok(object.json.clone()),
            Form::Partial(version) => to_bytes(&table::partial(&object.value(), version)),
            Form::Table(version) => to_bytes(&self.cells.row(&object.value(), version, &self.include)),
        }
    }
}

/// The bytes after the last item.
fn tail(form: Form) -> &'static [u8] {
    if form == Form::Plain { b"]}\n" } else { b"]}" }
}

fn to_bytes(value: &Value) -> Result<Bytes, ApiError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(ApiError::internal)
}

/// The streamed body of a list.
struct ListBody {
    first: Bytes,
    chunks: ListChunks,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Whether chunks are only copied bytes, which is cheap.
    copies: bool,
    over: bool,
}

impl ListBody {
    /// The next bytes; empty at the end.
    fn make(&mut self) -> Result<Bytes, BoxError> {
        while !self.over {
            let mut chunk = std::mem::take(&mut self.first);
            if chunk.is_empty() {
                chunk = self.chunks.next(CHUNK_SIZE)?;
            }
            self.over = chunk.is_empty();
            let Some(mut gzip) = self.gzip.take() else { return Ok(chunk) };
            let made = if self.over {
                gzip.finish()?
            } else {
                gzip.write_all(&chunk)?;
                let made = std::mem::take(gzip.get_mut());
                self.gzip = Some(gzip);
                made
            };
            // The encoder holds some back.
            if !made.is_empty() {
                return Ok(made.into());
            }
        }
        Ok(Bytes::new())
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let list = self.get_mut();
        let made = if list.copies { list.make() } else { offload_blocking(|| list.make()) };
        Poll::Ready(match made {
            Ok(bytes) if bytes.is_empty() => None,
            made => Some(made.map(Frame::data)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.over || (self.copies && self.size_hint().exact() == Some(0))
    }

    fn size_hint(&self) -> SizeHint {
        match self.chunks.left {
            Some(left) if self.copies => SizeHint::with_exact((self.first.len() + left) as u64),
            _ => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
