//! Options of the server: flags, or a YAML file with the same names; flags win.

use crate::backup::options::{BackupError, ScheduleArgs, Scheduled};
use crate::datastore_args::{DatastoreArgs, EtcdPorts};
use crate::explain::options::{Recording, RecordingArgs, RecordingError};
use crate::flags;
use crate::join::{JoinArgs, JoinOptions, JoinOptionsError};
use crate::node_eviction::{NodeEvictionArgs, NodeEvictionError};
use crate::runtime_config::{RuntimeConfig, RuntimeConfigError};
use crate::security::Security;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use coracle_apiserver::service_ranges::{RangeError, ServiceRanges};
use coracle_cli::feature_gates::{self, GateErrors, Gates, Switches};
use coracle_cli::log::LogArgs;
use coracle_cli::yaml::YamlError;
use coracle_cli::{closest, config_file};
use coracle_controllers::event_expiry::EventTtl;
use coracle_controllers::nodes::ranges::{self, NotARange};
use coracle_controllers::nodes::zones::Rates;
use coracle_kinds::registry::features::Features;
use coracle_proto::time::parse_duration;
use coracle_store::{Datastore, DatastoreError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Default address range of Services.
pub const SERVICE_CIDR: &str = "10.96.0.0/16";

/// Options of `coracle server`.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// Directory for state, keys and the admin kubeconfig.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle")]
    data_dir: PathBuf,
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "0.0.0.0:6443")]
    bind: SocketAddr,
    /// YAML file with any of these options.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address or name that clients and nodes use for this server; the bound address by default, or 127.0.0.1 if it listens on all.
    /// Pods do not reach the API at a loopback address.
    #[arg(long)]
    advertise: Option<String>,
    /// Additional names and addresses in the serving certificate.
    #[arg(long, value_delimiter = ',')]
    tls_san: Vec<String>,
    /// Address range of Services.
    #[arg(long, default_value = SERVICE_CIDR)]
    service_cidr: String,
    /// Address range of pods; every node gets a part of it.
    #[arg(long, default_value = "10.244.0.0/16")]
    cluster_cidr: String,
    /// Admission plugins to enable besides the default ones, by name.
    #[arg(long, value_delimiter = ',')]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable, by name.
    #[arg(long, value_delimiter = ',')]
    disable_admission_plugins: Vec<String>,
    /// File of kind AdmissionConfiguration with settings of admission plugins.
    #[arg(long)]
    admission_control_config_file: Option<PathBuf>,
    /// Feature gates of Kubernetes, such as MaxUnavailableStatefulSet=true; docs/feature-gates.md lists them.
    #[arg(long, value_delimiter = ',')]
    feature_gates: Vec<String>,
    /// Older API versions to serve, such as networking.k8s.io/v1beta1=true or api/beta=true; docs/api-versions.md lists them.
    #[arg(long, value_delimiter = ',')]
    runtime_config: Vec<String>,
    /// File of kind KubeSchedulerConfiguration with profiles, plugins and extenders of the scheduler; docs/scheduler.md.
    #[arg(long)]
    scheduler_config: Option<PathBuf>,
    /// File of kind Policy with predicates and priorities, as older schedulers had it; not with --scheduler-config.
    #[arg(long)]
    policy_config_file: Option<PathBuf>,
    /// Directory of manifests that the server applies, and removes from the cluster when they go; docs/howto/manifests.md.
    #[arg(long, value_name = "DIR")]
    manifests: Option<PathBuf>,
    /// How long Events are kept after they were written last, 1h by default; a controller deletes them, so not with --api-only.
    #[arg(long)]
    event_ttl: Option<String>,
    /// Run only the API server, without scheduler and controllers.
    #[arg(long)]
    api_only: bool,
    /// With `--datastore etcd`, on a stopped server whose cluster has lost its majority: make this server's member the only
    /// one of the cluster, with its data, and exit. Only on the command line.
    #[arg(long)]
    cluster_reset: bool,
    /// Start on an empty datastore although the data directory belongs to a cluster: begin an empty cluster with the same keys,
    /// in which nodes end the pods of the old one. Only on the command line.
    #[arg(long)]
    allow_empty_datastore: bool,
    /// Level and format of the log.
    #[command(flatten, next_help_heading = "Log")]
    log: LogArgs,
    /// The store of the cluster.
    #[command(flatten, next_help_heading = "Datastore")]
    datastore: DatastoreArgs,
    /// How fast pods are evicted from nodes that have failed.
    #[command(flatten, next_help_heading = "Node eviction")]
    node_eviction: NodeEvictionArgs,
    /// Joining a cluster that has servers.
    #[command(flatten, next_help_heading = "Joining")]
    join: JoinArgs,
    /// Backups that the server makes.
    #[command(flatten, next_help_heading = "Backups")]
    backup: ScheduleArgs,
    /// Authentication, authorization, audit and encryption.
    #[command(flatten, next_help_heading = "Identity and policy")]
    security: Security,
    /// Recording and export of spans.
    #[command(flatten, next_help_heading = "Tracing")]
    recording: RecordingArgs,
}

/// Options for one start: a variable or a file would repeat them at every one.
const ONCE: [&str; 2] = ["cluster-reset", "allow-empty-datastore"];

/// Whether a name in the file is that of such an option.
fn is_for_once(name: &str) -> bool {
    ONCE.iter().any(|long| config_file::key(long) == name)
}

/// The command with a variable for every option that is not for one start.
pub fn with_variables(command: clap::Command) -> clap::Command {
    coracle_cli::environment::with_variables(command, "CORACLE_SERVER_", &ONCE)
}

/// Options in the file: the names of the flags, without nesting.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "serde_json::Map<String, serde_json::Value>")]
struct File {
    plain: Plain,
    log: LogArgs,
    datastore: DatastoreArgs,
    node_eviction: NodeEvictionArgs,
    join: JoinArgs,
    backup: ScheduleArgs,
    security: Security,
    recording: RecordingArgs,
}

impl TryFrom<serde_json::Map<String, serde_json::Value>> for File {
    type Error = serde_json::Error;

    fn try_from(all: serde_json::Map<String, serde_json::Value>) -> Result<Self, Self::Error> {
        type Options = serde_json::Map<String, serde_json::Value>;
        // The types below know only a part of the options each.
        let known = config_file::keys(&ServerArgs::augment_args(clap::Command::new("server")));
        if let Some(name) = all.keys().find(|name| !known.contains(*name)) {
            let usable = known.iter().map(String::as_str).filter(|key| !is_for_once(key));
            let similar = closest::suggestion(name, usable);
            return Err(serde::de::Error::custom(format!(
                "unknown field `{name}`{similar}; `coracle server --help` lists all options, such as tlsSan for --tls-san"
            )));
        }
        let (security, rest): (Options, Options) = all.into_iter().partition(|(key, _)| Security::has(key));
        let (recording, rest): (Options, Options) =
            rest.into_iter().partition(|(key, _)| RecordingArgs::has(key));
        let (datastore, rest): (Options, Options) =
            rest.into_iter().partition(|(key, _)| DatastoreArgs::has(key));
        let (log, rest): (Options, Options) = rest.into_iter().partition(|(key, _)| LogArgs::has(key));
        let (join, rest): (Options, Options) = rest.into_iter().partition(|(key, _)| JoinArgs::has(key));
        let (node_eviction, rest): (Options, Options) =
            rest.into_iter().partition(|(key, _)| NodeEvictionArgs::has(key));
        let (backup, plain): (Options, Options) =
            rest.into_iter().partition(|(key, _)| ScheduleArgs::has(key));
        Ok(Self {
            log: part(log)?,
            join: part(join)?,
            backup: part(backup)?,
            node_eviction: part(node_eviction)?,
            datastore: part(datastore)?,
            plain: part(plain)?,
            security: part(security)?,
            recording: part(recording)?,
        })
    }
}

/// A part of the options of the file. An error names the option, which the message of its type does not.
fn part<T: DeserializeOwned>(options: Map<String, Value>) -> Result<T, serde_json::Error> {
    let error = match serde_json::from_value(Value::Object(options.clone())) {
        Ok(part) => return Ok(part),
        Err(error) => error,
    };
    let wrong = options.into_iter().find_map(|(name, value)| {
        let text = value
            .as_str()
            .map_or_else(String::new, |text| format!(" {:?}", flags::shown(&name, text.into())));
        let alone = Map::from_iter([(name.clone(), value)]);
        let error = serde_json::from_value::<T>(Value::Object(alone)).err()?;
        Some(serde::de::Error::custom(format!("{name}{text}: {error}")))
    });
    Err(wrong.unwrap_or(error))
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Plain {
    data_dir: Option<PathBuf>,
    bind: Option<SocketAddr>,
    advertise: Option<String>,
    tls_san: Vec<String>,
    service_cidr: Option<String>,
    cluster_cidr: Option<String>,
    enable_admission_plugins: Vec<String>,
    disable_admission_plugins: Vec<String>,
    admission_control_config_file: Option<PathBuf>,
    #[serde(deserialize_with = "config_file::pairs")]
    feature_gates: Vec<String>,
    #[serde(deserialize_with = "config_file::pairs")]
    runtime_config: Vec<String>,
    scheduler_config: Option<PathBuf>,
    policy_config_file: Option<PathBuf>,
    manifests: Option<PathBuf>,
    event_ttl: Option<String>,
    api_only: bool,
    cluster_reset: bool,
    allow_empty_datastore: bool,
}

/// The options in force.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything lives.
    pub data_dir: PathBuf,
    /// Where to listen.
    pub bind: SocketAddr,
    /// Which store.
    pub datastore: Datastore,
    /// How to join a cluster that has servers.
    pub join: Option<JoinOptions>,
    /// Ports of the etcd member of this server, if it has one.
    pub etcd_ports: EtcdPorts,
    /// Whether to make a new cluster from the data of this server's member, instead of serving.
    pub cluster_reset: bool,
    /// Whether a server of a cluster may begin on an empty store.
    pub allow_empty_datastore: bool,
    /// What clients call the server.
    pub advertise: Option<String>,
    /// More names of the serving certificate.
    pub tls_san: Vec<String>,
    /// Address range of Services.
    pub service_cidr: String,
    /// Addresses of pods.
    pub cluster_cidr: String,
    /// Admission plugins that are on besides the usual ones.
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins that are off.
    pub disable_admission_plugins: Vec<String>,
    /// Settings of admission plugins.
    pub admission_control_config_file: Option<PathBuf>,
    /// What feature gates switch.
    pub switches: Switches,
    /// Features that are switched on.
    pub features: Features,
    /// Whether clients may ask for one stream of a log.
    pub split_log_streams: bool,
    /// How fast pods are evicted from nodes that have failed.
    pub eviction_rates: Rates,
    /// How long Events are kept.
    pub event_ttl: EventTtl,
    /// Older API versions that are served.
    pub runtime_config: RuntimeConfig,
    /// Profiles, plugins and extenders of the scheduler.
    pub scheduler_config: Option<PathBuf>,
    /// Predicates and priorities of the scheduler, in the older form.
    pub policy_config_file: Option<PathBuf>,
    /// Directory of manifests that the server applies.
    pub manifests: Option<PathBuf>,
    /// No scheduler, no controllers.
    pub api_only: bool,
    /// Backups that the server makes.
    pub backup: Option<Scheduled>,
    /// Authentication, authorization, audit and encryption.
    pub security: Security,
    /// Recording and export of spans.
    pub recording: Recording,
    /// All options with their values, for `/flagz`.
    pub flags: BTreeMap<String, String>,
}

/// Why the options make no sense.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file is not what it should be.
    #[error("{0} is not a valid configuration")]
    Parse(PathBuf, #[source] YamlError),
    /// An option about the store makes no sense.
    #[error("--datastore")]
    Datastore(#[from] DatastoreError),
    /// No address range of Services.
    #[error("--service-cidr")]
    ServiceCidr(#[from] RangeError),
    /// No address range of pods.
    #[error("--cluster-cidr")]
    ClusterCidr(#[from] NotARange),
    /// An option about node evictions makes no sense.
    #[error(transparent)]
    NodeEviction(#[from] NodeEvictionError),
    /// No time after which Events go.
    #[error("--event-ttl {0:?} is not a duration of more than 0, such as 1h")]
    EventTtl(String),
    /// An option about joining makes no sense.
    #[error(transparent)]
    Join(#[from] JoinOptionsError),
    /// A reset at every start.
    #[error("clusterReset belongs on the command line: in {0} it would reset the cluster at every start")]
    ResetInFile(PathBuf),
    /// A datastore that was wiped would not be noticed at any start.
    #[error(
        "allowEmptyDatastore belongs on the command line: in {0} it would let an empty cluster begin at every start"
    )]
    AllowEmptyInFile(PathBuf),
    /// Two files for one scheduler.
    #[error("--scheduler-config and --policy-config-file exclude each other")]
    TwoSchedulers,
    /// A reset of a store that the server does not run.
    #[error("--cluster-reset is only for --datastore etcd")]
    ResetOfOther,
    /// An option about backups makes no sense.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// Feature gates that cannot be set.
    #[error("--feature-gates")]
    FeatureGates(#[from] GateErrors),
    /// An API version that cannot be switched.
    #[error("--runtime-config")]
    RuntimeConfig(#[from] RuntimeConfigError),
    /// An option about spans makes no sense.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

impl ServerArgs {
    /// Options of the log. A file that cannot be read is an error later.
    pub fn log(&self) -> LogArgs {
        let file = self.config.as_deref().and_then(|path| read::<File>(path).ok()).unwrap_or_default();
        self.log.clone().over(file.log)
    }

    /// Flags over file over defaults; `matches` knows which is a flag and which a default.
    pub fn resolve(self, matches: &ArgMatches) -> Result<Config, ConfigError> {
        let File { plain: file, log: _, datastore, node_eviction, join, backup, security, recording } =
            self.config.as_deref().map(read::<File>).transpose()?.unwrap_or_default();
        if file.cluster_reset {
            return Err(ConfigError::ResetInFile(self.config.unwrap_or_default()));
        }
        if file.allow_empty_datastore {
            return Err(ConfigError::AllowEmptyInFile(self.config.unwrap_or_default()));
        }
        let store_args = self.datastore.over(datastore);
        let (etcd_ports, datastore) = (store_args.ports(), store_args.resolve()?);
        if self.cluster_reset && datastore != Datastore::ManagedEtcd {
            return Err(ConfigError::ResetOfOther);
        }
        let scheduler_config = self.scheduler_config.or(file.scheduler_config);
        let policy_config_file = self.policy_config_file.or(file.policy_config_file);
        if scheduler_config.is_some() && policy_config_file.is_some() {
            return Err(ConfigError::TwoSchedulers);
        }
        let raw = self.config.as_deref().map(read::<Option<Map<String, Value>>>).transpose()?;
        let command = Self::augment_args(clap::Command::new("server"));
        let flags = flags::reported(&command, matches, &raw.flatten().unwrap_or_default());
        let mut tls_san = self.tls_san;
        tls_san.extend(file.tls_san);
        let mut disable_admission_plugins = self.disable_admission_plugins;
        disable_admission_plugins.extend(file.disable_admission_plugins);
        let mut enable_admission_plugins = self.enable_admission_plugins;
        enable_admission_plugins.extend(file.enable_admission_plugins);
        // Of one gate the last value counts: flags come after the file.
        let gates: Vec<String> = file.feature_gates.into_iter().chain(self.feature_gates).collect();
        let Gates { switches, without_effect, contradictory } = feature_gates::parse(&gates)?;
        for gate in without_effect {
            tracing::warn!(gate, "feature gate has no effect: it does not apply to this server");
        }
        for gate in contradictory {
            tracing::warn!(gate, "feature gate is set to true and to false: the last value counts");
        }
        let service_cidr = over(matches, "service_cidr", self.service_cidr, file.service_cidr);
        let cluster_cidr = over(matches, "cluster_cidr", self.cluster_cidr, file.cluster_cidr);
        check_ranges(&service_cidr, &cluster_cidr)?;
        let versions: Vec<String> = file.runtime_config.into_iter().chain(self.runtime_config).collect();
        Ok(Config {
            data_dir: over(matches, "data_dir", self.data_dir, file.data_dir),
            bind: over(matches, "bind", self.bind, file.bind),
            datastore,
            join: self.join.over(join).resolve()?,
            etcd_ports,
            cluster_reset: self.cluster_reset,
            allow_empty_datastore: self.allow_empty_datastore,
            advertise: self.advertise.or(file.advertise),
            tls_san,
            service_cidr,
            cluster_cidr,
            enable_admission_plugins,
            disable_admission_plugins,
            admission_control_config_file: self
                .admission_control_config_file
                .or(file.admission_control_config_file),
            switches,
            features: Features {
                max_unavailable_stateful_set: switches.max_unavailable_stateful_set,
                container_stop_signals: switches.container_stop_signals,
                initializers: switches.initializers,
            },
            split_log_streams: switches.pod_logs_query_split_streams,
            eviction_rates: self.node_eviction.over(node_eviction).resolve()?,
            event_ttl: event_ttl(self.event_ttl.or(file.event_ttl))?,
            runtime_config: RuntimeConfig::parse(&versions)?,
            scheduler_config,
            policy_config_file,
            manifests: self.manifests.or(file.manifests),
            api_only: self.api_only || file.api_only,
            backup: self.backup.over(backup).resolve()?,
            security: self.security.over(security),
            recording: self.recording.over(recording).resolve(&|name| std::env::var(name).ok())?,
            flags,
        })
    }
}

/// Whether the texts name address ranges of Services and of pods.
fn check_ranges(services: &str, pods: &str) -> Result<(), ConfigError> {
    ServiceRanges::new(services)?;
    for cidr in pods.split(',') {
        cidr.trim().parse::<ranges::Range>()?;
    }
    Ok(())
}

fn event_ttl(given: Option<String>) -> Result<EventTtl, ConfigError> {
    let Some(text) = given else { return Ok(EventTtl::default()) };
    match parse_duration(&text) {
        Ok(nanos) if nanos > 0 => Ok(EventTtl(jiff::SignedDuration::from_nanos(nanos))),
        _ => Err(ConfigError::EventTtl(text)),
    }
}

/// What the command line (or the environment) says; else the file; else the default, which is `flag` then.
fn over<T>(matches: &ArgMatches, id: &str, flag: T, file: Option<T>) -> T {
    let said = matches.value_source(id).is_some_and(|source| source != ValueSource::DefaultValue);
    file.filter(|_| !said).unwrap_or(flag)
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError::Read(path.into(), e))?;
    coracle_cli::yaml::from_str(&text).map_err(|e| ConfigError::Parse(path.into(), e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::FromArgMatches;

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        std::fs::write(&file, "bind: 127.0.0.1:1\nserviceCidr: 10.1.0.0/16\ndatastore:\n").unwrap();
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        let file = file.to_str().unwrap();
        // The first says what is the default otherwise.
        let matches = command.get_matches_from(["server", "--config", file, "--service-cidr", SERVICE_CIDR]);
        let config = ServerArgs::from_arg_matches(&matches).unwrap().resolve(&matches).unwrap();
        assert_eq!(config.service_cidr, SERVICE_CIDR);
        assert_eq!(config.bind.to_string(), "127.0.0.1:1");
        assert_eq!((config.datastore, config.cluster_cidr.as_str()), (Datastore::Embedded, "10.244.0.0/16"));
    }

    #[test]
    fn errors_name_the_option_and_its_value() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        let error = |text: &str, args: &[&str]| {
            std::fs::write(&file, text).unwrap();
            let command = ServerArgs::augment_args(clap::Command::new("server"));
            let start = ["server", "--config", file.to_str().unwrap()];
            let matches = command.get_matches_from(start.iter().chain(args));
            let resolved = ServerArgs::from_arg_matches(&matches).unwrap().resolve(&matches);
            coracle_cli::causes::chain(&resolved.unwrap_err())
        };
        for (option, value, why) in [
            ("service-cidr", "10.0.0.0", "10.0.0.0 is not an address range such as 10.96.0.0/16"),
            ("service-cidr", "10.0.0.0/16,fd00::/x", "fd00::/x is not an address range"),
            ("cluster-cidr", "10.0.0.0", "invalid CIDR address: 10.0.0.0"),
            ("cluster-cidr", "10.0.0.0/16,10.0.0.0/33", "invalid CIDR address: 10.0.0.0/33"),
            ("event-ttl", "soon", "\"soon\" is not a duration"),
            ("trace-age", "soon", "\"soon\" is not a duration"),
            ("runtime-config", "a/b=maybe", "invalid value of a/b=maybe"),
            ("datastore", "sqlite", "unknown datastore \"sqlite\""),
        ] {
            let said = error("", &[&format!("--{option}={value}")]);
            assert!(
                said.starts_with(&format!("--{option}")) && said.contains(why),
                "{option}={value}: {said}"
            );
        }
        for (text, why) in [
            ("serviceCidr: 10.0.0.0\n", "--service-cidr: 10.0.0.0 is not"),
            ("bind: 10.0.0.1\n", "bind \"10.0.0.1\": invalid socket address"),
            ("apiOnly: maybe\n", "apiOnly \"maybe\": invalid type"),
            ("otlpProtocol: smoke\n", "otlpProtocol \"smoke\": unknown variant"),
            ("etcdPeerPort: 0\n", "etcdPeerPort: invalid value"),
        ] {
            let said = error(text, &[]);
            assert!(said.contains(why), "{text}: {said}");
        }
        let said = error("tokenFile: [a]\ntoken: {a: hush}\n", &[]);
        assert!(said.contains("token") && !said.contains("hush"), "{said}");
    }

    #[test]
    fn options_of_etcd_come_from_flags_and_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        std::fs::write(&file, "datastore: https://a:1,b:2\netcdPrefix: /one\netcdCaFile: /ca\n").unwrap();
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        let file = file.to_str().unwrap();
        let matches = command.get_matches_from(["server", "--config", file, "--etcd-prefix", "two/"]);
        let config = ServerArgs::from_arg_matches(&matches).unwrap().resolve(&matches).unwrap();
        let Datastore::Etcd(etcd) = config.datastore else { panic!("{:?}", config.datastore) };
        assert_eq!((etcd.prefix.as_str(), etcd.ca), ("/two", Some("/ca".into())));
        assert_eq!(etcd.endpoints, ["https://a:1", "https://b:2"]);
    }

    #[test]
    fn a_reset_is_of_a_managed_etcd_and_options_for_one_start_are_not_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        let resolve = |text: &str, args: &[&str]| {
            std::fs::write(&file, text).unwrap();
            let command = ServerArgs::augment_args(clap::Command::new("server"));
            let start = ["server", "--config", file.to_str().unwrap()];
            let matches = command.get_matches_from(start.iter().chain(args));
            ServerArgs::from_arg_matches(&matches).unwrap().resolve(&matches)
        };
        let config = resolve("datastore: etcd\netcdPeerPort: 5\n", &["--cluster-reset"]).unwrap();
        assert!(config.cluster_reset && config.etcd_ports == EtcdPorts { client: 2379, peer: 5 });
        assert!(matches!(resolve("", &["--cluster-reset"]), Err(ConfigError::ResetOfOther)));
        assert!(matches!(resolve("clusterReset: true\n", &[]), Err(ConfigError::ResetInFile(_))));
        assert!(!config.allow_empty_datastore);
        assert!(resolve("", &["--allow-empty-datastore"]).unwrap().allow_empty_datastore);
        let once = resolve("allowEmptyDatastore: true\n", &[]);
        assert!(matches!(once, Err(ConfigError::AllowEmptyInFile(_))));
        assert!(matches!(resolve("etcdPeerPort: 0\n", &[]), Err(ConfigError::Parse(..))));
    }

    #[test]
    fn the_environment_comes_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.yaml");
        std::fs::write(&file, "bind: 127.0.0.1:1\nadvertise: file\nserviceCidr: 10.1.0.0/16\n").unwrap();
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        // PATH stands for a variable that is set.
        let command = command.mut_arg("advertise", |argument| argument.env("PATH"));
        let matches =
            command.get_matches_from(["server", "--config", file.to_str().unwrap(), "--bind", "127.0.0.1:2"]);
        let config = ServerArgs::from_arg_matches(&matches).unwrap().resolve(&matches).unwrap();
        assert_eq!(config.bind.port(), 2, "the command line");
        assert_eq!(config.advertise, std::env::var("PATH").ok(), "the environment");
        assert_eq!(config.service_cidr, "10.1.0.0/16", "the file");
    }

    #[test]
    fn every_flag_that_is_not_for_one_start_has_a_variable() {
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        let command = with_variables(command);
        for argument in command.get_arguments() {
            let name = argument.get_env().map(|name| name.to_string_lossy().into_owned());
            let expected = !argument.get_long().is_some_and(|name| ONCE.contains(&name));
            assert_eq!(name.is_some_and(|name| name.starts_with("CORACLE_")), expected, "{argument}");
        }
    }

    /// The documented file comes from the flags: each of them must be an option of the file too.
    #[test]
    fn every_flag_is_an_option_of_the_file() {
        let command = ServerArgs::augment_args(clap::Command::new("server"));
        let template = coracle_cli::config_file::template(&command, "coracle");
        let lines = template.lines().filter(|line| line.starts_with('#') && !line.starts_with("# "));
        let in_force: Vec<&str> = lines.map(|line| &line[1..]).collect();
        assert!(in_force.len() > 8, "{template}");
        assert!(in_force.contains(&"bind: 0.0.0.0:6443") && in_force.contains(&"tlsSan: []"), "{template}");
        if let Err(error) = coracle_cli::yaml::from_str::<File>(&in_force.join("\n")) {
            panic!("{error}\n{template}");
        }
    }
}
