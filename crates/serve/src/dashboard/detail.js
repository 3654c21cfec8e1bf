// The pane of one job: what is known of it, its curves, its last lines, and what can be done with it.

import { Curves } from "./charts.js";
import { Configuration } from "./configuration.js";
import { LINES, Log } from "./log.js";
import { byId, complain, make, set, setText, shape, show } from "./page.js";
import { hasEnded } from "./store.js";
import { ahead, count, deadline, duration, expected, iso, limits, loss, measured, moment, off, percent, plural, relative, workers } from "./words.js";

/** Curves are fetched again at most so often. */
const REFRESH_MS = 2000;
const POINTS = 200;

const time = (value, now) => (value == null ? null : { text: `${moment(value, now)} (${relative(value, now)})`, title: iso(value) });

/** What is said of a job, in order; what is `null` is left out. */
const FACTS = [
  ["Progress", (job) => `${percent(job.total_steps ? job.step / job.total_steps : 0)}: step ${count(job.step)} of ${count(job.total_steps)}`],
  ["Queue", (job) => job.queue ?? null],
  ["User", (job) => job.user ?? null],
  ["Machines", (job) => (job.provider ? `of its own, from ${job.provider}` : null)],
  ["Workers", (job) => `${workers(job)} of ${limits(job)}`],
  ["Weight", (job) => measured(job.weight)],
  ["Loss", (job) => (job.loss == null ? null : loss(job.loss))],
  ["Samples/s", (job) => (job.examples_per_s == null ? null : `${measured(job.examples_per_s)} measured`)],
  ["Predicted", (job) => predicted(job)],
  ["Waits for", (job) => job.outlook?.waits_for || null],
  ["Ahead of it", (job) => (job.outlook?.waits_for ? ahead(job.outlook) : null)],
  ["Expected start", (job, now) => (job.outlook?.waits_for ? (expected(job.outlook.start, now) ?? "never, as things are") : null)],
  ["Expected end", (job, now) => (job.ended_s == null ? (expected(job.outlook?.end, now) ?? time(job.expected_end_s, now)) : null)],
  ["Deadline", (job, now) => due(job, now)],
  ["Submitted", (job, now) => time(job.submitted_s, now)],
  ["Started", (job, now) => time(job.started_s, now)],
  ["Ended", (job, now) => time(job.ended_s, now)],
  ["Worker time", (job) => duration(job.worker_s)],
  ["Preempted", (job) => (job.preemptions ? `${count(job.preemptions)} ×` : null)],
  ["Failures", (job) => (job.failures ? `${count(job.failures)} ×` : null)],
  ["Digest", (job) => (job.digest ? { text: job.digest, code: true } : null)],
  ["Folder", (job) => ({ text: job.run_dir, code: true })],
];

function predicted(job) {
  const { predicted_examples_per_s: value, predicted_low: low, predicted_high: high } = job;
  if (value == null) return null;
  const interval = low != null && high != null ? ` (95 %: ${measured(low)}–${measured(high)})` : "";
  const by = off(job);
  const whom = job.workers === job.target_workers ? "" : ` with ${plural(job.target_workers, "worker")}`;
  const beyond = job.predicted_beyond ? `; ${job.predicted_beyond}` : "";
  return `${measured(value)}${whom}${interval}${by && `, off by ${by}`}${beyond}`;
}

function due(job, now) {
  const standing = deadline(job, now);
  return standing && { text: `${moment(job.deadline_s, now)} (${relative(job.deadline_s, now)})${standing.kind === "open" ? "" : `, ${standing.text}`}`, title: iso(job.deadline_s), deadline: standing.kind };
}

export class Detail {
  /** `hears.act(verb, name)` and `hears.limit(name, change)` do, `hears.close()` is told. */
  constructor(store, api, hears) {
    this.store = store;
    this.api = api;
    this.hears = hears;
    this.name = null;
    this.box = byId("detail");
  }

  /** Opens a job, or what was open goes on. */
  open(name, focus) {
    if (name !== this.name) {
      this.close();
      this.name = name;
      this.end = new AbortController();
      this.#build();
      show(this.box, true);
      document.body.classList.add("with-detail");
      this.render(this.hears.now());
      // Whoever only walks past should not ask for everything.
      this.timer = setTimeout(() => this.#load(), 150);
      byId("side").scrollTop = 0;
    }
    if (focus) byId("detail-title").focus();
  }

  close() {
    if (this.name === null) return false;
    this.name = null;
    this.end.abort();
    clearTimeout(this.timer);
    clearTimeout(this.refresh);
    this.curves.close();
    this.facts = [];
    this.box.replaceChildren();
    show(this.box, false);
    document.body.classList.remove("with-detail");
    return true;
  }

  #build() {
    const { job, colour } = this.store.jobs.get(this.name);
    const close = make("button", { type: "button", class: "quiet", "aria-label": "Close" }, "✕");
    close.addEventListener("click", () => this.hears.close());
    const title = make("h2", { id: "detail-title", tabindex: -1 }, job.name);
    this.state = make("span", { class: "state" });
    this.why = make("p", { class: "why" });
    this.buttons = [["suspend", "Suspend", "s"], ["resume", "Resume", "r"], ["cancel", "Cancel", "c"]].map(([verb, text, key]) => {
      const button = make("button", { type: "button", "data-verb": verb, "aria-keyshortcuts": key }, text);
      button.addEventListener("click", () => this.hears.act(verb, this.name));
      return button;
    });
    this.facts = FACTS.map(([name, value]) => {
      const text = make("dd");
      return { value, text, row: make("div", {}, make("dt", {}, name), text) };
    });
    const curves = make("div", { class: "curves" });
    this.curves = new Curves(curves);
    this.configuration = new Configuration(this.store, this.api, job.name);
    this.configuration.compares = (other) => this.curves.compare(other);
    this.log = new Log();
    this.box.replaceChildren(
      make("div", { class: "head" }, make("span", { class: `swatch job-${colour}`, "aria-hidden": "true" }), title, close),
      make("div", { class: "standing" }, this.state, make("div", { class: "buttons" }, ...this.buttons)),
      this.why,
      curves,
      make("dl", { class: "facts" }, ...this.facts.map(({ row }) => row)),
      this.#limits(job),
      this.configuration.box,
      make("h3", {}, "Journal and logs"),
      this.log.box,
    );
    this.job = null;
  }

  /** The form that changes numbers of workers and weight. */
  #limits(job) {
    const field = (label, value, attributes) => {
      const input = make("input", { type: "number", value, required: "", ...attributes });
      return [make("label", {}, label, input), input];
    };
    const [fewest, min] = field("Fewest workers", job.min_workers, { min: 1, step: 1 });
    const [most, max] = field("Most workers", job.max_workers, { min: 1, step: 1 });
    const [share, weight] = field("Weight", job.weight, { min: 0, step: "any" });
    const form = make("form", { class: "limits" }, fewest, most, share, make("button", {}, "Change"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (Number(min.value) > Number(max.value)) return complain(new Error("the fewest workers are more than the most"));
      const now = this.store.jobs.get(this.name).job;
      const change = {};
      if (Number(min.value) !== now.min_workers || Number(max.value) !== now.max_workers) change.workers = `${min.value}..${max.value}`;
      if (Number(weight.value) !== now.weight) change.weight = Number(weight.value);
      if (Object.keys(change).length) this.hears.limit(this.name, change);
    });
    this.limits = make("details", {}, make("summary", {}, "Change its limits"), form);
    return this.limits;
  }

  async #load() {
    const path = `/v1/jobs/${encodeURIComponent(this.name)}`;
    const { signal } = this.end;
    const complete = new AbortController();
    this.api.follow(`${path}/logs?follow=true&lines=${LINES}`, AbortSignal.any([signal, complete.signal]), {
      open: () => this.log.clear(),
      event: (name, text) => (name === "end" ? complete.abort() : this.log.add(name, JSON.parse(text))),
      refused: (error) => this.log.say(error),
    });
    this.configuration.load(signal);
    await this.#curve(path, signal);
  }

  /** Fetches the curve, and again while the job goes on. */
  async #curve(path, signal) {
    const { job } = this;
    try {
      const { points, evaluations } = await this.api.get(`${path}/curve?points=${POINTS}`, signal);
      this.curves.draw(points, evaluations, this.job);
    } catch (error) {
      if (signal.aborted) return;
    }
    const again = () => {
      if (signal.aborted) return;
      const news = this.job.step !== job.step || this.job.state !== job.state;
      if (news && !document.hidden) this.#curve(path, signal);
      else this.refresh = setTimeout(again, REFRESH_MS);
    };
    this.refresh = setTimeout(again, REFRESH_MS);
  }

  /** Brings the pane up to date. */
  render(now) {
    if (this.name === null) return;
    const entry = this.store.jobs.get(this.name);
    if (!entry) return this.hears.close();
    const { job } = entry;
    if (job.state !== this.job?.state) {
      this.state.replaceChildren(shape(job.state), job.state);
      set(this.state, { "data-state": job.state });
      const over = hasEnded(job.state);
      const can = { suspend: !over && job.state !== "suspended", resume: job.state === "suspended", cancel: !over };
      for (const button of this.buttons) show(button, can[button.dataset.verb]);
      show(this.limits, !over);
    }
    this.job = job;
    setText(this.why, job.why);
    show(this.why, Boolean(job.why));
    for (const { value, text, row } of this.facts) {
      const fact = value(job, now);
      show(row, fact !== null);
      if (fact === null) continue;
      setText(text, fact.text ?? fact);
      set(text, { title: fact.title ?? null, class: fact.code ? "code" : null, "data-deadline": fact.deadline ?? null });
    }
  }
}
