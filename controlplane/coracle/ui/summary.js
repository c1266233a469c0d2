// What happened, who did it and what took most of the time, in the words of `coracle trace`.

import { isInner, readyPods } from "./spans.js";

/** As many parts of the critical path are named. */
const NAMED = 5;
const NOT_RECORDED = "not recorded";
const PAST = { create: "created", delete: "deleted", update: "updated", patch: "patched", apply: "applied", bind: "bound" };
/** What happened on a node. */
const EVENTS = { evicted: "evicted", exit: "container ended", "status-report": "changed" };
/** What stages are called; nothing where the name says it all. */
const WORDS = {
  "store-queue": "queue", "scheduler-queue": "queue", "store-commit": "commit", "image-commit": "commit", "store-sync": "sync",
  "image-queue": "wait for other pulls", "image-resolve": "resolve", "image-backoff": "image pull back-off", "crash-backoff": "crash back-off",
  "scheduler-backoff": "scheduler back-off", unschedulable: "waits for a node", gated: "scheduling gates", "thread-wait": "waiting for a thread", "container-config": "config",
  "oci-bundle": "bundle", "oci-create": "create", "oci-start": "start", "init-run": "init container", "mutating-webhook": "webhook",
  "validating-webhook": "webhook", "validating-policy": "policy", "pre-stop": "preStop", "post-start": "postStart", "cni-plugin": "",
  "mutating-plugin": "", "validating-plugin": "",
};
/** What stages of the critical path are counted as. */
const GROUPS = {
  image: "image", container: "container", "post-start": "container", volumes: "volumes", volume: "volumes", queued: "controllers",
  reconcile: "controllers", "rules-programmed": "service rules", "service-seen": "service rules", request: "API server", write: "API server",
};
for (const stage of "sandbox sandbox-files cgroup namespaces network cni-plugin policies".split(" ")) GROUPS[stage] = "sandbox";
for (const stage of "scheduler-queue attempt filter score preempt reserve volume-binding bind verdict".split(" ")) GROUPS[stage] = "scheduler";
for (const stage of "store store-queue store-commit store-sync publish read-back".split(" ")) GROUPS[stage] = "store";
/** Stages that are named themselves. */
const ALONE = new Set("image-backoff crash-backoff unschedulable gated scheduler-backoff flow-queue status-held init-run mutating-webhook validating-webhook conversion-webhook validating-policy".split(" "));

const tenths = (value) => (Math.round(value * 10) / 10).toFixed(1);

/** A time as in `756.4 ms`, `64.3 s`, `12m05s`. */
export function time(nanos) {
  if (nanos < 10e9) return `${tenths(nanos / 1e6)} ms`;
  return nanos < 600e9 ? `${tenths(nanos / 1e9)} s` : minutes(nanos);
}

/** A time in minutes or hours. */
function minutes(nanos) {
  const seconds = Math.round(nanos / 1e9);
  const [large, small, units] = seconds < 36_000 ? [Math.floor(seconds / 60), seconds % 60, "ms"] : [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), "hm"];
  return `${large}${units[0]}${String(small).padStart(2, "0")}${units[1]}`;
}

/** How long ago something was. */
const ago = (nanos) => (nanos < 1e9 ? time(nanos) : nanos < 60e9 ? `${tenths(nanos / 1e9)} s` : minutes(nanos));

/** What was done, by whom and when, such as `created by kubectl (admin) 4.6 s ago`. */
export function author(trace, now = Date.now()) {
  const root = trace.spans.find((span) => span.parent === null);
  if (!root) return "";
  const write = trace.spans.find((span) => span.stage === "write");
  const [user = "", agent = ""] = root.stage === "request" ? root.text.split("\n") : [];
  const program = root.stage === "reconcile" ? root.name : agent.split(/[/ ]/)[0];
  const who = program && user ? `${program} (${user})` : program || user;
  const passed = Math.max(0, now - Date.parse(trace.begin)) * 1e6;
  if (EVENTS[root.stage]) return `${EVENTS[root.stage]}${root.node && ` by ${root.node}`} ${ago(passed)} ago`;
  return `${write ? PAST[write.name] ?? write.name : "seen"}${who && ` by ${who}`} ${ago(passed)} ago`;
}

/** Whether pods that were never ready ran to their end, such as those of a Job. Those of a rollout are to run on. */
function ranToEnd({ object, objects, spans }) {
  if (/^((daemon|replica|stateful)sets\.apps|deployments\.apps|replicationcontrollers)$/.test(object?.resource)) return false;
  const exits = spans.filter((span) => span.stage === "exit");
  const endedWell = (pod) => {
    const own = exits.filter((exit) => exit.object === pod);
    const last = own.filter((exit) => !own.some((other) => other.name === exit.name && other.start > exit.start));
    return last.length > 0 && last.every((exit) => exit.code === 0);
  };
  return [...readyPods({ spans, objects }).keys()].every(endedWell);
}

/** What became of it, such as `3 pods ready after 1022.6 ms`. */
export function outcome(trace) {
  const pods = [...readyPods(trace).values()];
  const total = time(trace.summary.total);
  // The last span that is known is not the one that made it ready.
  const untold = trace.objects.filter((object) => object.untold).length;
  if (trace.state === "ready" && untold) return pods.length > 1 ? `${pods.length} pods ready, of ${untold} it is not known when` : "ready, it is not known when";
  const counted = !/^persistentvolume/.test(trace.object?.resource);
  // A later change replaced them.
  if (trace.state === "ready" && counted && pods.length && pods.every((pod) => pod.ready === undefined)) return `${ranToEnd(trace) ? "complete" : "never ready, ended"} after ${total}`;
  if (trace.state === "ready" && pods.length > 1) return `${pods.length} pods ready after ${total}`;
  if (trace.state === "running" && pods.length > 1) return `${pods.filter((pod) => pod.ready !== undefined).length} of ${pods.length} pods ready after ${total}`;
  return trace.state === "stuck" ? `stuck for ${total}` : `${trace.state} after ${total}`;
}

/** What objects of it wait for now, such as `pods/web-1 waits for node-3, which is away`; of many the first. */
export function waiting(trace) {
  const waits = trace.objects.filter((object) => object.waits && !object.hidden);
  const lines = waits.slice(0, NAMED).map(({ resource, name, waits }) => `${resource}/${name} ${waits}`);
  const more = waits.length - lines.length;
  return more > 0 ? [...lines, `${more} more object${more > 1 ? "s wait" : " waits"}`] : lines;
}

/** What the critical path consists of. */
export function criticalPath(trace) {
  const known = new Map(trace.spans.map((span) => [span.id, span]));
  const sums = new Map();
  let missing = 0;
  for (const { span: id, name, start, end } of trace.critical) {
    const span = known.get(id);
    if (id === null && name === NOT_RECORDED) missing += end - start;
    else if (id === null || span) {
      const counted = span ? group(span) : ["watch delivery", "work queue", "hand-over"].find((gap) => name.startsWith(gap)) ?? name;
      sums.set(counted, (sums.get(counted) ?? 0) + end - start);
    }
  }
  const sorted = [...sums].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  if (!sorted.length) return "";
  const total = Math.max(1, trace.summary.total);
  const texts = sorted.slice(0, NAMED).map(([name, taken], at) => `${name} ${time(taken)}${at ? "" : ` (${Math.round((taken * 100) / total)} %)`}`);
  const others = sorted.slice(NAMED);
  if (others.length) texts.push(`${others.length} other${others.length > 1 ? "s" : ""} ${time(others.reduce((sum, [, taken]) => sum + taken, 0))}`);
  return `critical path: ${texts.join(", ")}${missing > 0 ? `; ${time(missing)} ${NOT_RECORDED}` : ""}`;
}

/** How long pods took. */
export function podTimes(trace) {
  const times = [...readyPods(trace)].filter(([, pod]) => pod.ready !== undefined).sort((a, b) => a[1].ready - b[1].ready);
  if (times.length < 2) return "";
  const [slowest, { ready }] = times.at(-1);
  return `${times.length} pods: p50 ${time(times[Math.floor((times.length - 1) / 2)][1].ready)}, slowest ${time(ready)} ${trace.objects[slowest].name}`;
}

/** What a span of the critical path is counted as. */
function group(span) {
  const { stage, name } = span;
  if (ALONE.has(stage)) return label(span);
  if (GROUPS[stage]) return GROUPS[stage];
  if (stage.startsWith("image")) return "image";
  if (stage.startsWith("container") || stage.startsWith("oci-")) return "container";
  if (stage === "probe") return name.split(" ")[0] || label(span);
  return isInner(stage) ? "API server" : label(span);
}

/** What a span is called that is counted alone. */
function label({ stage, name, node, code }) {
  if (stage === "pod-start") return node || "node";
  if (stage === "terminate") return `${node} terminate`.trim();
  if (stage === "exit") return `exit ${name} with ${code}`;
  return `${WORDS[stage] ?? stage.replaceAll("-", " ")} ${name}`.trim() || stage.replaceAll("-", " ");
}
