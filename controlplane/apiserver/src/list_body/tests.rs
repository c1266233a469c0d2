#![allow(clippy::unwrap_used)]
use super::*;
use coracle_kinds::registry::columns::{Cell, Column};
use serde_json::json;
use std::io::Read;

fn kind() -> Arc<Kind> {
    let mut kind = Kind::new("x.io", "v1", "Foo", "foos");
    let cell = Cell::Path(".spec.size".into());
    kind.columns.push(Column {
        name: "Size".into(),
        kind: "integer",
        format: "",
        description: "".into(),
        priority: 0,
        cell,
    });
    Arc::new(kind)
}

/// So many objects with so many bytes of text.
fn page(kind: &Kind, count: usize, size: usize) -> Page {
    let object = |i: usize| {
        let value = json!({"kind": "Foo", "apiVersion": "x.io/v1", "metadata": {"name": format!("f{i}"), "namespace": "n"},
            "spec": {"size": i, "text": "x".repeat(size)}});
        Arc::new(Object::from_stored(&kind.fields, &value.to_string().into(), i as u64 + 1).unwrap())
    };
    let items = (0..count).map(object).collect();
    Page { items, revision: 7000, continue_token: "abc".into(), remaining: Some(3) }
}

/// Counts and sizes: nothing, within a piece, at the edges of pieces, large objects.
const LISTS: [(usize, usize); 8] =
    [(0, 0), (1, 10), (1, 200_000), (3, 65_000), (2, 65_420), (300, 100), (1200, 1), (5000, 200)];

async fn frames(response: Response<Body>) -> Vec<Bytes> {
    let mut body = response.into_body();
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.push(frame.unwrap().into_data().unwrap());
    }
    frames
}

fn joined(frames: &[Bytes]) -> Vec<u8> {
    let mut whole = Vec::new();
    frames.iter().for_each(|frame| whole.extend_from_slice(frame));
    whole
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

#[tokio::test]
async fn a_list_in_pieces_is_the_same_bytes() {
    let kind = kind();
    for (count, size) in LISTS {
        let (page, metadata) = (page(&kind, count, size), page(&kind, 0, 0).metadata());
        let items: Vec<&[u8]> = page.items.iter().map(|object| object.json.as_ref()).collect();
        let mut expected = br#"{"kind":"FooList","apiVersion":"x.io/v1","metadata":"#.to_vec();
        expected.extend_from_slice(metadata.to_string().as_bytes());
        expected.extend_from_slice(br#","items":["#);
        expected.extend_from_slice(&items.join(&b','));
        expected.extend_from_slice(b"]}\n");
        drop(items);
        let response =
            ListChunks::of(&kind, page, Form::Plain, String::new(), false).into_response("").unwrap();
        // The client knows from the start how much is coming.
        assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(expected.len() as u64));
        let frames = frames(response).await;
        assert!(joined(&frames) == expected, "{count} of {size}");
        assert!(frames.iter().skip(1).all(|frame| frame.len() <= CHUNK_SIZE), "{count} of {size}");
        assert!(frames.first().is_some_and(|first| first.len() <= COMPRESS_FROM), "{count} of {size}");
        assert_eq!(frames.len() == 1, expected.len() <= COMPRESS_FROM, "{count} of {size}");
    }
}

#[tokio::test]
async fn tables_in_pieces_say_the_same() {
    let kind = kind();
    for (count, size) in LISTS {
        let values: Vec<Value> = page(&kind, count, size).items.iter().map(|object| object.value()).collect();
        let metadata = page(&kind, 0, 0).metadata();
        let mut cases = vec![(Form::Partial("v1"), "", table::partial_list(&values, metadata.clone(), "v1"))];
        for include in ["", "None", "Object"] {
            let whole = table::of_list(&kind, &values, metadata.clone(), "v1beta1", include);
            cases.push((Form::Table("v1beta1"), include, whole));
        }
        for (form, include, expected) in cases {
            let chunks = ListChunks::of(&kind, page(&kind, count, size), form, include.into(), false);
            let frames = frames(chunks.into_response("").unwrap()).await;
            let shown: Value = serde_json::from_slice(&joined(&frames)).unwrap();
            assert!(shown == expected, "{count} of {size} as {form:?} with {include:?}");
            assert!(frames.iter().all(|frame| frame.len() <= COMPRESS_FROM), "{count} of {size}");
        }
    }
}

#[tokio::test]
async fn only_large_lists_are_compressed() {
    let kind = kind();
    for (count, size) in LISTS {
        for form in [Form::Plain, Form::Table("v1")] {
            let chunks = || ListChunks::of(&kind, page(&kind, count, size), form, "Object".into(), false);
            let plain = joined(&frames(chunks().into_response("").unwrap()).await);
            let response = chunks().into_response("gzip, deflate").unwrap();
            let zipped = response.headers().contains_key(CONTENT_ENCODING);
            assert_eq!(zipped, plain.len() >= COMPRESS_FROM, "{count} of {size}");
            let sent = joined(&frames(response).await);
            assert!(plain == if zipped { unzipped(&sent) } else { sent }, "{count} of {size}");
        }
    }
}

#[tokio::test]
async fn whoever_does_not_read_keeps_no_copy() {
    let kind = kind();
    let page = page(&kind, 5000, 200);
    let objects: Vec<std::sync::Weak<Object>> = page.items.iter().map(Arc::downgrade).collect();
    let response = ListChunks::of(&kind, page, Form::Plain, String::new(), false).into_response("").unwrap();
    let mut body = response.into_body();
    let kept = || objects.iter().filter(|object| object.strong_count() > 0).count();
    let before = kept();
    assert!(before > 4000, "the objects are the body, not their bytes: {before}");
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    let after = kept();
    assert!(after < before && after > 4000, "each ends when it is sent: {after} of {before}");
}
