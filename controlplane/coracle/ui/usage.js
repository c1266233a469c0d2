// Usage of nodes and pods from the metrics API. Not every cluster has it, and not everybody may read it: then there is none.

import { get, pause } from "./api.js";
import { kindOf } from "./kinds.js";
import { number } from "./quantity.js";

const PAUSE = 15_000;
/** Owners above a pod that are looked for. */
const DEEPEST = 10;

/** Calls `each` with what the metrics API has of `nodes` or `pods`, again and again while the page is seen, until it is aborted. */
export async function poll(resource, each, signal) {
  while (!signal.aborted) {
    if (document.hidden) {
      await changed(signal);
      continue;
    }
    const items = await get(`apis/metrics.k8s.io/v1beta1/${resource}`, { signal }).then((list) => list.items ?? [], () => []);
    if (signal.aborted) return;
    each(items);
    await pause(PAUSE, signal);
  }
}

/** Waits until the page is hidden or shown, unless it is aborted. */
function changed(signal) {
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve);
  });
}

/** Usage of pods, and of what owns them. */
export class PodUsage {
  constructor() {
    this.pods = new Map();
    this.totals = new Map();
  }

  /** Takes what the metrics API lists: cores and bytes of each pod, over its containers. */
  set(items) {
    this.pods.clear();
    for (const { metadata, containers = [] } of items) {
      const sum = { cpu: 0, memory: 0 };
      for (const { usage } of containers) {
        sum.cpu += number(usage?.cpu) ?? 0;
        sum.memory += number(usage?.memory) ?? 0;
      }
      this.pods.set(`${metadata.namespace}/${metadata.name}`, sum);
    }
  }

  /** Adds up again, in time proportional to the pods: each is added to everything above it. */
  add(store) {
    this.totals.clear();
    if (!this.pods.size) return;
    for (const pod of store.of(kindOf("pods")).values()) {
      const usage = this.pods.get(pod.place);
      if (!usage) continue;
      for (const uid of above(store, pod)) {
        const sum = this.totals.get(uid) ?? { cpu: 0, memory: 0 };
        this.totals.set(uid, { cpu: sum.cpu + usage.cpu, memory: sum.memory + usage.memory });
      }
    }
  }

  /** Cores and bytes of an object, or undefined for what has no pods, or none whose usage is known. */
  of(item) {
    return this.totals.get(item.uid);
  }
}

/** An object and its owners, each once. */
function above(store, item) {
  const found = new Set([item.uid]);
  let level = [item];
  for (let depth = 0; depth < DEEPEST && level.length; depth += 1) {
    const owners = level.flatMap((one) => one.owners).filter((owner) => !found.has(owner.uid));
    for (const owner of owners) found.add(owner.uid);
    level = owners.map((owner) => store.items.get(owner.uid)).filter(Boolean);
  }
  return found;
}
