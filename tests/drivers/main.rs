//! A driver of the tests as a process of its own, which can be killed: `coracle-test-driver KIND KUBELET-DIR DIRECTORY [NAME]`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use coracle_tests::csi_driver::CsiDriver;
use coracle_tests::device_plugin::FakeGpus;
use coracle_tests::dra_driver::DraDriver;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["csi", kubelet, data, name] => {
            let mut driver = CsiDriver::new(name, Path::new(kubelet), Path::new(data));
            driver.start();
            wait_for_ever(driver)
        }
        ["gpus", kubelet, shared] => {
            let mut plugin = FakeGpus::new(Path::new(kubelet), Path::new(shared));
            plugin.start();
            wait_for_ever(plugin)
        }
        ["dra", kubelet, data, cdi] => {
            let mut driver = DraDriver::new(Path::new(kubelet), Path::new(data), cdi);
            driver.start();
            wait_for_ever(driver)
        }
        _ => {
            eprintln!("usage: coracle-test-driver csi|gpus|dra KUBELET-DIR DIRECTORY [NAME]");
            ExitCode::from(2)
        }
    }
}

/// A driver runs until its process is killed.
fn wait_for_ever<T>(_driver: T) -> ExitCode {
    loop {
        std::thread::park();
    }
}
