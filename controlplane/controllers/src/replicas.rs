//! Creates and deletes pods of an owner, and records the Events.

use super::adoption;
use coracle_fields::core::v1;
use coracle_fields::meta::OwnerReference;
use coracle_fields::{Made, View, make};
use coracle_informer::informer::Name;
use coracle_informer::pod::Pod;
use coracle_informer::resource::Resource;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use futures::future::join_all;
use std::sync::Arc;

/// The owner's own kind, and pods.
#[derive(Clone)]
pub struct PodControl {
    /// The owner's kind.
    pub owners: Resource,
    /// Pods.
    pub pods: Resource,
    /// The finalizer that pods get when they are adopted, and lose when they are released.
    pub finalizer: Option<&'static str>,
}

/// The longest prefix of a generated name.
const PREFIX_LENGTH: usize = 57;

/// A pod of a template; the name is drawn from the owner's.
pub fn pod_of(
    template: View<'_, v1::PodTemplateSpec>,
    owner: &Object,
    reference: Made<OwnerReference>,
) -> Made<v1::Pod> {
    let meta = template.metadata();
    let prefix: String = owner.meta.name.chars().take(PREFIX_LENGTH).collect();
    make!(v1::Pod {
        metadata: {
            generate_name: format!("{prefix}-"),
            namespace: &owner.meta.namespace,
            labels: meta.labels(),
            annotations: meta.annotations(),
            finalizers: meta.finalizers(),
            owner_references: [reference],
        },
        spec: template.spec(),
    })
}

impl PodControl {
    /// The reference to an owner.
    pub fn reference(&self, owner: &Object) -> Made<OwnerReference> {
        adoption::reference(&self.owners.kind.api_version(), &self.owners.kind.kind, &owner.meta)
    }

    /// Creates one pod and tells of it.
    pub async fn create(&self, owner: &Object, pod: Made<v1::Pod>) -> Result<Arc<Object>, ApiError> {
        match self.pods.create(&owner.meta.namespace, pod).await {
            Ok(pod) => {
                self.owners.normal(owner, "SuccessfulCreate", format!("Created pod: {}", pod.meta.name));
                Ok(pod)
            }
            Err(error) => {
                if !error.is_namespace_terminating() {
                    self.owners.warn(owner, "FailedCreate", format!("Error creating: {error}"));
                }
                Err(error)
            }
        }
    }

    /// Creates pods in growing batches; after a batch with a failure no further one is begun. Returns how many were
    /// created, and the first failure.
    pub async fn create_all(
        &self,
        owner: &Object,
        pods: Vec<Made<v1::Pod>>,
    ) -> (usize, Result<(), ApiError>) {
        let mut rest = pods.into_iter();
        let mut created = 0;
        for size in batches(rest.len()) {
            let batch: Vec<Made<v1::Pod>> = rest.by_ref().take(size).collect();
            let results = join_all(batch.into_iter().map(|pod| self.create(owner, pod))).await;
            created += results.iter().filter(|r| r.is_ok()).count();
            if let Some(error) = results.into_iter().find_map(Result::err) {
                let ending = error.is_namespace_terminating();
                return (created, if ending { Ok(()) } else { Err(error) });
            }
        }
        (created, Ok(()))
    }

    /// Deletes one pod and tells of it.
    pub async fn delete(&self, owner: &Object, pod: &Object) -> Result<(), ApiError> {
        match self.pods.delete(pod).await {
            Ok(()) => {
                self.owners.normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.meta.name));
                Ok(())
            }
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => {
                self.owners.warn(owner, "FailedDelete", format!("Error deleting: {error}"));
                Err(error)
            }
        }
    }

    /// Deletes pods, all at once; returns the first failure.
    pub async fn delete_all(
        &self,
        owner: &Object,
        pods: impl IntoIterator<Item = &Object>,
    ) -> Result<(), ApiError> {
        let results = join_all(pods.into_iter().map(|pod| self.delete(owner, pod))).await;
        results.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    }

    /// Adopts matching orphans and releases pods that do not match any more; returns the pods of the owner.
    pub async fn claim(
        &self,
        owner: &Arc<Object>,
        selector: &coracle_informer::selector::Selector,
        pods: Vec<Arc<Pod>>,
    ) -> Result<Vec<Arc<Pod>>, ApiError> {
        let mut mine = Vec::with_capacity(pods.len());
        let mut alive = None;
        for pod in pods {
            match adoption::plan_adoption(&owner.meta, selector, &pod.object) {
                adoption::Adoption::Keep => mine.push(pod),
                adoption::Adoption::Ignore => {}
                adoption::Adoption::Release if pod.terminating() => {}
                adoption::Adoption::Release => {
                    adoption::release(&self.pods, &pod.object, &owner.meta.uid, self.finalizer).await?;
                }
                adoption::Adoption::Adopt if !pod.active() => {}
                adoption::Adoption::Adopt => {
                    // An owner that went away meanwhile must not get children.
                    if alive.is_none() {
                        let fresh = self.owners.fresh(&Name::of(owner)).await;
                        alive = Some(fresh.is_ok_and(|o| {
                            o.meta.uid == owner.meta.uid && o.meta.deletion_timestamp.is_none()
                        }));
                    }
                    if alive == Some(true) {
                        let reference = self.reference(owner);
                        match adoption::adopt(&self.pods, &pod.object, reference, self.finalizer).await {
                            Ok(object) => mine.push(Arc::new(Pod::read(&object))),
                            Err(error) if error.is_not_found() => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(mine)
    }
}

/// The sizes of the batches in which `count` creations go out: 1, 2, 4 …, so that a failure which would meet all is
/// met by few.
fn batches(count: usize) -> impl Iterator<Item = usize> {
    let mut left = count;
    let mut size = 1;
    std::iter::from_fn(move || {
        let batch = size.min(left);
        left -= batch;
        size *= 2;
        (batch > 0).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::batches;

    #[test]
    fn batches_double_and_add_up() {
        assert_eq!(batches(0).count(), 0);
        assert_eq!(batches(10).collect::<Vec<_>>(), [1, 2, 4, 3]);
        assert_eq!(batches(500).sum::<usize>(), 500);
    }
}
