#!/usr/bin/env python3
"""The initializer proxy.example.com: adds a sidecar to pods with the annotation example.com/proxy: "yes".

It runs kubectl (or what the variable KUBECTL names), with the rights of docs/howto/initializers.md, until it is stopped.
"""

import json
import os
import subprocess
import sys
import time

NAME = "proxy.example.com"
ANNOTATION = "example.com/proxy"
SIDECAR = {"name": "proxy", "image": "registry.example.com/proxy:1"}
PODS = "/api/v1/pods?watch=true&includeUninitialized=true"
KUBECTL = os.environ.get("KUBECTL", "kubectl")


def patch_for(pod):
    """The JSON patch that initializes a pod; none if it is not the turn of this initializer."""
    metadata, containers = pod["metadata"], pod["spec"]["containers"]
    pending = metadata.get("initializers", {}).get("pending", [])
    if not pending or pending[0]["name"] != NAME:
        return []
    # The test fails if somebody else was faster.
    patch = [
        {"op": "test", "path": "/metadata/initializers/pending/0/name", "value": NAME},
        {"op": "remove", "path": "/metadata/initializers/pending/0"},
    ]
    wanted = metadata.get("annotations", {}).get(ANNOTATION) == "yes"
    if wanted and all(container["name"] != SIDECAR["name"] for container in containers):
        patch.append({"op": "add", "path": "/spec/containers/-", "value": SIDECAR})
    return patch


def initialize(pod):
    """Initializes a pod. If that fails, the next event or the next watch shows the pod again."""
    patch = patch_for(pod)
    if patch:
        of = ["-n", pod["metadata"]["namespace"], pod["metadata"]["name"]]
        subprocess.run([KUBECTL, "patch", "pod", "--type=json", "-p", json.dumps(patch), *of], check=False)


def main():
    """Follows all pods: a watch without a resourceVersion begins with those that are there."""
    while True:
        watch = subprocess.Popen([KUBECTL, "get", "--raw", PODS], stdout=subprocess.PIPE, text=True)
        for line in watch.stdout:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                initialize(event["object"])
        watch.wait()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
