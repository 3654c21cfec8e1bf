// What a job was submitted as, and beside another job: what differs, and the other's loss in the chart.

import { complain, make, set, show } from "./page.js";

/** Points of the other job's curve. */
const POINTS = 200;

/** A value within values, as in a job file: `batch.size`. */
function* flat(value, path = "") {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) yield* flat(inner, path ? `${path}.${key}` : key);
  } else {
    yield [path, Array.isArray(value) ? JSON.stringify(value) : String(value)];
  }
}

export class Configuration {
  /** `compares(other)` is told whose loss is drawn too: `{name, points}`, or `null`. */
  constructor(store, api, name) {
    Object.assign(this, { store, api, name, own: null, other: null, compares: () => {} });
    this.select = make("select", { "aria-label": "Compare with another job" });
    this.rows = make("dl", { class: "facts configuration" });
    this.note = make("p", { class: "empty" });
    const label = make("label", { class: "compare" }, "Compare with ", this.select);
    this.box = make("details", {}, make("summary", {}, "Configuration and comparison"), label, this.rows, this.note);
    this.box.addEventListener("toggle", () => this.box.open && this.#choices());
    this.select.addEventListener("change", () => this.#compare(this.select.value));
  }

  /** Fetches the job file. */
  async load(signal) {
    this.signal = signal;
    this.own = await this.#fetch(this.name, "configuration");
    this.#draw();
  }

  async #fetch(name, what) {
    try {
      return await this.api.get(`/v1/jobs/${encodeURIComponent(name)}/${what}`, this.signal);
    } catch (error) {
      if (!this.signal.aborted) complain(error);
      return null;
    }
  }

  /** All other jobs, the newest first. */
  #choices() {
    const names = [...this.store.jobs.values()].map(({ job }) => job).filter(({ name }) => name !== this.name);
    names.sort((a, b) => b.submitted_s - a.submitted_s);
    const chosen = this.select.value;
    const option = (value, text) => make("option", { value }, text);
    this.select.replaceChildren(option("", "no other job"), ...names.map(({ name }) => option(name, name)));
    this.select.value = names.some(({ name }) => name === chosen) ? chosen : "";
  }

  async #compare(name) {
    this.other = null;
    if (name) {
      const [file, curve] = await Promise.all([this.#fetch(name, "configuration"), this.#fetch(name, `curve?points=${POINTS}`)]);
      if (this.select.value !== name) return;
      this.other = file;
      this.compares(curve && { name, points: curve.points });
    } else {
      this.compares(null);
    }
    this.#draw();
  }

  #draw() {
    const own = new Map(flat(this.own ?? {}));
    const other = this.other && new Map(flat(this.other));
    const keys = other ? [...new Set([...own.keys(), ...other.keys()])].filter((key) => own.get(key) !== other.get(key)) : [...own.keys()];
    this.rows.replaceChildren(...keys.map((key) => {
      const text = other ? `${own.get(key) ?? "–"} here, ${other.get(key) ?? "–"} there` : own.get(key);
      const value = make("dd", {}, text);
      set(value, { title: text });
      return make("div", {}, make("dt", {}, key), value);
    }));
    show(this.note, Boolean(other) && keys.length === 0);
    this.note.textContent = "Both were submitted with the same job file.";
  }
}
