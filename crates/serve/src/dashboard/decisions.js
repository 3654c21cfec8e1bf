// The last decisions: when, why, what changed, and what came of it.

import { arrange, byId, make, setText, show } from "./page.js";
import { count, duration, error, iso, measured, moment } from "./words.js";

/** Changes of one decision that are shown before the reader asks for the rest. */
const ACTIONS = 6;

export class Decisions {
  constructor(store, hears) {
    this.store = store;
    this.hears = hears;
    this.items = new Map();
  }

  render() {
    const decisions = this.store.latest();
    const elements = decisions.map((decision) => {
      const known = this.items.get(decision.number);
      if (known?.decision === decision) return known.element;
      const element = this.#item(decision, known?.element.querySelector("details")?.open);
      this.items.set(decision.number, { decision, element });
      return element;
    });
    arrange(byId("decision-list"), elements);
    for (const [number, { element }] of this.items) if (!element.isConnected) this.items.delete(number);
    show(byId("decisions-empty"), decisions.length === 0);
    setText(byId("decisions-empty"), this.store.cluster ? "Nothing was decided yet. The first job that is submitted makes a policy decide." : "Waiting for the daemon …");
  }

  #item(decision, open) {
    const time = make("time", { datetime: iso(decision.time_s), title: iso(decision.time_s) }, moment(decision.time_s));
    const about = make("p", { class: "about" }, time, " · ", decision.policy, ` · decided in ${duration(decision.deciding_s)}`);
    const rows = decision.actions.map((action) => this.#action(action));
    const item = make("li", {}, about, make("p", { class: "reason" }, decision.reason), make("ul", {}, ...rows.slice(0, ACTIONS)));
    if (rows.length > ACTIONS) {
      const rest = make("details", {}, make("summary", {}, `${count(rows.length - ACTIONS)} more`), make("ul", {}, ...rows.slice(ACTIONS)));
      rest.open = Boolean(open);
      item.append(rest);
    }
    return item;
  }

  #action(action) {
    const name = make("button", { type: "button", class: "link" }, action.job);
    name.addEventListener("click", () => this.hears.open(action.job, true));
    const row = make("li", {},
      make("span", { class: `swatch job-${this.store.colour(action.job)}`, "aria-hidden": "true" }), name,
      make("span", { class: "change" }, `${count(action.from)} → ${count(action.to)}`),
    );
    row.append(make("small", { class: action.refused ? "refused" : "" }, outcome(action)));
    return row;
  }
}

function outcome({ refused, expected_examples_per_s: expected, measured_examples_per_s: got, took_s }) {
  if (refused) return `refused: ${refused}`;
  const parts = [];
  if (expected != null && got != null) parts.push(`${measured(expected)}/s expected, ${measured(got)} measured (${error(expected, got)})`);
  else if (expected != null) parts.push(`${measured(expected)}/s expected`);
  else if (got != null) parts.push(`${measured(got)}/s measured`);
  if (took_s != null) parts.push(`after ${duration(took_s)}`);
  return parts.join(", ");
}
