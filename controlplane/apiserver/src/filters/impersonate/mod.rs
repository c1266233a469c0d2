//! Impersonation: `Impersonate-*` headers. The authenticated user must be authorized for each part of the identity, and, in the
//! modes that hold only for certain requests, for this request as well ([`mode`]). A mode that does not allow it is no refusal:
//! the next is tried, and the verb `impersonate`, which holds for all requests, is the last.

// The user that the headers ask for.
mod wanted;
// Modes that only hold for certain requests.
mod mode;
// Permissions for the parts of an identity.
mod checks;

use crate::authz::Authorizer;
use crate::request_info::RequestInfo;
use checks::{Checks, implied_groups};
use coracle_client::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use coracle_proto::status::ApiError;
use http::HeaderMap;
use mode::Mode;

/// The user of a request that is made as somebody else.
#[derive(Debug)]
pub struct Impersonated {
    /// Who the request is made as.
    pub user: User,
    /// The verb of the mode that allows it; `None` where `impersonate` does.
    pub constraint: Option<&'static str>,
}

/// The impersonated user, if any. Removes the headers, so that backends do not see them.
pub async fn impersonate(
    authz: &dyn Authorizer,
    user: &User,
    request: &RequestInfo,
    headers: &mut HeaderMap,
) -> Result<Option<Impersonated>, ApiError> {
    let Some(wanted) = wanted::wanted(headers)? else { return Ok(None) };
    wanted::remove(headers);
    let mut first = None;
    for mode in Mode::ALL.into_iter().filter(|mode| mode.is_about(&wanted, user)) {
        match constrained(authz, user, request, &wanted, mode).await {
            Ok(()) => return Ok(Some(acting_as(wanted, Some(mode)))),
            Err(why) => first = first.or(Some(why)),
        }
    }
    match (Checks { authz, requestor: user, mode: None }).identity(&wanted).await {
        Ok(()) => Ok(Some(acting_as(wanted, None))),
        Err(why) => Err(first.unwrap_or(why)),
    }
}

/// Whether a mode allows the request as this user.
async fn constrained(
    authz: &dyn Authorizer,
    user: &User,
    request: &RequestInfo,
    wanted: &User,
    mode: Mode,
) -> Result<(), ApiError> {
    let requestor = mode.seen(user);
    let checks = Checks { authz, requestor: &requestor, mode: Some(mode) };
    checks.request(mode, request).await?;
    checks.identity(wanted).await
}

/// The user with the groups that follow from who it is.
fn acting_as(wanted: User, mode: Option<Mode>) -> Impersonated {
    let mut groups = implied_groups(&wanted, mode);
    let is_in = |group: &str| groups.iter().any(|other| other == group);
    if wanted.name == ANONYMOUS {
        if !is_in(UNAUTHENTICATED) {
            groups.push(UNAUTHENTICATED.into());
        }
    } else if !is_in(UNAUTHENTICATED) && !is_in(AUTHENTICATED) {
        groups.push(AUTHENTICATED.into());
    }
    Impersonated { user: User { groups, ..wanted }, constraint: mode.map(Mode::verb) }
}

#[cfg(test)]
mod tests;
