//! The extenders of a file.

use super::ContentError;
use super::reader::{At, FieldError, Object, Problem};
use crate::extender::{Extender, Settings, Tls, Verbs};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long an extender may take if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest weight of the scores of an extender.
const MOST: i64 = 1_000_000_000;
/// How many extenders there may be.
const EXTENDERS: usize = 64;

pub(super) fn read(file: &Object<'_>) -> Result<Vec<Arc<Extender>>, ContentError> {
    let list = file.list("extenders")?;
    if list.len() > EXTENDERS {
        let why = format!("must have at most {EXTENDERS} items");
        return Err(file.at("extenders").invalid(why).into());
    }
    let (mut made, mut managed) = (Vec::new(), BTreeSet::new());
    for at in list {
        let settings = settings(&at)?;
        for (n, name) in settings.managed.iter().enumerate() {
            // Two extenders must not decide about one resource: as upstream.
            if !managed.insert(name.clone()) {
                let path = format!("{}.managedResources[{n}].name", at.path());
                return Err(FieldError { path, problem: Problem::Duplicate(name.clone()) }.into());
            }
        }
        if settings.verbs.bind.is_some() && made.iter().any(|e: &Arc<Extender>| e.binds()) {
            let problem = Problem::Forbidden("only one extender can implement bind");
            return Err(at.object()?.at("bindVerb").fails(problem).into());
        }
        let extender = Extender::new(settings)
            .map_err(|source| ContentError::Extender { path: at.path().to_owned(), source })?;
        made.push(Arc::new(extender));
    }
    Ok(made)
}

fn settings(at: &At<'_>) -> Result<Settings, FieldError> {
    let object = at.object()?;
    object.only(&[
        "urlPrefix",
        "filterVerb",
        "preemptVerb",
        "prioritizeVerb",
        "weight",
        "bindVerb",
        "enableHTTPS",
        // As the Policy has it.
        "enableHttps",
        "tlsConfig",
        "httpTimeout",
        "nodeCacheCapable",
        "managedResources",
        "ignorable",
    ])?;
    let url = object.required("urlPrefix")?;
    let https = object.bool("enableHTTPS")? || object.bool("enableHttps")?;
    let url = match url.split_once("://") {
        Some(("http", rest)) if https && !rest.is_empty() => {
            return Err(object.at("urlPrefix").invalid("must be an https URL with enableHTTPS"));
        }
        Some(("http" | "https", rest)) if !rest.is_empty() => url.to_owned(),
        Some(_) => return Err(object.at("urlPrefix").invalid("must be a URL with http or https")),
        None if https => format!("https://{url}"),
        None => format!("http://{url}"),
    };
    let verb = |name: &str| -> Result<Option<String>, FieldError> {
        Ok(object.text(name)?.filter(|verb| !verb.is_empty()).map(str::to_owned))
    };
    let verbs = Verbs {
        filter: verb("filterVerb")?,
        prioritize: verb("prioritizeVerb")?,
        preempt: verb("preemptVerb")?,
        bind: verb("bindVerb")?,
    };
    let weight = object.get("weight").map_or(Ok(0), |at| at.int_in(0, MOST))?;
    if verbs.prioritize.is_some() && weight == 0 {
        return Err(object.at("weight").invalid("must have a positive weight applied to it"));
    }
    let (managed, ignored) = managed(&object)?;
    let timeout = object.get("httpTimeout").map_or(Ok(TIMEOUT), |at| at.duration())?;
    Ok(Settings {
        url,
        verbs,
        weight,
        tls: object.get("tlsConfig").map(|at| tls(&at)).transpose()?.unwrap_or_default(),
        timeout: if timeout.is_zero() { TIMEOUT } else { timeout },
        node_cache_capable: object.bool("nodeCacheCapable")?,
        managed,
        ignored,
        ignorable: object.bool("ignorable")?,
    })
}

/// Names of managed resources, and those of them that the scheduler does not check.
fn managed(object: &Object<'_>) -> Result<(Vec<String>, Vec<String>), FieldError> {
    let (mut managed, mut ignored) = (Vec::<String>::new(), Vec::new());
    for at in object.list("managedResources")? {
        let entry = at.object()?;
        entry.only(&["name", "ignoredByScheduler"])?;
        let name = entry.at("name").qualified()?;
        let native =
            !name.contains('/') || name.split('/').next().is_some_and(|d| d.ends_with("kubernetes.io"));
        if native || name.starts_with("requests.") {
            return Err(entry.at("name").invalid("is an invalid extended resource name"));
        }
        if managed.iter().any(|known| known == name) {
            return Err(entry.at("name").fails(Problem::Duplicate(name.to_owned())));
        }
        managed.push(name.to_owned());
        if entry.bool("ignoredByScheduler")? {
            ignored.push(name.to_owned());
        }
    }
    Ok((managed, ignored))
}

fn tls(at: &At<'_>) -> Result<Tls, FieldError> {
    let object = at.object()?;
    object.only(&[
        "insecure",
        "serverName",
        "certFile",
        "keyFile",
        "caFile",
        "certData",
        "keyData",
        "caData",
    ])?;
    let data = |name: &str| -> Result<Option<Vec<u8>>, FieldError> {
        let Some(text) = object.text(name)? else { return Ok(None) };
        let decoded = STANDARD.decode(text).map_err(|error| object.at(name).invalid(error.to_string()))?;
        Ok(Some(decoded).filter(|bytes| !bytes.is_empty()))
    };
    let file = |name: &str| -> Result<Option<PathBuf>, FieldError> {
        Ok(object.text(name)?.filter(|path| !path.is_empty()).map(PathBuf::from))
    };
    Ok(Tls {
        insecure: object.bool("insecure")?,
        server_name: object.text("serverName")?.filter(|name| !name.is_empty()).map(str::to_owned),
        authority: (data("caData")?, file("caFile")?),
        certificate: (data("certData")?, file("certFile")?),
        key: (data("keyData")?, file("keyFile")?),
    })
}
