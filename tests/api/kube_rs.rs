//! kube-rs: typed and dynamic objects, watches that resume, pages, apply conflicts, a lease that one of two holds.

use crate::on_both_stores;
use coracle_tests::server::Server;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::{Client, ResourceExt};
use serde_json::json;

fn run<F: Future<Output = anyhow::Result<()>>>(suite: impl Fn(Client) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    on_both_stores(|server| {
        runtime.block_on(async { suite(client(server).await).await }).unwrap();
    });
}

pub async fn client(server: &Server) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

pub fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": value}})).unwrap()
}

#[test]
fn typed_and_dynamic_objects_are_the_same_objects() {
    run(|client| async move {
        let typed: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let made = typed.create(&PostParams::default(), &config_map("one", "1")).await?;
        assert!(made.uid().is_some() && made.resource_version().is_some());
        let resource = ApiResource::erase::<ConfigMap>(&());
        let dynamic: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let mut seen = dynamic.get("one").await?;
        assert_eq!(seen.data["data"]["a"], "1");
        seen.data["data"]["a"] = json!("2");
        dynamic.replace("one", &PostParams::default(), &seen).await?;
        // The first reader's version is old by now.
        let stale = typed.replace("one", &PostParams::default(), &made).await.unwrap_err();
        assert!(matches!(stale, kube::Error::Api(ref status) if status.code == 409), "{stale}");
        let namespaces: Api<Namespace> = Api::all(client);
        let refused = namespaces.delete("default", &DeleteParams::default()).await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(ref status) if status.code == 403), "{refused}");
        Ok(())
    });
}

#[test]
fn a_watch_goes_on_where_it_was_cut() {
    run(|client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let version = api.list(&ListParams::default()).await?.metadata.resource_version.unwrap();
        let mut first = api.watch(&WatchParams::default(), &version).await?.boxed();
        api.create(&PostParams::default(), &config_map("before", "1")).await?;
        let WatchEvent::Added(seen) = first.try_next().await?.unwrap() else { panic!("not an addition") };
        drop(first);
        api.create(&PostParams::default(), &config_map("between", "1")).await?;
        api.delete("before", &DeleteParams::default()).await?;
        let mut second = api.watch(&WatchParams::default(), &seen.resource_version().unwrap()).await?.boxed();
        let WatchEvent::Added(next) = second.try_next().await?.unwrap() else { panic!("not an addition") };
        assert_eq!(next.name_any(), "between");
        let WatchEvent::Deleted(gone) = second.try_next().await?.unwrap() else { panic!("not a removal") };
        assert_eq!(gone.name_any(), "before");
        Ok(())
    });
}

#[test]
fn pages_are_cut_from_one_moment() {
    run(|client| async move {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        for i in 0..25 {
            api.create(&PostParams::default(), &config_map(&format!("p{i:02}"), "1")).await?;
        }
        let first = api.list(&ListParams::default().limit(10)).await?;
        let version = first.metadata.resource_version.clone();
        let left = first.metadata.remaining_item_count.unwrap();
        api.delete("p20", &DeleteParams::default()).await?;
        let mut names: Vec<String> = first.items.iter().map(ResourceExt::name_any).collect();
        let mut token = first.metadata.continue_.unwrap();
        let mut rest = 0;
        while !token.is_empty() {
            let page = api.list(&ListParams::default().limit(10).continue_token(&token)).await?;
            assert_eq!(page.metadata.resource_version, version);
            rest += page.items.len() as i64;
            names.extend(page.items.iter().map(ResourceExt::name_any));
            token = page.metadata.continue_.unwrap_or_default();
        }
        assert_eq!(rest, left);
        assert!(names.contains(&"p20".to_owned()), "it was there when the list began");
        Ok(())
    });
}

#[test]
fn apply_conflicts_name_the_other_manager() {
    run(|client| async move {
        let api: Api<Deployment> = Api::default_namespaced(client);
        let deployment = |replicas: i32| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {
                    "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
                },
            })
        };
        api.patch("web", &PatchParams::apply("one"), &Patch::Apply(deployment(1))).await?;
        let refused =
            api.patch("web", &PatchParams::apply("two"), &Patch::Apply(deployment(2))).await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("{refused}") };
        assert_eq!(status.code, 409);
        assert!(
            status.message.contains("conflict with \"one\"") && status.message.contains(".spec.replicas"),
            "{}",
            status.message
        );
        let forced =
            api.patch("web", &PatchParams::apply("two").force(), &Patch::Apply(deployment(2))).await?;
        assert_eq!(forced.spec.unwrap().replicas, Some(2));
        Ok(())
    });
}

#[test]
fn one_of_two_holds_the_lease() {
    run(|client| async move {
        let api: Api<Lease> = Api::default_namespaced(client);
        let lease: Lease = serde_json::from_value(
            json!({"metadata": {"name": "leader"}, "spec": {"leaseDurationSeconds": 15}}),
        )?;
        api.create(&PostParams::default(), &lease).await?;
        // Both read before either writes.
        let seen = api.get("leader").await?;
        let take = |who: &'static str| {
            let (api, mut lease) = (api.clone(), seen.clone());
            async move {
                lease.spec.get_or_insert_default().holder_identity = Some(who.into());
                api.replace("leader", &PostParams::default(), &lease).await
            }
        };
        let (a, b) = tokio::join!(take("a"), take("b"));
        assert_eq!([a.is_ok(), b.is_ok()].iter().filter(|won| **won).count(), 1, "exactly one wins");
        Ok(())
    });
}
