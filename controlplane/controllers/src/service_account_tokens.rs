//! Secrets of the type `kubernetes.io/service-account-token`: filled with a token that does not expire, and deleted with their
//! service account.

use crate::root_ca::RootCa;
use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_fields::core::v1::Secret;
use coracle_fields::{Made, Schema as _, View};
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_pki::service_account::{Keys, LegacyClaims, TOKEN_SECRET, TokenError};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

const NAME: &str = "tokens-controller";
const IDENTITY: Identity = Identity::without_account(Account::ControllerManager, NAME);
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

struct Tokens {
    secrets: Resource,
    accounts: Resource,
    keys: Arc<Keys>,
    ca: RootCa,
}

/// Starts the controller; `ca` is what Secrets get besides the token.
pub fn start(setup: &mut Setup<'_>, keys: Arc<Keys>, ca: RootCa) {
    let secrets = setup.resource(IDENTITY, "", "secrets");
    let accounts = setup.resource(IDENTITY, "", "serviceaccounts");
    let mut handlers = setup.enqueue_on_change(&secrets);
    let all = secrets.cache.clone();
    handlers.on_change(&accounts.kind, &accounts.cache, move |change, add| {
        let (Some(account), None) = (change.old, change.new) else { return };
        let here = all.list(Some(&account.meta.namespace));
        let its = here.iter().filter(|secret| is_token_of(secret.doc().view(), &account.meta.name));
        its.for_each(|secret| add(Name::of(secret)));
    });
    let queue = handlers.queue.clone();
    let parts = (ca.clone(), secrets.cache.clone(), queue.clone());
    setup.spawn("CA of token Secrets", move || {
        let (ca, secrets, queue) = parts.clone();
        ca.on_change(move || {
            let all = secrets.list(None);
            let tokens = all.iter().filter(|secret| secret.doc().view::<Secret>().type_() == TOKEN_SECRET);
            tokens.for_each(|secret| queue.add(Name::of(secret)));
        })
    });
    setup.run(Tokens { secrets, accounts, keys, ca }, &queue, 1);
}

fn is_token_of(secret: View<'_, Secret>, account: &str) -> bool {
    secret.type_() == TOKEN_SECRET && secret.metadata().annotations().key(ACCOUNT) == account
}

/// The secret with what it lacks; nothing when it lacks nothing.
fn plan_fill(
    secret: &Value,
    account: &Object,
    ca: &str,
    sign: impl FnOnce(&LegacyClaims) -> Result<String, TokenError>,
) -> Result<Option<Value>, TokenError> {
    let old = Secret::of(secret);
    let has = |key: &str| old.data().key(key).filled().is_some();
    let certificate = STANDARD.encode(ca);
    let stale = !ca.is_empty() && old.data().key("ca.crt") != certificate;
    if !stale && has("namespace") && has("token") {
        return Ok(None);
    }
    let mut filled = Made::<Secret>::new(secret.clone());
    if stale {
        filled.edit().data().insert("ca.crt", certificate);
    }
    if !has("namespace") {
        filled.edit().data().insert("namespace", STANDARD.encode(&account.meta.namespace));
    }
    if !has("token") {
        let name = old.metadata().name().text();
        let claims = LegacyClaims::new(&account.meta.namespace, &account.meta.name, &account.meta.uid, name);
        filled.edit().data().insert("token", STANDARD.encode(sign(&claims)?));
    }
    filled.edit().metadata().annotations().insert(ACCOUNT_UID, &account.meta.uid);
    Ok(Some(filled.into_value()))
}

#[async_trait]
impl Controller for Tokens {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let secret = self.secrets.get(name).filter(|secret| secret.meta.deletion_timestamp.is_none());
        let Some(secret) = secret else { return Ok(Requeue::No) };
        let value = secret.value();
        let annotations = Secret::of(&value).metadata().annotations();
        let owner = annotations.key(ACCOUNT).text();
        if Secret::of(&value).type_() != TOKEN_SECRET || owner.is_empty() {
            return Ok(Requeue::No);
        }
        let uid = annotations.key(ACCOUNT_UID).text();
        let account = match self.accounts.fresh(&Name::new(&name.namespace, owner)).await {
            Ok(account) => Some(account).filter(|account| uid.is_empty() || uid == account.meta.uid),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let Some(account) = account else {
            self.secrets.delete(&secret).await?;
            return Ok(Requeue::No);
        };
        let filled = plan_fill(&value, &account, &self.ca.pem(), |claims| self.keys.sign(claims));
        if let Some(filled) = filled.map_err(Failure::of)? {
            self.secrets.update(filled).await?;
        }
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn a_secret_gets_what_it_lacks_and_no_more() {
        let account = object(json!({"metadata": {"name": "bot", "namespace": "d", "uid": "u"}}));
        let secret =
            json!({"metadata": {"name": "s", "annotations": {ACCOUNT: "bot"}}, "type": TOKEN_SECRET});
        let sign = |claims: &LegacyClaims| Ok(format!("signed {}", claims.sub));
        let filled = plan_fill(&secret, &account, "PEM", sign).unwrap_or_default().unwrap_or_default();
        let data = |key: &str| filled["data"][key].as_str().and_then(|text| STANDARD.decode(text).ok());
        assert_eq!(data("token"), Some(b"signed system:serviceaccount:d:bot".to_vec()));
        assert_eq!((data("ca.crt"), data("namespace")), (Some(b"PEM".to_vec()), Some(b"d".to_vec())));
        assert_eq!(filled["metadata"]["annotations"][ACCOUNT_UID], "u");
        let again = |ca: &str| plan_fill(&filled, &account, ca, |_| Err(TokenError::Subject));
        assert!(matches!(again("PEM"), Ok(None)), "not signed again");
        assert!(again("new").is_ok_and(|filled| filled.is_some()), "another authority");
    }
}
