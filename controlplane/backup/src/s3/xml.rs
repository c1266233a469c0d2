//! Answers in XML.

use jiff::Timestamp;
use roxmltree::{Document, Node, ParsingOptions};

/// A page of 1,000 objects has about ten nodes for each.
const MAX_NODES: u32 = 100_000;

/// An object of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) size: u64,
    /// When it was written, if that is said.
    pub(super) modified: Option<Timestamp>,
}

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) objects: Vec<Entry>,
    /// The next page begins here.
    pub(super) next: Option<String>,
}

fn parse(text: &str) -> Option<Document<'_>> {
    let options = ParsingOptions { nodes_limit: MAX_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).ok()
}

fn child<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    let found = node.children().find(|child| child.tag_name().name() == name)?;
    Some(found.text().unwrap_or_default())
}

/// The text of a child of the answer's root, whose name must be right.
pub(super) fn text(xml: &str, root: &str, name: &str) -> Option<String> {
    let document = parse(xml)?;
    let element = document.root_element();
    (element.tag_name().name() == root).then(|| child(element, name).map(str::to_owned))?
}

/// Code and message of an error; also where S3 says after a while with status 200 that it failed.
pub(super) fn error(xml: &str) -> Option<(String, String)> {
    Some((text(xml, "Error", "Code")?, text(xml, "Error", "Message").unwrap_or_default()))
}

pub(super) fn page(xml: &str) -> Option<Page> {
    let document = parse(xml)?;
    let root = document.root_element();
    if root.tag_name().name() != "ListBucketResult" {
        return None;
    }
    let contents = root.children().filter(|child| child.tag_name().name() == "Contents");
    let objects = contents.map(|one| {
        Some(Entry {
            key: child(one, "Key")?.to_owned(),
            size: child(one, "Size")?.parse().ok()?,
            modified: child(one, "LastModified").and_then(|time| time.parse().ok()),
        })
    });
    let more = child(root, "IsTruncated") == Some("true");
    let next = child(root, "NextContinuationToken").map(str::to_owned);
    if more && next.is_none() {
        return None;
    }
    Some(Page { objects: objects.collect::<Option<_>>()?, next: next.filter(|_| more) })
}
