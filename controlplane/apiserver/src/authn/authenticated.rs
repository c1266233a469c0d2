//! The owner of a token.

use coracle_client::user::User;

/// Who a token belongs to, and whom it may be shown to.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// The user.
    pub user: User,
    /// The token's audiences; none when it names none, and so is for this server only.
    pub audiences: Vec<String>,
}

impl Authenticated {
    /// The owner of a token that is for this server.
    pub fn for_this_server(user: User) -> Self {
        Self { user, audiences: Vec::new() }
    }
}
