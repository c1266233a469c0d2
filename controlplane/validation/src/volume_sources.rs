//! Sources of volumes that pods and PersistentVolumes have in common, and the rules for their fields.

use super::field_ref::{Field, FieldRef, reported_at};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::pods::no_backsteps;
use coracle_fields::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, FCVolumeSource, FlockerVolumeSource,
    GCEPersistentDiskVolumeSource, HostPathVolumeSource, NFSVolumeSource, QuobyteVolumeSource,
};
use coracle_fields::{Int32, Map, Text};
use coracle_proto::names::{dns1123_label, range_error};

/// Why an object has no second source.
pub(super) const ONE_SOURCE: &str = "may not specify more than 1 volume type";
/// What is said of a volume without a source.
pub(super) const NO_SOURCE: &str = "must specify a volume type";
/// What is said of the name of a volume that an iSCSI initiator is named after.
pub(super) const LONG_INITIATOR: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";

const HOST_PORTS: &str = "must be a host:port pair or multiple pairs separated by commas";
/// How many pairs of a registry are reported: each error has the whole text.
const MOST_PAIRS: usize = 16;
const DISK: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";

/// Fields that must not be empty.
pub(super) fn filled<T, const N: usize>(fields: [Field<'_, T>; N]) {
    for field in fields {
        if field.is_empty() {
            field.required("");
        }
    }
}

/// A path on the host.
pub(super) fn host_path(source: &Field<'_, HostPathVolumeSource>) {
    let path = source.path();
    if !path.has_text("") {
        return;
    }
    if !no_backsteps(path.text()) {
        path.invalid("must not contain '..'");
    }
    if source.type_().is_set() {
        source.type_().one_of(&[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ]);
    }
}

pub(super) fn nfs(source: &Field<'_, NFSVolumeSource>) {
    filled([source.server(), source.path()]);
    let path = source.path();
    if !path.text().starts_with('/') {
        path.invalid_as(path.text(), "must be an absolute path");
    }
}

/// A disk of GCE, which upstream reports with another path.
pub(super) fn gce(source: &Field<'_, GCEPersistentDiskVolumeSource>, place: &FieldRef<'_>) {
    let source = reported_at(source, &place.below("persistentDisk"));
    filled([source.pd_name()]);
    partition(&source.partition());
}

pub(super) fn aws(source: &Field<'_, AWSElasticBlockStoreVolumeSource>) {
    filled([source.volume_id()]);
    partition(&source.partition());
}

/// Zero is the whole disk.
fn partition(partition: &Field<'_, Int32>) {
    if partition.int().is_some_and(|number| !(0..=255).contains(&number)) {
        partition.invalid(range_error(1, 255));
    }
}

pub(super) fn flocker(source: &Field<'_, FlockerVolumeSource>) {
    let (name, id) = (source.dataset_name(), source.dataset_uuid());
    match (name.is_empty(), id.is_empty()) {
        (true, true) => source.required("one of datasetName and datasetUUID is required"),
        (false, false) => {
            source.invalid_as("resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        _ => {}
    }
    if name.text().contains('/') {
        name.invalid("must not contain '/'");
    }
}

pub(super) fn quobyte(source: &Field<'_, QuobyteVolumeSource>) {
    let (registry, tenant) = (source.registry(), source.tenant());
    if registry.has_text(HOST_PORTS) {
        if tenant.text().len() >= 65 {
            tenant.required("must be a UUID and may not exceed a length of 64 characters");
        } else {
            let wrong = registry.text().split(',').filter(|pair| !is_host_port(pair));
            wrong.take(MOST_PAIRS).for_each(|_| registry.invalid(HOST_PORTS));
        }
    }
    filled([source.volume()]);
}

/// Whether the text is `host:port` as Go splits it: an IPv6 address stands in brackets.
fn is_host_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host = match host.strip_prefix('[') {
        Some(inner) => match inner.strip_suffix(']') {
            Some(address) => address,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

pub(super) fn fibre_channel(source: &Field<'_, FCVolumeSource>) {
    let (targets, ids, lun) = (source.target_wwns(), source.wwids(), source.lun());
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => targets.required("must specify either targetWWNs or wwids, but not both"),
        (false, false) => targets.invalid("targetWWNs and wwids can not be specified simultaneously"),
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    if lun.is_set() {
        lun.in_range(0, 255);
    } else {
        lun.required("lun is required if targetWWNs is specified");
    }
}

pub(super) fn azure_disk(source: &Field<'_, AzureDiskVolumeSource>) {
    let (uri, kind) = (source.disk_uri(), source.kind());
    filled([source.disk_name(), source.disk_uri()]);
    if source.caching_mode().is_set() {
        source.caching_mode().one_of(&["None", "ReadOnly", "ReadWrite"]);
    }
    if !kind.is_set() {
        return;
    }
    kind.one_of(&["Dedicated", "Managed", "Shared"]);
    let (begin, form) = if kind.text() == "Managed" { ("/subscriptions/", DISK) } else { ("https://", BLOB) };
    if !uri.text().starts_with(begin) {
        uri.unsupported(&[form]);
    }
}

/// Options of a flex volume: names of Kubernetes are reserved.
pub(super) fn flex_options(options: &Field<'_, Map<Text>>) {
    for (key, value) in options.entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let domain = format!(".{}", namespace.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            value.invalid_as(key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

/// The name and the namespace of a StorageOS volume.
pub(super) fn storageos(name: &Field<'_, Text>, namespace: &Field<'_, Text>) {
    name.named(dns1123_label);
    if !namespace.is_empty() {
        namespace.follows(dns1123_label);
    }
}

/// The name of an iSCSI target or initiator; `unknown` is said of one that is of no known kind.
pub(super) fn iscsi_name(field: &Field<'_, Text>, unknown: &str) {
    let text = field.text();
    let fits = match text.get(..3) {
        Some("iqn") => has_qualified_name(text),
        Some("eui") => is_number(text, 16),
        Some("naa") => is_number(text, 32),
        _ => return field.invalid(unknown),
    };
    if !fits {
        field.invalid("must be valid format");
    }
}

/// Whether the text ends with `iqn.YYYY-MM.DOMAIN:NAME`. Looks at each part between colons once: the text may be long.
fn has_qualified_name(text: &str) -> bool {
    let is_reserved = |c: char| matches!(c, ',' | ';' | '*' | '&' | '$' | '|') || c.is_ascii_whitespace();
    let end = text.rsplit(is_reserved).next().unwrap_or_default();
    // The last colon divides nothing if no name follows.
    let Some((authorities, _)) = end.strip_suffix(':').unwrap_or(end).rsplit_once(':') else { return false };
    authorities.split(':').any(is_authority)
}

/// Whether the text ends with `iqn.YYYY-MM.DOMAIN`.
fn is_authority(text: &str) -> bool {
    let before = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    let end = &text[before.len()..];
    end.match_indices("iqn.").any(|(at, found)| is_dated(&end[at + found.len()..]))
}

/// Whether the text is `YYYY-MM.` and more.
fn is_dated(text: &str) -> bool {
    let fits = |(byte, form): (u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == *form };
    text.len() > 8 && text.bytes().zip(b"0000-00.").all(fits)
}

/// A prefix of three letters, any character, and as many letters and digits.
fn is_number(text: &str, digits: usize) -> bool {
    let mut rest = text.chars().skip(3);
    rest.next().is_some_and(|separator| separator != '\n')
        && rest.clone().count() == digits
        && rest.all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_iscsi() {
        for (name, fits) in [
            ("iqn.2001-04.com.example:storage.kube.sys1.xyz", true),
            ("iqn.2001-04.com.example:storage:a", true),
            ("iqn.2001-04.com.example::", true),
            ("iqn.x iqn.iqn.2001-04.com.example:a", true),
            ("iqn.2001-04.com.example", false),
            ("iqn.2001-04.com.example:", false),
            ("iqn.2001-04.com.example:a b", false),
            ("iqn.2001-04.com.example: ", false),
            ("iqn.2001-04.com.example:a b:c", false),
            ("iqn.2001-4.com.example:a", false),
            ("iqn.2001-04.com_example:a", false),
            ("iqn.2001-04.:a", false),
            ("iqn", false),
        ] {
            assert_eq!(has_qualified_name(name), fits, "{name}");
        }
        let long = "iqn.2001-04.".repeat(1 << 17);
        assert!(!has_qualified_name(&long) && has_qualified_name(&format!("{long}x:a")));
        assert!(is_number("eui.0123456789ABCDEF", 16));
        assert!(!is_number("eui.0123456789ABCDE", 16) && !is_number("eui.0123456789ABCDE-", 16));
    }

    #[test]
    fn hosts_with_ports() {
        for (text, fits) in [
            ("a:1", true),
            ("[::1]:1", true),
            (":", true),
            ("a", false),
            ("::1", false),
            ("[::1]", false),
            ("a]:1", false),
        ] {
            assert_eq!(is_host_port(text), fits, "{text}");
        }
    }
}
