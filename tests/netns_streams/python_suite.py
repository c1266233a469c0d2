"""Logs, exec and port-forward through the official Python client."""

import sys

from kubernetes import client, config
from kubernetes.stream import portforward, stream

config.load_kube_config(sys.argv[1])
pods = client.CoreV1Api()

assert pods.read_namespaced_pod_log("talk", "default", tail_lines=1) == "last\n"

out = stream(pods.connect_get_namespaced_pod_exec, "talk", "default", command=["echo", "hi"],
             stdin=False, stdout=True, stderr=True, tty=False)
assert out == "hi\n", out

process = stream(pods.connect_get_namespaced_pod_exec, "talk", "default",
                 command=["sh", "-c", "read x; echo got $x; echo bad >&2; exit 3"],
                 stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False)
process.write_stdin("this\n")
process.run_forever(timeout=60)
assert process.read_stdout() == "got this\n"
assert process.read_stderr() == "bad\n"
assert process.returncode == 3, process.returncode

forward = portforward(pods.connect_get_namespaced_pod_portforward, "web", "default", ports="80")
sock = forward.socket(80)
sock.setblocking(True)
sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
page = b""
while True:
    data = sock.recv(1024)
    if not data:
        break
    page += data
sock.close()
assert page.endswith(b"hello\n"), page
assert forward.error(80) is None, forward.error(80)
