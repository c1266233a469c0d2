//! The `bandwidth` CNI plugin.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    coracle_cni::protocol::run(&coracle_cni::bandwidth::Bandwidth)
}
