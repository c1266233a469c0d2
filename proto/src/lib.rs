//! Formats and rules shared by the control plane and the agent.

#![forbid(unsafe_code)]

// Versions of Kubernetes and of this build.
pub mod version;
// API errors as metav1.Status.
pub mod status;
// Schemas of API types.
pub mod schema;
// Resource quantities.
pub mod quantity;
// Label and field selectors.
pub mod selector;
// Validation of names and labels.
pub mod names;
// Safe sysctls.
pub mod sysctls;
// Directory names of local volumes.
pub mod local_path;
// Names in node certificates.
pub mod node_identity;
// Times and durations.
pub mod time;
// Schedules of CronJobs.
pub mod cron;
// Prometheus exposition formats.
pub mod exposition;
// Limits on depth, number of values and size.
pub mod limits;
// JSON and YAML bodies to objects.
pub mod decode;
// Protobuf bodies to objects.
pub mod protobuf;

/// CRI v1, generated from `cri/api.proto`.
#[cfg(feature = "cri")]
#[allow(missing_docs, clippy::all)]
pub mod cri {
    tonic::include_proto!("runtime.v1");
}

/// Messages of OTLP, generated from `otlp/`; the modules are those of the packages below `opentelemetry.proto`.
#[cfg(feature = "otlp")]
#[allow(missing_docs, clippy::all)]
pub mod otlp {
    pub mod common {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/opentelemetry.proto.common.v1.rs"));
        }
    }
    pub mod resource {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/opentelemetry.proto.resource.v1.rs"));
        }
    }
    pub mod trace {
        pub mod v1 {
            include!(concat!(env!("OUT_DIR"), "/opentelemetry.proto.trace.v1.rs"));
        }
    }
    pub mod collector {
        pub mod trace {
            pub mod v1 {
                include!(concat!(env!("OUT_DIR"), "/opentelemetry.proto.collector.trace.v1.rs"));
            }
        }
    }
}
