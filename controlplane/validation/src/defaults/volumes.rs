//! Defaults of volumes inside pods.

use super::volume_sources::source;
use super::{pull_policy, storage};
use coracle_fields::Edit;
use coracle_fields::core::v1::{DownwardAPIVolumeFile, Volume};

/// Octal 0644, the mode of files that come from the API.
const FILE_MODE: i32 = 0o644;

pub(super) fn volume(mut volume: Edit<'_, Volume>) {
    let sourceless = volume.view().erased().entries().all(|(name, value)| name == "name" || !value.is_set());
    if sourceless {
        volume.empty_dir().section();
    }
    if let Some(mut secret) = volume.secret().existing() {
        secret.default_mode().default(FILE_MODE);
    }
    if let Some(mut config) = volume.config_map().existing() {
        config.default_mode().default(FILE_MODE);
    }
    if let Some(mut downward) = volume.downward_api().existing() {
        downward.default_mode().default(FILE_MODE);
        downward.items().each_object(field_version);
    }
    if let Some(mut projected) = volume.projected().existing() {
        projected.default_mode().default(FILE_MODE);
        projected.sources().each_object(|mut source| {
            if let Some(mut token) = source.service_account_token().existing() {
                token.expiration_seconds().default(3600);
            }
            source.downward_api().items().each_object(field_version);
        });
    }
    if let Some(mut path) = volume.host_path().existing() {
        path.type_().default("");
    }
    if let Some(mut image) = volume.image().existing() {
        let policy = pull_policy(image.view().reference().text());
        image.pull_policy().default(policy);
    }
    if let Some(mut template) = volume.ephemeral().volume_claim_template().existing() {
        template.metadata().section();
        storage::claim_spec(template.spec().section());
    }
    source(volume);
}

fn field_version(mut item: Edit<'_, DownwardAPIVolumeFile>) {
    if let Some(mut field) = item.field_ref().existing() {
        field.api_version().default("v1");
    }
}
