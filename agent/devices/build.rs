//! Generates clients and servers of the device plugin API, of drivers of dynamic resource allocation and of PodResources.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["deviceplugin.proto", "dra.proto", "podresources.proto"], ["proto"])?;
    tonic_prost_build::configure().build_client(true).build_server(true).compile_fds(descriptors)?;
    Ok(())
}
