"""Typed and dynamic objects, a watch that resumes, pages, an apply conflict and a lease, with the official Python client."""
import multiprocessing
import sys
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

config.load_kube_config(sys.argv[1])
core, apps, leases = client.CoreV1Api(), client.AppsV1Api(), client.CoordinationV1Api()
NS = "default"


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return error
    raise AssertionError(f"expected {code}")


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


# Typed: create, read, replace, patch, delete.
made = core.create_namespaced_config_map(NS, config_map("typed", a="1"))
assert made.metadata.uid and made.metadata.creation_timestamp
made.data["a"] = "2"
newer = core.replace_namespaced_config_map("typed", NS, made)
refused(409, core.replace_namespaced_config_map, "typed", NS, made)
patched = core.patch_namespaced_config_map("typed", NS, {"data": {"b": "3"}})
assert patched.data == {"a": "2", "b": "3"}, patched.data
refused(409, core.create_namespaced_config_map, NS, config_map("typed"))
refused(422, core.create_namespaced_config_map, NS, config_map("Not A Name"))

# Dynamic: the same objects by discovery.
resources = dynamic.DynamicClient(client.ApiClient())
maps = resources.resources.get(api_version="v1", kind="ConfigMap")
assert maps.get(name="typed", namespace=NS).data.b == "3"
maps.delete(name="typed", namespace=NS)
refused(404, core.read_namespaced_config_map, "typed", NS)

# A watch that resumes after a disconnect.
version = core.list_namespaced_config_map(NS).metadata.resource_version
threading.Timer(0.2, lambda: core.create_namespaced_config_map(NS, config_map("first"))).start()
for event in watch.Watch().stream(core.list_namespaced_config_map, NS, resource_version=version, timeout_seconds=20):
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "first"), event
    version = event["object"].metadata.resource_version
    break
core.create_namespaced_config_map(NS, config_map("second"))
for event in watch.Watch().stream(core.list_namespaced_config_map, NS, resource_version=version, timeout_seconds=20):
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "second"), event
    break

# Pages.
for i in range(12):
    core.create_namespaced_config_map(NS, config_map(f"page-{i}", a=str(i)))
names, token = [], None
while True:
    page = core.list_namespaced_config_map(NS, limit=5, _continue=token)
    names += [item.metadata.name for item in page.items]
    token = page.metadata._continue
    if not token:
        break
assert len(set(names)) == len(names) and sum(n.startswith("page-") for n in names) == 12, names

# Server-side apply by two managers.
body = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NS},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
             "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
}
deployments = resources.resources.get(api_version="apps/v1", kind="Deployment")
deployments.server_side_apply(body=body, name="web", namespace=NS, field_manager="one")
body["spec"]["replicas"] = 2
try:
    deployments.server_side_apply(body=body, name="web", namespace=NS, field_manager="two")
    raise AssertionError("expected a conflict")
except dynamic.exceptions.ConflictError as error:
    assert "spec.replicas" in str(error.body), error.body
deployments.server_side_apply(body=body, name="web", namespace=NS, field_manager="two", force_conflicts=True)
assert apps.read_namespaced_deployment("web", NS).spec.replicas == 2
assert apps.read_namespaced_deployment_scale("web", NS).spec.replicas == 2

# A lease that one of two holds.
lease = client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=client.V1LeaseSpec(lease_duration_seconds=15))
leases.create_namespaced_lease(NS, lease)
mine, theirs = leases.read_namespaced_lease("leader", NS), leases.read_namespaced_lease("leader", NS)
mine.spec.holder_identity, theirs.spec.holder_identity = "me", "them"
leases.replace_namespaced_lease("leader", NS, mine)
refused(409, leases.replace_namespaced_lease, "leader", NS, theirs)
assert leases.read_namespaced_lease("leader", NS).spec.holder_identity == "me"

# The client's own election: one leads, and the other when that one dies without a word.
def candidate(name, elected):
    config.load_kube_config(sys.argv[1])
    lock = LeaseLock("election", NS, name)
    settings = electionconfig.Config(
        lock, lease_duration=6, renew_deadline=5, retry_period=1,
        onstarted_leading=lambda: elected.put(name), onstopped_leading=lambda: None)
    leaderelection.LeaderElection(settings).run()

elected = multiprocessing.Queue()
first, second = (multiprocessing.Process(target=candidate, args=(name, elected), daemon=True) for name in ("a", "b"))
first.start()
assert elected.get(timeout=30) == "a"
second.start()
time.sleep(2)
assert elected.empty(), "two lead"
assert leases.read_namespaced_lease("election", NS).spec.holder_identity == "a"
first.kill()
assert elected.get(timeout=60) == "b"
assert leases.read_namespaced_lease("election", NS).spec.holder_identity == "b"
second.kill()
print("ok")
