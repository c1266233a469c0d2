//! The official Python client.

use crate::on_both_stores;
use coracle_tests::python::python;
use std::process::Command;

#[test]
fn the_python_client_works() {
    let python = python();
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/api/python_suite.py");
    on_both_stores(|server| {
        let output = Command::new(&python).arg(suite).arg(server.kubeconfig()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    });
}
