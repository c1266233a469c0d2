//! EventRateLimit: limits the rate of events per server, namespace, user or source.

use super::config::{Configuration, ConfigurationError, PluginError};
use super::{Attributes, Operation, Phase, Plugin};
use async_trait::async_trait;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Event as CoreEvent;
use coracle_fields::events::v1::Event;
use coracle_proto::status::{ApiError, FieldError};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Instant;

const CACHE: usize = 4096;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    limits: Vec<Limit>,
}

#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
enum By {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limit {
    #[serde(rename = "type")]
    by: By,
    qps: f64,
    burst: f64,
    #[serde(default)]
    cache_size: usize,
}

/// Tokens that come back with time.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

struct Enforcer {
    limit: Limit,
    buckets: Mutex<HashMap<String, Bucket>>,
}

/// The plugin.
pub struct EventRateLimit(Vec<Enforcer>);

impl EventRateLimit {
    /// The plugin with its limits.
    pub fn new(configuration: &Configuration) -> Result<Self, ConfigurationError> {
        let settings: Settings = configuration.of("EventRateLimit")?;
        let enforcer = |limit| Enforcer { limit, buckets: Mutex::default() };
        Ok(Self(settings.limits.into_iter().map(enforcer).collect()))
    }
}

#[async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn ready(&self) -> Result<(), PluginError> {
        let invalid = |field: String, why: String| FieldError::new("FieldValueInvalid", field, why);
        let mut wrong = Vec::new();
        if self.0.is_empty() {
            wrong.push(invalid("limits".into(), "Invalid value: []: must not be empty".into()));
        }
        for (index, Enforcer { limit, .. }) in self.0.iter().enumerate() {
            for (field, value) in [("burst", limit.burst), ("qps", limit.qps)] {
                if value <= 0.0 {
                    let why = format!("Invalid value: {value}: must be positive");
                    wrong.push(invalid(format!("limits[{index}].{field}"), why));
                }
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(PluginError::Invalid(wrong)) }
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.writes() && at.kind.kind == "Event"
    }

    async fn validate(&self, at: &mut Attributes<'_>, event: &Value) -> Result<(), ApiError> {
        let writes = matches!(at.operation, Operation::Create | Operation::Update);
        if at.kind.kind != "Event" || at.dry_run || !writes {
            return Ok(());
        }
        let now = Instant::now();
        let refused: Vec<String> = self
            .0
            .iter()
            .filter_map(|enforcer| enforcer.take(at.namespace, &at.user.name, event, now))
            .collect();
        match refused.as_slice() {
            [] => Ok(()),
            [one] => Err(ApiError::too_many_requests(one.clone(), 0)),
            many => Err(ApiError::too_many_requests(format!("[{}]", many.join(", ")), 0)),
        }
    }
}

impl Enforcer {
    /// Takes a token; why it cannot.
    fn take(&self, namespace: &str, user: &str, event: &Value, now: Instant) -> Option<String> {
        let key = match self.limit.by {
            By::Server => String::new(),
            By::Namespace => namespace.to_owned(),
            By::User => user.to_owned(),
            By::SourceAndObject => source_and_object(event),
        };
        let mut buckets = self.buckets.lock();
        let most = if self.limit.cache_size == 0 { CACHE } else { self.limit.cache_size };
        if buckets.len() >= most && !buckets.contains_key(&key) {
            let oldest = buckets.iter().min_by_key(|(_, b)| b.filled).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| buckets.remove(&oldest));
        }
        let fresh = || Bucket { tokens: self.limit.burst, filled: now };
        let bucket = buckets.entry(key.clone()).or_insert_with(fresh);
        let since = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + since * self.limit.qps).min(self.limit.burst);
        bucket.filled = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return None;
        }
        Some(format!("limit reached on type {:?} for key {key}", self.limit.by))
    }
}

/// Old and new events say who speaks and about what in different fields.
fn source_and_object(event: &Value) -> String {
    let (old, new) = (CoreEvent::of(event), Event::of(event));
    let about = if old.involved_object().is_set() { old.involved_object() } else { new.regarding() };
    let source = if old.source().is_set() { old.source() } else { new.deprecated_source() };
    let (component, host) = (source.component(), source.host());
    let parts =
        [component, host, about.kind(), about.namespace(), about.name(), about.uid(), about.api_version()];
    parts.map(|part| part.text()).concat()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn buckets_fill_again() {
        let settings = json!({"limits": [{"type": "Namespace", "qps": 1, "burst": 2, "cacheSize": 2}]});
        let plugin = EventRateLimit::new(&Configuration::with("EventRateLimit", settings)).unwrap();
        let (enforcer, start) = (&plugin.0[0], Instant::now());
        let take = |namespace: &str, after: u64| {
            enforcer.take(namespace, "u", &json!({}), start + Duration::from_secs(after))
        };
        assert_eq!((take("a", 0), take("a", 0)), (None, None));
        assert_eq!(take("a", 0).unwrap(), "limit reached on type Namespace for key a");
        assert_eq!(take("b", 0), None, "another namespace has its own");
        assert_eq!(take("a", 1), None);
        assert!(take("a", 1).is_some());
        assert_eq!((take("c", 2), take("d", 2)), (None, None));
        assert!(enforcer.buckets.lock().len() <= 2);
        let none = json!({"limits": [{"type": "Server", "qps": 0, "burst": 1}]});
        let none = EventRateLimit::new(&Configuration::with("EventRateLimit", none)).unwrap();
        let why = none.ready().unwrap_err().to_string();
        assert_eq!(why, "limits[0].qps: Invalid value: 0: must be positive");
        assert!(plugin.ready().is_ok());
        let unknown = Configuration::with("EventRateLimit", json!({"limits": [{"type": "Moon"}]}));
        assert!(EventRateLimit::new(&unknown).is_err());
    }
}
