//! Options for authentication, authorization, audit and encryption. Flags that Kubernetes has too have its names.

use clap::Args;
use coracle_apiserver::authn::front_proxy::{self, FrontProxy, Headers};
use coracle_apiserver::filters::audit::webhook::Batches;
use coracle_proto::time::parse_duration;
use http::HeaderName;
use serde::Deserialize;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// An option that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum OptionError {
    /// An empty issuer.
    #[error("--service-account-issuer should not be an empty string")]
    NoIssuer,
    /// An issuer with a colon that is no URL.
    #[error("--service-account-issuer {0:?} contained a ':' but was not a valid URL without a query")]
    Issuer(String),
    /// An issuer that is named twice.
    #[error("--service-account-issuer {0:?} is already specified")]
    IssuerTwice(String),
    /// Half of a provider.
    #[error(
        "--oidc-issuer-url and --oidc-client-id must be specified together when any --oidc-* flags are set"
    )]
    Oidc,
    /// Providers in a file and in flags.
    #[error("--authentication-config and --oidc-* flags are mutually exclusive")]
    OidcTwice,
    /// A file for an authorizer that is not asked.
    #[error("cannot specify {flag} without mode {mode}")]
    NoMode {
        /// The file's flag.
        flag: &'static str,
        /// Who would read it.
        mode: &'static str,
    },
    /// An authorizer without its file.
    #[error("--authorization-mode {mode} needs {flag}")]
    NoFile {
        /// The authorizer.
        mode: &'static str,
        /// What it lacks.
        flag: &'static str,
    },
    /// Unknown authorizer.
    #[error("--authorization-mode {0:?} is not a valid mode")]
    Mode(String),
    /// An authorizer that is named twice.
    #[error("--authorization-mode {0:?} is specified more than once")]
    ModeTwice(String),
    /// Something in a list of headers or names that is none.
    #[error("{flag}: {value:?} is not a valid value")]
    Header {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
    },
    /// Headers of proxies without proxies.
    #[error("{0} needs --requestheader-client-ca-file")]
    NoProxyCa(&'static str),
    /// Aggregated API servers would not see the uids that this server sends.
    #[error("--requestheader-uid-headers must include the standard X-Remote-Uid header")]
    NoUidHeader,
    /// No time that events wait.
    #[error("--audit-webhook-batch-max-wait {0:?} is not a duration, such as 30s")]
    BatchWait(String),
    /// Batches for no webhook.
    #[error("--audit-webhook-batch-* flags need --audit-webhook-config-file")]
    NoAuditWebhook,
    /// The JWKS URI is no https URL.
    #[error("--service-account-jwks-uri requires https scheme, not {0:?}")]
    Jwks(String),
}

/// Who can decide what users may do.
const MODES: [&str; 6] = ["Node", "RBAC", "ABAC", "Webhook", "AlwaysAllow", "AlwaysDeny"];

macro_rules! options {
    ($($(#[$attribute:meta])* $name:ident : $type:ty),* $(,)?) => {
        /// Options about identity and policy.
        #[derive(Debug, Clone, Default, Args, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct Security {
            $($(#[$attribute])* pub $name: $type,)*
        }

        impl Security {
            /// Whether an option of the file is one of these.
            pub fn has(key: &str) -> bool {
                let plain = |text: &str| text.replace('_', "").to_lowercase();
                let known = [$(stringify!($name)),*];
                // Letters beyond the first of a word are small in both forms: nothing else differs.
                known.iter().any(|name| plain(name) == key.to_lowercase())
            }

            /// These options, with those of `file` for options that are not set.
            #[must_use]
            pub fn over(self, file: Self) -> Self {
                Self { $($name: Given::or(self.$name, file.$name),)* }
            }
        }
    };
}

/// Something that may have been left out.
trait Given: Sized {
    fn or(self, other: Self) -> Self;
}

impl<T> Given for Option<T> {
    fn or(self, other: Self) -> Self {
        Option::or(self, other)
    }
}

impl<T> Given for Vec<T> {
    fn or(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
    }
}

impl Given for bool {
    fn or(self, other: Self) -> Self {
        self || other
    }
}

options! {
    /// Authorizers, in order: Node, RBAC, ABAC, Webhook, AlwaysAllow, AlwaysDeny.
    #[arg(long, value_delimiter = ',')]
    authorization_mode: Vec<String>,
    /// File of ABAC policies, one per line.
    #[arg(long)]
    authorization_policy_file: Option<PathBuf>,
    /// Kubeconfig of the authorization webhook.
    #[arg(long)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// Accept requests without credentials as system:anonymous. Otherwise only health checks and the version are public.
    #[arg(long)]
    anonymous_auth: bool,
    /// File of bearer tokens: token,user,uid,"group,group".
    #[arg(long)]
    token_auth_file: Option<PathBuf>,
    /// File of passwords: password,user,uid,"group,group". Not recommended.
    #[arg(long)]
    basic_auth_file: Option<PathBuf>,
    /// Kubeconfig of the token authentication webhook.
    #[arg(long)]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// PEM file of further CAs whose client certificates are accepted, besides those of the cluster's own CA: the common name is
    /// the user, organizations are groups. Read again when it changes.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// PEM file of further CAs of front proxies, which name users in headers. Read again when it changes.
    #[arg(long)]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names of front proxies; any certificate of the front-proxy CAs if empty.
    #[arg(long, value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers in which proxies of --requestheader-client-ca-file name the user; X-Remote-User by default.
    #[arg(long, value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Headers of the user's uid; X-Remote-Uid by default.
    #[arg(long, value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Headers of the user's groups; X-Remote-Group by default.
    #[arg(long, value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Prefixes of headers with extra information about the user; X-Remote-Extra- by default.
    #[arg(long, value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
    /// File of kind AuthenticationConfiguration: OpenID Connect providers, and which requests need no credentials. Not with
    /// --oidc-* flags. Read again when it changes.
    #[arg(long)]
    authentication_config: Option<PathBuf>,
    /// URL of the OpenID Connect provider.
    #[arg(long)]
    oidc_issuer_url: Option<String>,
    /// Audience of the provider's tokens.
    #[arg(long)]
    oidc_client_id: Option<String>,
    /// Claim used as the user name; sub by default.
    #[arg(long)]
    oidc_username_claim: Option<String>,
    /// Prefix of user names; "-" for none.
    #[arg(long)]
    oidc_username_prefix: Option<String>,
    /// Claim used as the groups.
    #[arg(long)]
    oidc_groups_claim: Option<String>,
    /// Prefix of groups.
    #[arg(long)]
    oidc_groups_prefix: Option<String>,
    /// Required claims: key=value.
    #[arg(long)]
    oidc_required_claim: Vec<String>,
    /// Accepted signature algorithms; RS256 by default.
    #[arg(long, value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
    /// CA of the provider; the CAs of the system by default.
    #[arg(long)]
    oidc_ca_file: Option<PathBuf>,
    /// Issuer of service-account tokens, an https URL; https://kubernetes.default.svc.cluster.local by default. If given more
    /// than once, the first is used for new tokens and all are accepted.
    #[arg(long)]
    service_account_issuer: Vec<String>,
    /// URL of the JSON Web Key Set in the OpenID discovery document; on this server (see --advertise) by default.
    #[arg(long)]
    service_account_jwks_uri: Option<String>,
    /// Regular expressions of allowed CORS origins.
    #[arg(long, value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// Timeout of requests other than watches, in seconds; 60 by default.
    #[arg(long)]
    request_timeout_seconds: Option<u64>,
    /// Limit of concurrent read requests; 400 by default.
    #[arg(long)]
    max_requests_inflight: Option<usize>,
    /// Limit of concurrent mutating requests; 200 by default.
    #[arg(long)]
    max_mutating_requests_inflight: Option<usize>,
    /// Only limit concurrent requests, without API priority and fairness.
    #[arg(long)]
    disable_priority_and_fairness: bool,
    /// File of kind Policy: which requests are audited, and at which level.
    #[arg(long)]
    audit_policy_file: Option<PathBuf>,
    /// File of the audit log; "-" for standard output.
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Days to keep rotated audit logs; without limit by default.
    #[arg(long)]
    audit_log_maxage: Option<u64>,
    /// Number of rotated audit logs to keep; without limit by default.
    #[arg(long)]
    audit_log_maxbackup: Option<usize>,
    /// Size in megabytes at which the audit log is rotated; 100 by default.
    #[arg(long)]
    audit_log_maxsize: Option<u64>,
    /// Kubeconfig of the audit webhook.
    #[arg(long)]
    audit_webhook_config_file: Option<PathBuf>,
    /// Audit events that wait for the webhook; more are lost. 4096 by default.
    #[arg(long)]
    audit_webhook_batch_buffer_size: Option<NonZeroU32>,
    /// Number of audit events in a request to the webhook; 400 by default.
    #[arg(long)]
    audit_webhook_batch_max_size: Option<NonZeroU32>,
    /// How long an audit event waits for others of its request to the webhook; 1s by default.
    #[arg(long)]
    audit_webhook_batch_max_wait: Option<String>,
    /// File of kind EncryptionConfiguration: which resources are encrypted in the store, and how.
    #[arg(long)]
    encryption_provider_config: Option<PathBuf>,
    /// Nodes whose serving certificate is not verified, or * for all; for kubelets without serverTLSBootstrap. Connections to
    /// these nodes can be intercepted.
    #[arg(long, value_delimiter = ',')]
    insecure_kubelets: Vec<String>,
    /// Lifetime of the certificates of server, administrator and nodes, in seconds; a year by default.
    #[arg(long)]
    certificate_lifetime_seconds: Option<u64>,
}

impl Security {
    /// Lifetime of certificates.
    pub fn certificate_life(&self) -> Duration {
        self.certificate_lifetime_seconds.map_or(coracle_pki::USUAL_LIFE, Duration::from_secs)
    }

    /// Timeout of requests other than watches.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_seconds.unwrap_or(60).max(1))
    }

    /// Issuers of service-account tokens; an error if one is no valid issuer.
    pub fn issuers(&self) -> Result<Vec<String>, OptionError> {
        let all = &self.service_account_issuer;
        for (index, issuer) in all.iter().enumerate() {
            let url = issuer.parse::<http::Uri>();
            if issuer.is_empty() {
                return Err(OptionError::NoIssuer);
            }
            if issuer.contains(':') && url.map_or(true, |url| url.scheme().is_none() || url.query().is_some())
            {
                return Err(OptionError::Issuer(issuer.clone()));
            }
            if all[..index].contains(issuer) {
                return Err(OptionError::IssuerTwice(issuer.clone()));
            }
        }
        if let Some(uri) = &self.service_account_jwks_uri
            && !uri.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https"))
        {
            return Err(OptionError::Jwks(uri.clone()));
        }
        Ok(all.clone())
    }

    /// How events are sent to the audit webhook.
    pub fn audit_batches(&self) -> Result<Batches, OptionError> {
        let usual = Batches::default();
        let count = |given: Option<NonZeroU32>, usual: usize| {
            given.map_or(usual, |given| usize::try_from(given.get()).unwrap_or(usize::MAX))
        };
        let wait = match &self.audit_webhook_batch_max_wait {
            None => usual.wait,
            Some(text) => {
                let nanos = parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
                nanos.map(Duration::from_nanos).ok_or_else(|| OptionError::BatchWait(text.clone()))?
            }
        };
        let batches = Batches {
            buffer: count(self.audit_webhook_batch_buffer_size, usual.buffer),
            size: count(self.audit_webhook_batch_max_size, usual.size),
            wait,
        };
        match self.audit_webhook_config_file {
            None if batches != usual => Err(OptionError::NoAuditWebhook),
            _ => Ok(batches),
        }
    }

    /// Checks options that require or exclude each other.
    pub fn check(&self) -> Result<(), OptionError> {
        let said = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let any = self.oidc_issuer_url.is_some()
            || self.oidc_client_id.is_some()
            || self.oidc_username_claim.is_some()
            || self.oidc_username_prefix.is_some()
            || self.oidc_groups_claim.is_some()
            || self.oidc_groups_prefix.is_some()
            || !self.oidc_required_claim.is_empty()
            || !self.oidc_signing_algs.is_empty()
            || self.oidc_ca_file.is_some();
        if any && self.authentication_config.is_some() {
            return Err(OptionError::OidcTwice);
        }
        if any && !(said(&self.oidc_issuer_url) && said(&self.oidc_client_id)) {
            return Err(OptionError::Oidc);
        }
        let modes = self.modes();
        for (index, mode) in modes.iter().enumerate() {
            if !MODES.contains(&mode.as_str()) {
                return Err(OptionError::Mode(mode.clone()));
            }
            if modes[..index].contains(mode) {
                return Err(OptionError::ModeTwice(mode.clone()));
            }
        }
        for (mode, flag, file) in [
            ("ABAC", "--authorization-policy-file", &self.authorization_policy_file),
            ("Webhook", "--authorization-webhook-config-file", &self.authorization_webhook_config_file),
        ] {
            match (modes.iter().any(|one| one == mode), file) {
                (true, None) => return Err(OptionError::NoFile { mode, flag }),
                (false, Some(_)) => return Err(OptionError::NoMode { flag, mode }),
                _ => {}
            }
        }
        self.front_proxy()?;
        self.audit_batches()?;
        self.issuers().map(|_| ())
    }

    /// Which front proxies are trusted, and with which headers those of the operator's CA.
    pub fn front_proxy(&self) -> Result<FrontProxy, OptionError> {
        let usual = Headers::default();
        let [user, uid, group, extra] = [
            ("--requestheader-username-headers", &self.requestheader_username_headers),
            ("--requestheader-uid-headers", &self.requestheader_uid_headers),
            ("--requestheader-group-headers", &self.requestheader_group_headers),
            ("--requestheader-extra-headers-prefix", &self.requestheader_extra_headers_prefix),
        ];
        for (flag, given) in [user, uid, group, extra] {
            if !given.is_empty() && self.requestheader_client_ca_file.is_none() {
                return Err(OptionError::NoProxyCa(flag));
            }
        }
        let headers = Headers {
            user: header_names(user, usual.user)?,
            uid: header_names(uid, usual.uid)?,
            group: header_names(group, usual.group)?,
            extra: match extra.1.is_empty() {
                true => usual.extra,
                // A prefix is the beginning of a name, and has the same characters.
                false => header_names(extra, Vec::new())?.iter().map(ToString::to_string).collect(),
            },
        };
        if !headers.uid.iter().any(|name| name == front_proxy::UID) {
            return Err(OptionError::NoUidHeader);
        }
        let mut names = self.requestheader_allowed_names.clone();
        if let Some(name) = names.iter().find(|name| name.trim().is_empty()) {
            return Err(OptionError::Header { flag: "--requestheader-allowed-names", value: name.clone() });
        }
        // Servers of the cluster show it to each other and to aggregated API servers.
        let own = coracle_pki::FRONT_PROXY_CLIENT;
        if !names.is_empty() && !names.iter().any(|name| name == own) {
            names.push(own.to_owned());
        }
        Ok(FrontProxy { names, headers })
    }

    /// Warns of options with which a part of the server does not work.
    pub fn warn_of_missing_headers(&self) {
        for (flag, given, usual) in [
            ("--requestheader-username-headers", &self.requestheader_username_headers, front_proxy::USER),
            ("--requestheader-group-headers", &self.requestheader_group_headers, front_proxy::GROUP),
            (
                "--requestheader-extra-headers-prefix",
                &self.requestheader_extra_headers_prefix,
                front_proxy::EXTRA,
            ),
        ] {
            if !given.is_empty() && !given.iter().any(|name| name.trim().eq_ignore_ascii_case(usual)) {
                tracing::warn!(flag, missing = usual, "aggregated API servers will not know who asks");
            }
        }
    }

    /// Whether anonymous requests are accepted; never with mode AlwaysAllow, as in Kubernetes.
    pub fn anonymous(&self) -> bool {
        let everything = self.allows_everything();
        if self.anonymous_auth && everything {
            tracing::warn!("--anonymous-auth is off: it does not go together with mode AlwaysAllow");
        }
        self.anonymous_auth && !everything
    }

    /// Whether everybody may do everything.
    pub fn allows_everything(&self) -> bool {
        self.modes().iter().any(|mode| mode == "AlwaysAllow")
    }

    /// The authorizers in order.
    pub fn modes(&self) -> Vec<String> {
        if self.authorization_mode.is_empty() {
            return vec!["Node".into(), "RBAC".into()];
        }
        self.authorization_mode.clone()
    }
}

/// The names of a flag, or the usual ones.
fn header_names(
    (flag, given): (&'static str, &Vec<String>),
    usual: Vec<HeaderName>,
) -> Result<Vec<HeaderName>, OptionError> {
    if given.is_empty() {
        return Ok(usual);
    }
    let parse = |name: &String| {
        HeaderName::try_from(name.trim()).map_err(|_| OptionError::Header { flag, value: name.clone() })
    };
    given.iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let flags = Security { authorization_mode: vec!["RBAC".into()], ..Security::default() };
        let file = Security {
            authorization_mode: vec!["AlwaysAllow".into()],
            oidc_client_id: Some("x".into()),
            ..Security::default()
        };
        let both = flags.over(file);
        assert_eq!(both.modes(), ["RBAC"]);
        assert_eq!(both.oidc_client_id.as_deref(), Some("x"));
        assert_eq!(Security::default().modes(), ["Node", "RBAC"]);
    }

    #[test]
    fn options_that_need_each_other_come_together() {
        let none = Security::default;
        let text = || Some("x".to_owned());
        let modes = |modes: &[&str]| modes.iter().map(|mode| (*mode).to_owned()).collect::<Vec<_>>();
        let together = "must be specified together";
        for (options, expected) in [
            (none(), ""),
            (Security { oidc_issuer_url: text(), oidc_client_id: text(), ..none() }, ""),
            (Security { oidc_client_id: text(), ..none() }, together),
            (Security { oidc_issuer_url: text(), ..none() }, together),
            (Security { oidc_issuer_url: Some(String::new()), oidc_client_id: text(), ..none() }, together),
            (Security { oidc_groups_claim: text(), ..none() }, together),
            (Security { oidc_required_claim: vec!["a=b".into()], ..none() }, together),
            (Security { oidc_ca_file: Some("ca".into()), ..none() }, together),
            (Security { authentication_config: Some("f".into()), ..none() }, ""),
            (
                Security { authentication_config: Some("f".into()), oidc_groups_claim: text(), ..none() },
                "--authentication-config and --oidc-* flags are mutually exclusive",
            ),
            (
                Security { authorization_mode: modes(&["RBAC", "Nobody"]), ..none() },
                "\"Nobody\" is not a valid",
            ),
            (Security { authorization_mode: modes(&["RBAC", "RBAC"]), ..none() }, "more than once"),
            (
                Security { authorization_mode: modes(&["ABAC"]), ..none() },
                "ABAC needs --authorization-policy-file",
            ),
            (
                Security { authorization_policy_file: Some("p".into()), ..none() },
                "cannot specify --authorization-policy-file without mode ABAC",
            ),
            (
                Security { authorization_webhook_config_file: Some("w".into()), ..none() },
                "cannot specify --authorization-webhook-config-file without mode Webhook",
            ),
            (
                Security {
                    authorization_mode: modes(&["Webhook"]),
                    authorization_webhook_config_file: Some("w".into()),
                    ..none()
                },
                "",
            ),
        ] {
            let said = options.check().map_or_else(|error| error.to_string(), |()| String::new());
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{expected}: {said}");
        }
        let list = |names: &[&str]| modes(names);
        let proxied = || Security { requestheader_client_ca_file: Some("ca".into()), ..none() };
        for (options, expected) in [
            (Security { requestheader_username_headers: list(&["X-User"]), ..proxied() }, ""),
            (
                Security { requestheader_username_headers: list(&["X-User"]), ..none() },
                "--requestheader-username-headers needs --requestheader-client-ca-file",
            ),
            (
                Security { requestheader_group_headers: list(&["X-Team", " "]), ..proxied() },
                "--requestheader-group-headers: \" \" is not a valid value",
            ),
            (
                Security { requestheader_extra_headers_prefix: list(&["X More"]), ..proxied() },
                "--requestheader-extra-headers-prefix",
            ),
            (Security { requestheader_uid_headers: list(&["X-Id"]), ..proxied() }, "X-Remote-Uid"),
            (Security { requestheader_uid_headers: list(&["X-Id", "X-Remote-Uid"]), ..proxied() }, ""),
            (
                Security { requestheader_allowed_names: list(&[""]), ..none() },
                "--requestheader-allowed-names",
            ),
        ] {
            let said = options.check().map_or_else(|error| error.to_string(), |()| String::new());
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{expected}: {said}");
        }
        let names = |names: &[&str]| {
            let options = Security { requestheader_allowed_names: list(names), ..none() };
            options.front_proxy().map(|proxy| proxy.names).unwrap_or_default()
        };
        assert_eq!(names(&["front"]), ["front", "front-proxy-client"], "servers trust each other");
        assert!(names(&[]).is_empty(), "everybody of the authority");
        let open = Security { anonymous_auth: true, ..none() };
        assert!(open.anonymous() && !none().anonymous());
        assert!(!Security { authorization_mode: modes(&["AlwaysAllow"]), ..open }.anonymous());
    }

    #[test]
    fn batches_of_audit_events_are_those_of_the_options() {
        let with = |wait: &str| Security {
            audit_webhook_config_file: Some("w".into()),
            audit_webhook_batch_max_size: NonZeroU32::new(7),
            audit_webhook_batch_max_wait: Some(wait.to_owned()),
            ..Security::default()
        };
        let usual = Batches::default();
        assert_eq!(Security::default().audit_batches().ok(), Some(usual));
        let set = with("1m30s").audit_batches().ok();
        assert_eq!(set, Some(Batches { size: 7, wait: Duration::from_secs(90), ..usual }));
        for (options, why) in [
            (with("soon"), "--audit-webhook-batch-max-wait \"soon\" is not a duration"),
            (with("-1s"), "--audit-webhook-batch-max-wait \"-1s\" is not a duration"),
            (Security { audit_webhook_config_file: None, ..with("1s") }, "need --audit-webhook-config-file"),
        ] {
            let said = options.check().map_or_else(|error| error.to_string(), |()| String::new());
            assert!(said.contains(why), "{said}");
        }
        let file: Security =
            serde_json::from_str(r#"{"auditWebhookBatchBufferSize":9,"auditWebhookConfigFile":"w"}"#)
                .unwrap_or_default();
        assert_eq!(file.audit_batches().ok(), Some(Batches { buffer: 9, ..usual }));
        assert!(Security::has("auditWebhookBatchMaxWait"));
    }

    #[test]
    fn issuers_are_urls_or_plain_names() {
        let with = |issuers: &[&str], keys: Option<&str>| Security {
            service_account_issuer: issuers.iter().map(|issuer| (*issuer).to_owned()).collect(),
            service_account_jwks_uri: keys.map(str::to_owned),
            ..Security::default()
        };
        for (issuers, keys, why) in [
            (&[][..], None, ""),
            (&["https://id.example.com/a", "old"], Some("https://keys.example.com/jwks"), ""),
            (&[""], None, "empty"),
            (&["https://"], None, "was not a valid URL"),
            (&["a:b:c"], None, "was not a valid URL"),
            (&["https://a?b"], None, "without a query"),
            (&["https://a", "https://a"], None, "already specified"),
            (&[], Some("http://keys.example.com"), "requires https scheme"),
        ] {
            let said =
                with(issuers, keys).issuers().map_or_else(|error| error.to_string(), |_| String::new());
            assert_eq!(said.is_empty(), why.is_empty(), "{issuers:?}: {said}");
            assert!(said.contains(why), "{issuers:?}: {said}");
        }
    }
}
