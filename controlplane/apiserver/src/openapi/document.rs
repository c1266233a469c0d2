//! Parts of OpenAPI documents. What only one version of OpenAPI has is left out of the other.

use serde::Serialize;
use serde_json::{Map, Value};

/// A parameter of an operation.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Parameter<'a> {
    pub name: &'a str,
    #[serde(rename = "in")]
    pub place: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// OpenAPI 2, except for bodies.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'a str>,
    /// OpenAPI 2, except for bodies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_items: Option<bool>,
    /// OpenAPI 3, and bodies in OpenAPI 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
}

/// A response to an operation.
#[derive(Serialize)]
pub(super) struct Response<'a> {
    pub description: &'a str,
    /// OpenAPI 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// OpenAPI 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

/// An operation of a path.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation<'a> {
    pub operation_id: String,
    pub description: String,
    pub tags: [String; 1],
    #[serde(rename = "x-kubernetes-action")]
    pub action: &'a str,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    pub kind: Value,
    pub responses: Map<String, Value>,
    /// OpenAPI 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_body: Option<Value>,
    /// OpenAPI 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumes: Option<&'a [&'a str]>,
    /// OpenAPI 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub produces: Option<&'a [&'a str]>,
    /// OpenAPI 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schemes: Option<[&'a str; 1]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Value>,
}
