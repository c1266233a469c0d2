/// Where a stage belongs: for colours and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// An HTTP request, around the write that it asks for.
    Request,
    /// The write of one object.
    Write,
    /// Control loops.
    Loop,
    /// The scheduler.
    Scheduler,
    /// The pod worker of a node.
    Node,
    /// Images.
    Image,
    /// Pod sandboxes and their network.
    Sandbox,
    /// Containers.
    Container,
    /// Status reports of a node.
    Status,
    /// The end of a pod.
    Teardown,
    /// Services and DNS.
    Service,
    /// What is not about an object, and stages that this version does not know.
    Other,
}

/// How long a stage lasts, and whether that is visible meanwhile.
#[derive(PartialEq)]
enum Extent {
    /// No time.
    Point,
    /// Recorded when it is over.
    Brief,
    /// In the table of open spans while it lasts.
    Open,
}

macro_rules! stages {
    ($($stage:ident $code:literal $key:literal $name:literal $part:ident $extent:ident,)*) => {
        /// What a span is about.
        ///
        /// Codes are in files: they never change, and gaps are for later stages.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Stage {
            $(#[doc = $name] $stage = $code,)*
        }

        impl Stage {
            /// Every stage, in the order of the codes.
            pub const ALL: &[Self] = &[$(Self::$stage),*];

            /// The name in JSON and OTLP, in kebab case.
            pub fn key(self) -> &'static str {
                match self { $(Self::$stage => $key,)* }
            }

            /// The name for people.
            pub fn name(self) -> &'static str {
                match self { $(Self::$stage => $name,)* }
            }

            /// The stage with this code.
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$stage),)* _ => None }
            }

            /// Where it belongs.
            pub fn part(self) -> Part {
                match self { $(Self::$stage => Part::$part,)* }
            }

            fn extent(self) -> Extent {
                match self { $(Self::$stage => Extent::$extent,)* }
            }
        }
    };
}

stages! {
    Request 1 "request" "request" Request Open,
    Accept 2 "accept" "accept" Request Brief,
    Tls 3 "tls" "tls" Request Brief,
    Authn 4 "authn" "authn" Request Brief,
    Filters 5 "filters" "filters" Request Brief,
    FlowQueue 6 "flow-queue" "flow control queue" Request Brief,
    Authz 7 "authz" "authz" Request Brief,
    Body 8 "body" "body" Request Brief,
    Decode 9 "decode" "decode" Request Brief,
    Handle 10 "handle" "handle" Request Brief,
    Respond 11 "respond" "respond" Request Brief,
    Aggregated 12 "aggregated" "aggregated API server" Request Open,

    Write 24 "write" "write" Write Open,
    Prepare 25 "prepare" "prepare" Write Brief,
    Mutating 26 "mutating" "mutating" Write Brief,
    MutatingPlugin 27 "mutating-plugin" "mutating plugin" Write Brief,
    MutatingWebhook 28 "mutating-webhook" "mutating webhook" Write Open,
    Defaults 29 "defaults" "defaults" Write Brief,
    Validation 30 "validation" "validation" Write Brief,
    Validating 31 "validating" "validating" Write Brief,
    ValidatingPlugin 32 "validating-plugin" "validating plugin" Write Brief,
    ValidatingWebhook 33 "validating-webhook" "validating webhook" Write Open,
    ValidatingPolicy 34 "validating-policy" "validating policy" Write Brief,
    ConversionWebhook 35 "conversion-webhook" "conversion webhook" Write Open,
    Encode 36 "encode" "encode" Write Brief,
    Store 37 "store" "store" Write Brief,
    StoreBatch 38 "store-batch" "store batch" Write Brief,
    StoreQueue 39 "store-queue" "store queue" Write Brief,
    StoreCommit 40 "store-commit" "store commit" Write Brief,
    StoreSync 41 "store-sync" "store sync" Write Brief,
    Publish 42 "publish" "publish" Write Brief,
    ReadBack 43 "read-back" "read back" Write Brief,
    Delivered 44 "delivered" "delivered" Write Point,
    MutatingPolicy 45 "mutating-policy" "mutating policy" Write Brief,

    CacheUpdate 56 "cache-update" "watch cache" Loop Brief,
    Queued 57 "queued" "work queue" Loop Brief,
    Reconcile 58 "reconcile" "reconcile" Loop Open,
    RetryBackoff 59 "retry-backoff" "retry back-off" Loop Brief,
    Requeued 60 "requeued" "requeued" Loop Brief,

    SchedulerQueue 68 "scheduler-queue" "scheduling queue" Scheduler Open,
    Gated 69 "gated" "scheduling gates" Scheduler Open,
    SchedulerBackoff 70 "scheduler-backoff" "scheduling back-off" Scheduler Open,
    Unschedulable 71 "unschedulable" "unschedulable" Scheduler Open,
    Attempt 72 "attempt" "scheduling attempt" Scheduler Open,
    Filter 73 "filter" "filter" Scheduler Brief,
    Score 74 "score" "score" Scheduler Brief,
    Preempt 75 "preempt" "preemption" Scheduler Open,
    Reserve 76 "reserve" "reserve" Scheduler Brief,
    VolumeBinding 77 "volume-binding" "volume binding" Scheduler Open,
    Bind 78 "bind" "bind" Scheduler Brief,
    Verdict 79 "verdict" "verdict" Scheduler Point,

    PodStart 88 "pod-start" "pod start" Node Open,
    Seen 89 "seen" "seen" Node Brief,
    Admit 90 "admit" "admit" Node Brief,
    Sync 91 "sync" "sync" Node Brief,
    Volumes 92 "volumes" "volumes" Node Open,
    Volume 93 "volume" "volume" Node Open,
    Policies 94 "policies" "network policies" Node Open,
    Exit 95 "exit" "container exit" Node Point,
    Evicted 96 "evicted" "evicted" Node Point,
    ThreadWait 97 "thread-wait" "waiting for a thread" Node Brief,

    Image 104 "image" "image" Image Open,
    ImageQueue 105 "image-queue" "image pull queue" Image Open,
    ImageResolve 106 "image-resolve" "resolve" Image Open,
    ImageLayer 107 "image-layer" "layer" Image Open,
    ImageUnpack 108 "image-unpack" "unpack" Image Open,
    ImageCommit 109 "image-commit" "image commit" Image Open,
    ImageBackoff 110 "image-backoff" "image pull back-off" Image Open,

    Sandbox 116 "sandbox" "sandbox" Sandbox Open,
    SandboxFiles 117 "sandbox-files" "sandbox files" Sandbox Brief,
    Cgroup 118 "cgroup" "cgroup" Sandbox Brief,
    Namespaces 119 "namespaces" "namespaces" Sandbox Open,
    Network 120 "network" "network" Sandbox Open,
    CniPlugin 121 "cni-plugin" "CNI plugin" Sandbox Open,
    SandboxStop 122 "sandbox-stop" "sandbox stop" Sandbox Open,

    Container 128 "container" "container" Container Open,
    ContainerConfig 129 "container-config" "config" Container Brief,
    OciBundle 130 "oci-bundle" "bundle" Container Brief,
    OciCreate 131 "oci-create" "create" Container Open,
    OciStart 132 "oci-start" "start" Container Open,
    PostStart 133 "post-start" "postStart hook" Container Open,
    InitRun 134 "init-run" "init container" Container Open,
    Probe 135 "probe" "probe" Container Open,
    CrashBackoff 136 "crash-backoff" "crash loop back-off" Container Open,
    Restart 137 "restart" "restart" Container Open,

    StatusHeld 144 "status-held" "status held back" Status Open,
    StatusReport 145 "status-report" "status report" Status Open,
    StatusWait 146 "status-wait" "status report queue" Status Open,
    Ready 147 "ready" "ready" Status Point,

    Terminate 152 "terminate" "terminate" Teardown Open,
    PreStop 153 "pre-stop" "preStop hook" Teardown Open,
    Stop 154 "stop" "stop" Teardown Open,
    NetworkRemove 155 "network-remove" "network removal" Teardown Open,
    VolumesRemove 156 "volumes-remove" "volume removal" Teardown Open,
    CgroupRemove 157 "cgroup-remove" "cgroup removal" Teardown Open,
    DirectoriesRemove 158 "directories-remove" "directory removal" Teardown Open,
    ObjectDelete 159 "object-delete" "object deletion" Teardown Open,

    ServiceSeen 168 "service-seen" "service seen" Service Brief,
    RulesProgrammed 169 "rules-programmed" "rules programmed" Service Brief,
    DnsVisible 170 "dns-visible" "DNS visible" Service Point,
    DnsAnswered 171 "dns-answered" "DNS answered" Service Point,

    Lost 240 "lost" "lost records" Other Point,
    Restarted 241 "restarted" "restarted" Other Point,
    ClockStep 242 "clock-step" "clock step" Other Point,
    Usual 243 "usual" "usual times" Other Point,
    Other 244 "other" "other" Other Brief,
    SpansTaken 245 "spans-taken" "spans taken" Other Point,
}

impl Stage {
    /// The code in memory and in files.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether it has no duration.
    pub fn is_point(self) -> bool {
        self.extent() == Extent::Point
    }

    /// Whether it is in the table of open spans while it lasts.
    pub fn is_open(self) -> bool {
        self.extent() == Extent::Open
    }

    /// Whether it happens once in the life of an object: its span has the id [`SpanId::of_stage`](crate::SpanId::of_stage), and the
    /// write that caused it as its parent.
    pub fn is_single(self) -> bool {
        matches!(self, Self::PodStart | Self::Terminate)
    }

    /// Whether it says what a request above it did: then the request has no [`Stage::Handle`], which would be the same time again.
    pub fn explains_request(self) -> bool {
        self.part() == Part::Write || self == Self::Aggregated
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_and_keys_are_unique_and_ordered() {
        let codes: Vec<u8> = Stage::ALL.iter().map(|stage| stage.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b));
        let keys: HashSet<_> = Stage::ALL.iter().map(|stage| stage.key()).collect();
        assert_eq!(keys.len(), Stage::ALL.len());
        for code in 0..=255 {
            assert_eq!(Stage::from_code(code).map(Stage::code), codes.contains(&code).then_some(code));
        }
    }

    #[test]
    fn keys_are_the_names_in_kebab_case() {
        for stage in Stage::ALL {
            let mut key = String::new();
            for letter in format!("{stage:?}").chars() {
                if letter.is_uppercase() && !key.is_empty() {
                    key.push('-');
                }
                key.extend(letter.to_lowercase());
            }
            assert_eq!(stage.key(), key);
        }
    }

    #[test]
    fn codes_of_stored_stages_never_change() {
        let codes = [
            (Stage::Request, 1),
            (Stage::Aggregated, 12),
            (Stage::Write, 24),
            (Stage::Delivered, 44),
            (Stage::CacheUpdate, 56),
            (Stage::SchedulerQueue, 68),
            (Stage::Verdict, 79),
            (Stage::PodStart, 88),
            (Stage::Image, 104),
            (Stage::Sandbox, 116),
            (Stage::Container, 128),
            (Stage::StatusHeld, 144),
            (Stage::Terminate, 152),
            (Stage::ServiceSeen, 168),
            (Stage::Lost, 240),
            (Stage::Other, 244),
        ];
        for (stage, code) in codes {
            assert_eq!(stage.code(), code, "{stage:?}");
        }
    }
}
