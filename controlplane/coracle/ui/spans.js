// Spans of a timeline as a tree of rows.

import { duration } from "./time.js";

const PARTS = {
  request: "request accept tls authn filters flow-queue authz body decode handle respond aggregated",
  write: "write prepare mutating mutating-plugin mutating-webhook defaults validation validating validating-plugin validating-webhook validating-policy conversion-webhook encode store store-batch store-queue store-commit store-sync publish read-back delivered",
  loop: "cache-update queued reconcile retry-backoff requeued",
  scheduler: "scheduler-queue gated scheduler-backoff unschedulable attempt filter score preempt reserve volume-binding bind verdict",
  node: "pod-start seen admit sync volumes volume policies exit evicted",
  image: "image image-queue image-resolve image-layer image-unpack image-commit image-backoff",
  sandbox: "sandbox sandbox-files cgroup namespaces network cni-plugin sandbox-stop",
  container: "container container-config oci-bundle oci-create oci-start post-start init-run probe crash-backoff restart",
  status: "status-held status-report status-wait ready",
  teardown: "terminate pre-stop stop network-remove volumes-remove cgroup-remove directories-remove object-delete",
  service: "service-seen rules-programmed dns-visible dns-answered",
};
const PART_OF = new Map(Object.entries(PARTS).flatMap(([part, stages]) => stages.split(" ").map((stage) => [stage, part])));

/** Stages within a request or a write. */
const INNER = new Set([..."accept tls authn filters flow-queue authz body decode handle respond aggregated".split(" "),
  ..."prepare mutating mutating-plugin mutating-webhook defaults validation validating validating-plugin validating-webhook".split(" "),
  ..."validating-policy conversion-webhook encode store store-batch store-queue store-commit store-sync publish read-back".split(" ")]);
/** Pods of which the parts are shown at once; of more, only the pods. */
const FEW = 3;

/** Whether a stage is a part of a request or a write. */
export const isInner = (stage) => INNER.has(stage);

/** The part of the cluster that a stage belongs to, for colours. */
export function partOf(stage) {
  return PART_OF.get(stage) ?? "other";
}

/** The name of a span for people. */
export function title(trace, span) {
  const object = span.object === null ? undefined : trace.objects[span.object];
  const name = object ? (object.hidden ? `a ${object.resource} that you may not see` : `${object.resource}/${object.name}`) : "";
  const stage = span.stage.replaceAll("-", " ");
  switch (span.stage) {
    case "write":
      return `${span.name || "write"} ${name}`;
    case "request":
      return span.name || "request";
    case "reconcile":
    case "queued":
      return span.stage === "queued" ? `work queue of ${span.name}` : `${span.name} ${span.text}`;
    case "pod-start":
      return `start on ${span.node || "a node"}`;
    case "terminate":
      return `end on ${span.node || "a node"}`;
    case "stop":
      return `stop ${span.name}${span.text && ` (grace period ${span.text})`}`;
    case "stages":
      return span.name;
    case "verdict":
      return `verdict ${span.name}`;
    default:
      return span.name ? `${stage} ${span.name}` : stage;
  }
}

/**
 * A timeline whose rows can be folded; answers of `follow` are merged into it. It begins with what people look for: the pods, without
 * the stages of requests.
 */
export class Timeline {
  constructor(trace) {
    this.trace = trace;
    /** What was folded and unfolded by hand. */
    this.chosen = new Map();
    this.build();
  }

  /** Takes new and changed spans. */
  merge({ objects, spans, critical, summary, state }) {
    const known = new Map(this.trace.spans.map((span) => [span.id, span]));
    for (const span of spans ?? []) known.set(span.id, span);
    const merged = [...known.values()].sort((a, b) => a.start - b.start);
    this.trace = { ...this.trace, spans: merged, objects: objects ?? this.trace.objects, critical: critical ?? this.trace.critical, summary: summary ?? this.trace.summary, state: state ?? this.trace.state };
    this.build();
  }

  build() {
    const { trace } = this;
    const ends = trace.spans.map((span) => span.end ?? span.start);
    this.end = Math.max(trace.summary.total, ends.reduce((a, b) => Math.max(a, b), 1));
    this.critical = new Set(trace.critical.map((piece) => piece.span).filter(Boolean));
    this.pods = readyPods(trace);
    const nodes = new Map(trace.spans.map((span) => [span.id, { span, children: [], depth: 0 }]));
    this.roots = [];
    for (const node of nodes.values()) {
      const parent = node.span.parent === null ? undefined : nodes.get(node.span.parent);
      (parent ? parent.children : this.roots).push(node);
    }
    for (const root of this.roots) this.arrange(root, 0);
  }

  /** Puts stages together and what leads to pods and their starts first, and decides what is folded at first. */
  arrange(node, depth) {
    const { span } = node;
    node.depth = depth;
    if (["request", "write", "reconcile"].includes(span.stage)) node.children = withStages(node);
    for (const child of node.children) this.arrange(child, depth + 1);
    node.pod = span.stage === "write" && span.name === "create" ? this.pods.get(span.object) : undefined;
    node.leads = node.children.some((child) => child.pod || child.leads);
    node.starts = span.stage === "pod-start" || node.children.some((child) => child.starts);
    // Sorting is stable: otherwise the order of time stays.
    const last = (child) => (child.pod || child.leads || child.starts ? 0 : 1);
    node.children.sort((a, b) => last(a) - last(b));
    // What may be folded away below a row counts as its own. Pods are created one after the other: the path of one that all waited for
    // goes on in what its creation led to.
    const own = this.critical.has(span.id) || Boolean(node.stages?.some((one) => this.critical.has(one.id)));
    const below = node.children.filter((child) => child.onPath);
    node.onPath = node.pod ? below.some((child) => !child.stages) : own || below.length > 0;
    node.until = node.children.reduce((latest, child) => Math.max(latest, child.until), span.end ?? this.end);
    node.folded = this.isFolded(node);
  }

  isFolded(node) {
    const { stage, start } = node.span;
    if (!node.children.length || node.depth === 0) return false;
    if (stage === "stages") return true;
    if (!this.pods.size) return this.trace.spans.length > 100 && node.until - start < this.end / 100;
    // Whoever unfolds a pod wants to see its start.
    return !(node.leads || (node.pod ? this.pods.size <= FEW : node.starts));
  }

  /** Rows that are not folded away, in the order in which they are drawn. */
  rows() {
    const rows = [];
    const visit = (list) => {
      for (const node of list) {
        rows.push(node);
        if (!this.folds(node)) visit(node.children);
      }
    };
    visit(this.roots);
    return rows;
  }

  /** Whether the children of a row are hidden. */
  folds(node) {
    return this.chosen.get(node.span.id) ?? node.folded;
  }

  toggle(node) {
    this.chosen.set(node.span.id, !this.folds(node));
  }

  isOnPath(node) {
    return node.onPath;
  }
}

/** Pods that were created, by their index: how long each took until it was ready, if it was. */
export function readyPods({ spans, objects }) {
  const [created, pods] = [new Map(), new Map()];
  for (const { stage, name, object, start } of spans) {
    if (object === null || objects[object]?.resource !== "pods") continue;
    if (stage === "write" && name === "create" && !created.has(object)) {
      created.set(object, start);
      pods.set(object, {});
    } else if (stage === "ready" && created.has(object)) {
      pods.get(object).ready ??= Math.max(0, start - created.get(object));
    }
  }
  return pods;
}

/** The children of a request or write, its stages being one of them. */
function withStages({ span, children }) {
  const stages = children.filter((child) => isInner(child.span.stage));
  if (stages.length < 2) return children;
  const lasts = (child) => (child.span.end ?? child.span.start) - child.span.start;
  const longest = [...stages].sort((a, b) => lasts(b) - lasts(a)).slice(0, 3).map((child) => `${title({ objects: [] }, { ...child.span, object: null })} ${duration(lasts(child))}`);
  const spans = stages.map((child) => child.span);
  const group = {
    id: `${span.id}-stages`,
    stage: "stages",
    name: `${stages.length} stages: ${longest.join(", ")}${stages.length > 3 ? " …" : ""}`,
    text: "",
    object: span.object,
    node: span.node,
    flags: [...new Set(spans.flatMap((one) => one.flags))],
    start: Math.min(...spans.map((one) => one.start)),
    end: spans.some((one) => one.end === null) ? null : Math.max(...spans.map((one) => one.end)),
    taken: stages.reduce((sum, child) => sum + lasts(child), 0),
    uncertainty: 0,
  };
  return [{ span: group, children: stages, depth: 0, stages: spans }, ...children.filter((child) => !isInner(child.span.stage))];
}
