#!/usr/bin/env python3
"""Where scripts/oci.py sends credentials, with registries that name other places."""
import base64, http.server, os, sys, threading, unittest, urllib.error

sys.dont_write_bytecode = True
os.environ["no_proxy"] = "*"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from oci import Image

SECRET = "Basic " + base64.b64encode(b"user:secret").decode()


class Server:
    """A registry without any blob. It answers the start of an upload with `location`, and a HEAD with `redirect` if there is one."""

    def __init__(self, location="", redirect=""):
        self.seen = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                outer.seen.append((self.command, self.path.split("?")[0], self.headers["Authorization"]))
                code = {"HEAD": 404, "GET": 404, "POST": 202, "PUT": 201}[self.command]
                target = location if self.command == "POST" else ""
                if self.command == "HEAD" and redirect:
                    code, target = 302, redirect + self.path
                self.send_response(code)
                if target:
                    self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                self.end_headers()

            # A redirected HEAD becomes a GET in some versions of Python.
            do_HEAD = do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def uploads(self):
        return [(path, secret) for method, path, secret in self.seen if method == "PUT" and "/manifests/" not in path]


def push(server):
    Image("example.test/team/app:1", [(b"tar", b"packed")], {}).push(server.address, "user:secret")


class Push(unittest.TestCase):
    def test_locations_are_relative_to_the_request_and_of_the_registry(self):
        for location, path in [
            ("/v2/team/app/blobs/uploads/1", "/v2/team/app/blobs/uploads/1"),
            ("2?state=x", "/v2/team/app/blobs/uploads/2"),
        ]:
            with Server(location) as registry:
                push(registry)
                self.assertEqual(set(registry.uploads()), {(path, SECRET)})
                self.assertEqual({secret for _, _, secret in registry.seen}, {SECRET})

    def test_locations_elsewhere_get_no_credentials(self):
        with Server() as other:
            for location in (f"http://{other.address}/put", f"//{other.address}/put"):
                with Server(location) as registry:
                    push(registry)
                    self.assertEqual(registry.uploads(), [])
            self.assertEqual(set(other.uploads()), {("/put", None)})

    def test_redirects_get_no_credentials(self):
        with Server() as other, Server("/put", redirect=f"http://{other.address}") as registry:
            push(registry)
            self.assertEqual({secret for _, _, secret in other.seen}, {None})
            self.assertEqual(set(registry.uploads()), {("/put", SECRET)})

    def test_locations_are_http(self):
        for location in ("file:///etc/passwd", "ftp://127.0.0.1:1/put", "http://127.0.0.1:x/put", ""):
            with Server(location) as registry, self.assertRaises(urllib.error.URLError):
                push(registry)


if __name__ == "__main__":
    unittest.main()
