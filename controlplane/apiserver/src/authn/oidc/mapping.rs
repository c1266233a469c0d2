//! From the claims of a verified token to a user: rules for claims, what the claims are mapped to, rules for users.

use super::expression::{self, EvaluationError, Expression, Scope};
use coracle_client::user::User;
use coracle_expressions::{Budget, CONDITIONS, evaluate_blocking};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Names the token, for audit and for admission.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Why claims are those of nobody. Values of claims are not named: this goes to the log.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MappingError {
    /// A required claim is missing or has another value.
    #[error("required claim {claim} is not {value}")]
    Required {
        /// The claim.
        claim: String,
        /// The value that it must have.
        value: String,
    },
    /// The claim that names the user does not.
    #[error("claim {0} is missing or no text")]
    Text(String),
    /// Nobody has no name.
    #[error("the name of the user is empty")]
    NoName,
    /// The user is named by an address that nobody checked.
    #[error("email not verified")]
    Email,
    /// The claim that lists the groups does not.
    #[error("claim {0} is no list of texts")]
    Groups(String),
    /// An expression has no value of its type.
    #[error(transparent)]
    Evaluation(#[from] EvaluationError),
    /// A rule does not hold.
    #[error("validation failed: {0}")]
    Rule(String),
}

/// Where a value comes from.
pub enum Source {
    /// A claim, after a prefix.
    Claim {
        /// Its name.
        name: String,
        /// Put before each value.
        prefix: String,
    },
    /// What an expression makes of the claims.
    Expression(Expression),
}

/// A condition for tokens or users.
pub struct Rule {
    /// True for those that are accepted.
    pub expression: Expression,
    /// Says what is wrong with the others.
    pub message: String,
}

/// What the claims of an issuer's tokens mean.
pub struct Mapping {
    /// Claims that must have these values.
    pub required: Vec<(String, String)>,
    /// Further rules for claims.
    pub claim_rules: Vec<Rule>,
    /// The name.
    pub username: Source,
    /// The groups.
    pub groups: Option<Source>,
    /// The uid; without a prefix.
    pub uid: Option<Source>,
    /// Extra attributes by their keys.
    pub extra: Vec<(String, Expression)>,
    /// Rules for users.
    pub user_rules: Vec<Rule>,
}

impl Mapping {
    /// Only the name, from a claim.
    pub fn of_username(claim: &str, prefix: &str) -> Self {
        Self {
            required: Vec::new(),
            claim_rules: Vec::new(),
            username: Source::Claim { name: claim.into(), prefix: prefix.into() },
            groups: None,
            uid: None,
            extra: Vec::new(),
            user_rules: Vec::new(),
        }
    }

    /// The user that verified claims describe.
    pub fn user(&self, claims: &Value) -> Result<User, MappingError> {
        for (claim, value) in &self.required {
            if claims[claim] != *value {
                return Err(MappingError::Required { claim: claim.clone(), value: value.clone() });
            }
        }
        evaluate_blocking(CONDITIONS, |budget| self.mapped(claims, budget))
    }

    fn mapped(&self, claims: &Value, budget: &mut Budget) -> Result<User, MappingError> {
        let context = expression::variables(Scope::Claims, claims, budget);
        let name = match &self.username {
            Source::Claim { name, prefix } => format!("{prefix}{}", named(claims, name)?),
            Source::Expression(expression) => expression.text(&context, budget)?,
        };
        if name.is_empty() {
            return Err(MappingError::NoName);
        }
        let groups = match &self.groups {
            None => Vec::new(),
            Some(Source::Claim { name, prefix }) => listed(claims, name, prefix)?,
            Some(Source::Expression(expression)) => expression.texts(&context, budget)?,
        };
        let uid = match &self.uid {
            None => String::new(),
            Some(Source::Claim { name, prefix }) => format!("{prefix}{}", text(claims, name)?),
            Some(Source::Expression(expression)) => expression.text(&context, budget)?,
        };
        let mut extra = BTreeMap::new();
        if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let values = expression.texts(&context, budget)?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        all_hold(&self.claim_rules, &context, budget)?;
        if !self.user_rules.is_empty() {
            let user = json!({"username": name, "uid": uid, "groups": groups, "extra": extra});
            let context = expression::variables(Scope::User, &user, budget);
            all_hold(&self.user_rules, &context, budget)?;
        }
        Ok(User { uid, extra, ..User::new(name, groups) })
    }
}

fn all_hold(
    rules: &[Rule],
    context: &expression::Variables,
    budget: &mut Budget,
) -> Result<(), MappingError> {
    for rule in rules {
        if !rule.expression.holds(context, budget)? {
            return Err(MappingError::Rule(rule.message.clone()));
        }
    }
    Ok(())
}

fn text<'c>(claims: &'c Value, claim: &str) -> Result<&'c str, MappingError> {
    claims[claim].as_str().ok_or_else(|| MappingError::Text(claim.to_owned()))
}

/// A name. An address must be verified, if the token says whether it is.
fn named<'c>(claims: &'c Value, claim: &str) -> Result<&'c str, MappingError> {
    let name = text(claims, claim)?;
    if name.is_empty() {
        return Err(MappingError::NoName);
    }
    if claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != true) {
        return Err(MappingError::Email);
    }
    Ok(name)
}

/// A text or a list of texts; nothing if there is no such claim.
fn listed(claims: &Value, claim: &str, prefix: &str) -> Result<Vec<String>, MappingError> {
    let wrong = || MappingError::Groups(claim.to_owned());
    let group = |value: &Value| value.as_str().map(|group| format!("{prefix}{group}")).ok_or_else(wrong);
    match &claims[claim] {
        Value::Null => Ok(Vec::new()),
        Value::Array(all) => all.iter().map(group).collect(),
        one => Ok(vec![group(one)?]),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn claims_become_users() {
        let mut mapping = Mapping::of_username("sub", "https://id#");
        mapping.groups = Some(Source::Claim { name: "groups".into(), prefix: "oidc:".into() });
        mapping.uid = Some(Source::Claim { name: "oid".into(), prefix: String::new() });
        let claims = json!({"sub": "ann", "oid": "7", "groups": ["dev"], "email": "a@b", "email_verified": false,
            "hd": "x", "jti": "id-1"});
        let ann = mapping.user(&claims).unwrap();
        assert_eq!((ann.name.as_str(), ann.uid.as_str()), ("https://id#ann", "7"));
        assert_eq!(ann.groups, ["oidc:dev", "system:authenticated"]);
        assert_eq!(ann.extra[CREDENTIAL_ID], ["JTI=id-1"]);
        let with = |key: &str, value: Value| {
            let mut claims = claims.clone();
            claims[key] = value;
            mapping.user(&claims)
        };
        assert_eq!(with("groups", json!("ops")).unwrap().groups[0], "oidc:ops");
        assert_eq!(with("groups", Value::Null).unwrap().groups, ["system:authenticated"]);
        assert_eq!(with("groups", json!(["a", 7])), Err(MappingError::Groups("groups".into())));
        assert_eq!(with("sub", json!("")), Err(MappingError::NoName));
        assert_eq!(with("oid", json!(7)), Err(MappingError::Text("oid".into())));
        mapping.required = vec![("hd".into(), "y".into())];
        assert!(mapping.user(&claims).is_err());
        let mut by_email = Mapping::of_username("email", "");
        assert_eq!(by_email.user(&claims), Err(MappingError::Email));
        assert_eq!(by_email.user(&json!({"email": 7})), Err(MappingError::Text("email".into())));
        by_email.required = vec![("verified".into(), "true".into())];
        assert!(by_email.user(&json!({"email": "a", "verified": true})).is_err(), "no text");
    }

    fn expression(text: &str) -> Expression {
        Expression::of_claims("f".into(), text).unwrap()
    }

    #[test]
    fn expressions_map_claims() {
        let claims = json!({"sub": "ann", "email": "ann@example.com", "email_verified": true, "none": null,
            "roles": [{"name": "dev"}, {"name": ""}, {"name": "ops"}], "exp": 200, "nbf": 100});
        let texts = |text: &str| {
            let mut mapping = Mapping::of_username("sub", "");
            mapping.extra = vec![("example.com/x".into(), expression(text))];
            mapping.user(&claims).map(|user| user.extra.get("example.com/x").cloned().unwrap_or_default())
        };
        let wanted = "a string or a list of strings";
        let outcome =
            || Err(MappingError::Evaluation(EvaluationError::Outcome { field: "f".into(), wanted }));
        for (text, expected) in [
            ("claims.sub", Ok(vec!["ann"])),
            ("claims.roles.map(r, r.name)", Ok(vec!["dev", "ops"])),
            ("claims.email.split('@')[1]", Ok(vec!["example.com"])),
            ("claims.?team.orValue('')", Ok(vec![])),
            ("claims.none", Ok(vec![])),
            ("claims.exp - claims.nbf <= 100 ? 'short' : 'long'", Ok(vec!["short"])),
            ("claims.exp", outcome()),
            ("[1]", outcome()),
            ("claims.?team", outcome()),
            ("claims.sub + claims.exp", Err(MappingError::Evaluation(EvaluationError::Claims("f".into())))),
            (
                "claims.team",
                Err(MappingError::Evaluation(EvaluationError::NoSuchKey {
                    field: "f".into(),
                    key: "team".into(),
                })),
            ),
        ] {
            let expected = expected.map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(texts(text), expected, "{text}");
        }
        let mut mapping = Mapping::of_username("sub", "");
        mapping.username = Source::Expression(expression("claims.?name.orValue('')"));
        assert_eq!(mapping.user(&claims), Err(MappingError::NoName));
        mapping.username = Source::Expression(expression("claims.exp"));
        assert!(mapping.user(&claims).is_err(), "a number is no name");
    }

    #[test]
    fn rules_are_asked_about_claims_and_users() {
        let claims = json!({"sub": "system:ann", "hd": "example.com"});
        let refused = |text: &str, scope: Scope| {
            let mut mapping = Mapping::of_username("sub", "");
            let rule =
                Rule { expression: Expression::rule("f".into(), text, scope).unwrap(), message: "no".into() };
            match scope {
                Scope::Claims => mapping.claim_rules.push(rule),
                Scope::User => mapping.user_rules.push(rule),
            }
            mapping.user(&claims).err()
        };
        let no = Some(MappingError::Rule("no".into()));
        assert_eq!(refused("claims.hd == 'example.com'", Scope::Claims), None);
        assert_eq!(refused("claims.hd == 'example.org'", Scope::Claims), no);
        assert_eq!(refused("!user.username.startsWith('system:')", Scope::User), no);
        assert_eq!(refused("user.groups.all(g, g != 'system:masters')", Scope::User), None);
        let expensive = "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, \
             [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, \
             claims.sub.matches('.*a.*n.*')))))))";
        let why = refused(expensive, Scope::Claims).unwrap().to_string();
        assert!(why.contains("cost") || why.contains("budget"), "{why}");
    }
}
