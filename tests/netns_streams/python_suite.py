"""Logs, exec and port-forward through the official Python client."""

import base64
import ssl
import sys
import urllib.parse

import websocket
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


# Every WebSocket protocol by hand.
settings = client.Configuration.get_default_copy()
settings = client.ApiClient().configuration


def connect(protocols, command, **more):
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true"), *more.items()]
    return open_socket(protocols, "talk/exec?" + urllib.parse.urlencode(query))


def open_socket(protocols, path):
    return websocket.create_connection(
        settings.host.replace("https", "wss") + "/api/v1/namespaces/default/pods/" + path,
        subprotocols=protocols, timeout=60,
        sslopt={"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": settings.ssl_ca_cert,
                "certfile": settings.cert_file, "keyfile": settings.key_file})


def everything(socket, decode):
    """What came on each channel until the server closes."""
    channels = {}
    while True:
        try:
            message = socket.recv()
        except websocket.WebSocketConnectionClosedException:
            return channels
        if not message:
            return channels
        channel, data = decode(message)
        channels[channel] = channels.get(channel, b"") + data


def plain(message):
    return message[0], message[1:]


def coded(message):
    text = message if isinstance(message, str) else message.decode()
    return int(text[0]), base64.b64decode(text[1:])


script = ["sh", "-c", "read x; echo got $x; echo bad >&2; exit 3"]
for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io", "base64.channel.k8s.io", "v4.base64.channel.k8s.io"]:
    socket = connect([protocol], script, stdin="true")
    assert socket.getsubprotocol() == protocol, socket.getsubprotocol()
    if "base64" in protocol:
        socket.send("0" + base64.b64encode(b"this\n").decode())
    else:
        socket.send_binary(b"\x00this\n")
    seen = everything(socket, coded if "base64" in protocol else plain)
    assert seen[1] == b"got this\n" and seen[2] == b"bad\n", (protocol, seen)
    if protocol.startswith(("v4", "v5")):
        assert b'"reason":"NonZeroExitCode"' in seen[3] and b'"message":"3"' in seen[3], (protocol, seen)
    else:
        assert b"command terminated with non-zero exit code" in seen[3], (protocol, seen)

# Half of v5 is that input can end while output goes on.
socket = connect(["v5.channel.k8s.io"], ["sh", "-c", "cat; echo after"], stdin="true")
socket.send_binary(b"\x00this\n")
socket.send_binary(bytes([255, 0]))
seen = everything(socket, plain)
assert seen[1] == b"this\nafter\n", seen

# Sizes that are none do not disturb the session, whatever they are.
socket = connect(["v5.channel.k8s.io"], ["sh", "-c", "read x; stty size; echo got $x; exit 6"], stdin="true", tty="true")
for size in [b"{garbage", b"", b"[]", b'{"Width":-1,"Height":70000}', b'{"Width":"wide"}', b"\xff\xfe", b"{" * 5000]:
    socket.send_binary(b"\x04" + size)
socket.send_binary(b"\x00this\n")
seen = everything(socket, plain)
assert b"got this" in seen[1] and b'"message":"6"' in seen[3], seen

# A channel that nobody has, and a protocol that nobody speaks.
socket = connect(["v5.channel.k8s.io"], ["sh", "-c", "read x; echo got $x"], stdin="true")
socket.send_binary(b"\x63nothing")
socket.send_binary(b"\x00this\n")
seen = everything(socket, plain)
assert seen.get(1) in (b"got this\n", None), seen
try:
    connect(["v9.channel.k8s.io"], ["true"]).recv()
    raise SystemExit("an unknown protocol was accepted")
except websocket.WebSocketException:
    pass

# Logs, too, come by WebSocket: an empty message at once, then what was written.
for protocol in ["binary.k8s.io", "base64.binary.k8s.io", None]:
    socket = open_socket(protocol and [protocol], "talk/log?tailLines=2")
    assert socket.getsubprotocol() == protocol, socket.getsubprotocol()
    messages = []
    while True:
        code, data = socket.recv_data()
        if code == websocket.ABNF.OPCODE_CLOSE:
            break
        messages.append(base64.b64decode(data) if protocol and "base64" in protocol else data)
    assert messages[0] == b"" and b"".join(messages) == b"oops\nlast\n", (protocol, messages)
    assert data[:2] == (1000).to_bytes(2, "big"), data
socket = open_socket(["binary.k8s.io"], "talk/log?tailLines=1&follow=true")
assert [socket.recv(), socket.recv()] == [b"", b"last\n"]
socket.close()
for protocols, path, code in [(["v4.channel.k8s.io"], "talk/log", 403), (["binary.k8s.io"], "talk/log?container=none", 400)]:
    try:
        open_socket(protocols, path)
        raise SystemExit("a log was opened: " + path)
    except websocket.WebSocketBadStatusException as refused:
        assert refused.status_code == code, refused
