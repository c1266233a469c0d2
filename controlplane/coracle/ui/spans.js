// Spans of a timeline as a tree of rows.

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
    case "verdict":
      return `verdict ${span.name}`;
    default:
      return span.name ? `${stage} ${span.name}` : stage;
  }
}

/** A timeline whose rows can be folded; answers of `follow` are merged into it. */
export class Timeline {
  constructor(trace) {
    this.trace = trace;
    this.folded = new Set();
    this.byId = new Map();
    this.build();
    // Long trees begin with what took its time.
    if (trace.spans.length > 100) for (const root of this.roots) this.fold(root);
  }

  /** Folds what took less than a hundredth of all, with everything that followed from it; returns when that ended. */
  fold(node) {
    const ends = node.children.map((child) => this.fold(child));
    const end = Math.max(node.span.end ?? this.end, ...ends);
    if (node.depth > 0 && node.children.length && end - node.span.start < this.end / 100) this.folded.add(node.span.id);
    return end;
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
    this.critical = new Set(this.trace.critical.map((piece) => piece.span).filter(Boolean));
    const nodes = new Map(this.trace.spans.map((span) => [span.id, { span, children: [], depth: 0 }]));
    this.roots = [];
    for (const node of nodes.values()) {
      const parent = node.span.parent === null ? undefined : nodes.get(node.span.parent);
      (parent ? parent.children : this.roots).push(node);
    }
    const visit = (list, depth) => {
      for (const node of list) {
        node.depth = depth;
        visit(node.children, depth + 1);
      }
    };
    visit(this.roots, 0);
    this.byId = nodes;
    const ends = this.trace.spans.map((span) => span.end ?? span.start);
    this.end = Math.max(this.trace.summary.total, ends.reduce((a, b) => Math.max(a, b), 1));
  }

  /** Rows that are not folded away, in the order in which they are drawn. */
  rows() {
    const rows = [];
    const visit = (list) => {
      for (const node of list) {
        rows.push(node);
        if (!this.folded.has(node.span.id)) visit(node.children);
      }
    };
    visit(this.roots);
    return rows;
  }

  toggle(id) {
    if (!this.folded.delete(id)) this.folded.add(id);
  }

  isOnPath(node) {
    return this.critical.has(node.span.id);
  }
}
