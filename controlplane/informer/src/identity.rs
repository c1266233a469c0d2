//! Identities of controllers, with the names of Kubernetes: admission plugins, policies and webhooks match them.

use coracle_client::Client;
use coracle_client::user::User;

/// The user of a controller's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// A service account in `kube-system`.
    Service(&'static str),
    /// The user `system:kube-controller-manager`.
    ControllerManager,
    /// The API server: Kubernetes runs some controllers in it.
    Server,
}

/// How others see a controller. A name converts to the identity of a service account that is also the source of the Events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The user of its requests.
    pub account: Account,
    /// The source of its Events.
    pub events: &'static str,
    /// Its name in `managedFields`, if not the usual one of the account.
    manager: Option<&'static str>,
}

impl Identity {
    /// The service account `name`, whose Events have this name as their source.
    pub const fn of(name: &'static str) -> Self {
        Self { account: Account::Service(name), events: name, manager: None }
    }

    /// A controller without a service account of its own; `events` is the source of its Events.
    pub const fn without_account(account: Account, events: &'static str) -> Self {
        Self { account, events, manager: None }
    }

    /// The same with another source of Events.
    #[must_use]
    pub const fn with_events(self, events: &'static str) -> Self {
        Self { events, ..self }
    }

    /// The same with another name in `managedFields`.
    #[must_use]
    pub const fn with_manager(self, manager: &'static str) -> Self {
        Self { manager: Some(manager), ..self }
    }

    /// A client of the same server with this identity.
    pub fn client(self, client: &Client) -> Client {
        let client = match self.account {
            Account::Service(name) => client.controller(name),
            Account::ControllerManager => client.acting_as(User::new("system:kube-controller-manager", [])),
            Account::Server => client.acting_as(User::server()),
        };
        match self.manager {
            Some(manager) => client.managing_as(manager),
            None => client,
        }
    }
}

impl From<&'static str> for Identity {
    fn from(name: &'static str) -> Self {
        Self::of(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_testing::Cluster;
    use serde_json::json;

    #[tokio::test(flavor = "multi_thread")]
    async fn fields_are_managed_by_the_names_of_kubernetes() {
        let cluster = Cluster::bare().await;
        let aggregation = Identity::of("clusterrole-aggregation-controller");
        let cases = [
            (Identity::of("daemon-set-controller"), "kube-controller-manager"),
            (Identity::without_account(Account::ControllerManager, "x"), "kube-controller-manager"),
            (Identity::without_account(Account::Server, "x"), "kube-apiserver"),
            (
                aggregation.with_manager("clusterrole-aggregation-controller"),
                "clusterrole-aggregation-controller",
            ),
        ];
        for (at, (identity, manager)) in cases.into_iter().enumerate() {
            let client = identity.client(&cluster.client);
            let map = json!({"metadata": {"name": format!("map-{at}")}, "data": {"key": "value"}});
            let made = client.create(&client.kind("", "configmaps"), "default", map).await;
            let made = made.unwrap_or_else(|e| panic!("{identity:?}: {e}")).value();
            assert_eq!(made["metadata"]["managedFields"][0]["manager"], manager, "{identity:?}");
        }
    }
}
