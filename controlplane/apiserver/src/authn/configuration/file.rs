//! The fields of an AuthenticationConfiguration. Unknown fields are errors.

use serde::Deserialize;

/// The file.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AuthenticationConfiguration {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) jwt: Vec<JwtAuthenticator>,
    pub(super) anonymous: Option<AnonymousAuth>,
}

/// Requests without credentials.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AnonymousAuth {
    pub(super) enabled: bool,
    pub(super) conditions: Vec<AnonymousCondition>,
}

/// A path for requests without credentials.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AnonymousCondition {
    pub(super) path: String,
}

/// An issuer, and what its claims mean.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct JwtAuthenticator {
    pub(super) issuer: IssuerFields,
    pub(super) claim_validation_rules: Vec<ClaimRule>,
    pub(super) claim_mappings: ClaimMappings,
    pub(super) user_validation_rules: Vec<UserRule>,
}

/// Who makes tokens, and for whom.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct IssuerFields {
    pub(super) url: String,
    #[serde(rename = "discoveryURL")]
    pub(super) discovery_url: Option<String>,
    pub(super) certificate_authority: String,
    pub(super) audiences: Vec<String>,
    pub(super) audience_match_policy: String,
    pub(super) egress_selector_type: String,
}

/// A claim with its value, or an expression.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimRule {
    pub(super) claim: String,
    pub(super) required_value: String,
    pub(super) expression: String,
    pub(super) message: String,
}

/// A condition for users.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct UserRule {
    pub(super) expression: String,
    pub(super) message: String,
}

/// What claims are mapped to.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimMappings {
    pub(super) username: PrefixedClaimOrExpression,
    pub(super) groups: PrefixedClaimOrExpression,
    pub(super) uid: ClaimOrExpression,
    pub(super) extra: Vec<ExtraMapping>,
}

/// A claim after a prefix, or an expression.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PrefixedClaimOrExpression {
    pub(super) claim: String,
    pub(super) prefix: Option<String>,
    pub(super) expression: String,
}

/// A claim or an expression.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClaimOrExpression {
    pub(super) claim: String,
    pub(super) expression: String,
}

/// An attribute of users.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExtraMapping {
    pub(super) key: String,
    pub(super) value_expression: String,
}
