"""Clients that send a trace context: the official Python client, and a proxy that adds the header for clients that cannot.

traced.py create KUBECONFIG NAMESPACE TRACEPARENT     creates the Deployment of standard input
traced.py proxy KUBECONFIG TRACEPARENT                prints its URL, and forwards until standard input ends
"""
import http.client
import http.server
import json
import ssl
import sys
import threading
import urllib.parse

from kubernetes import client, config


def create(kubeconfig, namespace, traceparent):
    config.load_kube_config(kubeconfig)
    api = client.AppsV1Api()
    api.api_client.set_default_header("traceparent", traceparent)
    api.create_namespaced_deployment(namespace, json.load(sys.stdin))


def proxy(kubeconfig, traceparent):
    config.load_kube_config(kubeconfig)
    server = client.Configuration.get_default_copy()
    address = urllib.parse.urlsplit(server.host).netloc
    tls = ssl.create_default_context(cafile=server.ssl_ca_cert)
    tls.load_cert_chain(server.cert_file, server.key_file)

    class Forward(http.server.BaseHTTPRequestHandler):
        def forward(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name: value for name, value in self.headers.items() if name not in ("Host", "Accept-Encoding")}
            upstream = http.client.HTTPSConnection(address, context=tls)
            upstream.request(self.command, self.path, body, {**headers, "traceparent": traceparent})
            answer = upstream.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = forward

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{listener.server_port}", flush=True)
    sys.stdin.read()


{"create": create, "proxy": proxy}[sys.argv[1]](*sys.argv[2:])
