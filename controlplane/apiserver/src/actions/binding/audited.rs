//! Binds pods in batches, with an audit event for each.

use super::batch::{bind_all, binding};
use super::bound;
use crate::api::Api;
use crate::audited_call::AuditedCall;
use crate::filters::audit::Audit;
use crate::run_action::Actions;
use crate::verb::Verb;
use coracle_client::options::WriteOptions;
use coracle_client::pipeline::{Placement, Target};
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use futures::future::join_all;

/// The same as [`bind_all`]. Each binding has options of its own, because admission adds annotations to its event; the store
/// still writes them together.
pub async fn bind_all_audited(
    audit: &Audit,
    actions: &Actions,
    api: &Api,
    (user, options): (&User, &WriteOptions),
    placements: &[Placement<'_>],
) -> Vec<Result<(), ApiError>> {
    let mut answered = Vec::new();
    for one in placements {
        answered.push(bind_audited(audit, actions, api, (user, options), one));
    }
    join_all(answered).await
}

async fn bind_audited(
    audit: &Audit,
    actions: &Actions,
    api: &Api,
    (user, options): (&User, &WriteOptions),
    one: &Placement<'_>,
) -> Result<(), ApiError> {
    let pods = api.objects.registry.resource("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
    let target = Target {
        user,
        kind: &pods,
        namespace: one.namespace,
        name: one.name,
        subresource: "binding",
        options,
        applied: false,
    };
    let call = AuditedCall::begin(audit, &Verb::Create, &target).await;
    call.sent(|| binding(one).to_string());
    let answers = bind_all(actions, api, user, call.target(&target).options, &[*one]).await;
    let answer = answers.into_iter().next().expect("a placement has an answer");
    call.ended(&answer, |()| bound()).await;
    answer
}
