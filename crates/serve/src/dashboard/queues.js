// The queues that divide the slots, and the hosts that take no jobs.

import { byId, make, set, setText, show } from "./page.js";
import { count } from "./words.js";

/** A number for each type of slot; the type is said where there are several. */
function byType({ slots }, told) {
  return slots.map((one) => (slots.length > 1 ? `${one.device_type} ${told(one)}` : told(one))).join(", ");
}

function holds({ held, guaranteed }) {
  const borrowed = held - guaranteed;
  return borrowed > 0 ? `${count(held)} (${count(borrowed)} borrowed)` : count(held);
}

export class Queues {
  constructor(store) {
    this.store = store;
    this.shown = null;
  }

  render() {
    const { cluster } = this.store;
    if (!cluster) return;
    const queues = cluster.queues ?? [];
    const down = cluster.nodes.filter((node) => node.down != null);
    const text = JSON.stringify([queues, down]);
    if (text === this.shown) return;
    this.shown = text;
    show(byId("queues"), queues.length > 0);
    byId("queue-rows").replaceChildren(...queues.map((queue) => this.#row(queue)));
    const reasons = down.map((node) => `${node.name || node.device_type} (${node.down})`).join(", ");
    show(byId("hosts"), down.length > 0);
    setText(byId("hosts"), `No jobs start on ${reasons}`);
  }

  #row(queue) {
    const jobs = (...states) => count(states.reduce((sum, state) => sum + (queue.jobs[state] ?? 0), 0));
    const cells = [
      byType(queue, holds),
      byType(queue, (slots) => count(slots.guaranteed)),
      byType(queue, (slots) => (slots.limit == null ? "–" : count(slots.limit))),
      jobs("starting", "running", "stopping"),
      jobs("queued"),
    ];
    const row = make("tr", {}, make("th", { scope: "row" }, queue.name), ...cells.map((text) => make("td", {}, text)));
    set(row, { "data-queue": queue.name });
    return row;
  }
}
