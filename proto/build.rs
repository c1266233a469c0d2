//! Generates the CRI v1 client and server (feature `cri`) and the messages of OTLP (feature `otlp`).

/// Messages that the engine keeps on disk as JSON, with everything inside them.
#[cfg(feature = "cri")]
const STORED: &[&str] = &[
    "DNSConfig",
    "PortMapping",
    "Mount",
    "IDMapping",
    "UserNamespace",
    "NamespaceOption",
    "Int64Value",
    "LinuxSandboxSecurityContext",
    "SecurityProfile",
    "LinuxPodSandboxConfig",
    "PodSandboxMetadata",
    "PodSandboxConfig",
    "ImageSpec",
    "KeyValue",
    "LinuxContainerResources",
    "HugepageLimit",
    "SELinuxOption",
    "Capability",
    "LinuxContainerSecurityContext",
    "LinuxContainerConfig",
    "WindowsNamespaceOption",
    "WindowsSandboxSecurityContext",
    "WindowsPodSandboxConfig",
    "WindowsContainerSecurityContext",
    "WindowsContainerConfig",
    "WindowsContainerResources",
    "WindowsCpuGroupAffinity",
    "ContainerMetadata",
    "Device",
    "CDIDevice",
    "ContainerConfig",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=cri/api.proto");
    println!("cargo::rerun-if-changed=otlp");
    #[cfg(feature = "cri")]
    {
        let descriptors = protox::compile(["cri/api.proto"], ["cri"])?;
        let mut builder = tonic_prost_build::configure().build_client(true).build_server(true);
        for message in STORED {
            builder = builder.message_attribute(
                format!(".runtime.v1.{message}"),
                "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default)]",
            );
        }
        builder.compile_fds(descriptors)?;
    }
    #[cfg(feature = "otlp")]
    {
        // The service imports all other files.
        let service = "opentelemetry/proto/collector/trace/v1/trace_service.proto";
        let descriptors = protox::compile([service], ["otlp"])?;
        tonic_prost_build::configure().build_client(false).build_server(false).compile_fds(descriptors)?;
    }
    Ok(())
}
