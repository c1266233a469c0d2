//! The `loopback` CNI plugin.

fn main() -> std::process::ExitCode {
    coracle_cni::protocol::run(&coracle_cni::loopback::Loopback)
}
