//! Generates the CRI v1 client and server when the `cri` feature asks for them.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=cri/api.proto");
    #[cfg(feature = "cri")]
    {
        let descriptors = protox::compile(["cri/api.proto"], ["cri"])?;
        tonic_prost_build::configure().build_client(true).build_server(true).compile_fds(descriptors)?;
    }
    Ok(())
}
