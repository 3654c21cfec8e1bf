// The table of jobs: only the rows of one page exist, and of those only what changed is touched.

import { arrange, byId, make, set, setText, shape, show } from "./page.js";
import { STATES, hasEnded } from "./store.js";
import { age, count, deadline, iso, limits, loss as shownLoss, measured, moment, off, percent, plural, relative, workers } from "./words.js";

const PAGE = 50;
const PAGE_NARROW = 20;
const narrow = window.matchMedia("(max-width: 700px)");

const share = (job) => (job.total_steps > 0 ? job.step / job.total_steps : 0);
const rank = (job) => Math.min(STATES.indexOf(job.state), STATES.indexOf("finished"));

/** Ways to sort, each with the value that decides; what has none comes last. Equal ones stay in order of submission. */
const ORDERS = [
  { key: "state", title: "State", value: ({ job }) => rank(job) },
  { key: "name", title: "Name", value: (entry) => entry.lower },
  { key: "age", title: "Age", value: ({ job }) => -job.submitted_s },
  { key: "workers", title: "Workers", value: ({ job }) => -job.workers },
  { key: "progress", title: "Progress", value: ({ job }) => -share(job) },
  { key: "loss", title: "Loss", value: ({ job }) => job.loss },
  { key: "rate", title: "Samples/s", value: ({ job }) => (job.examples_per_s == null ? null : -job.examples_per_s) },
  { key: "end", title: "End", value: ({ job }) => job.ended_s ?? job.expected_end_s ?? job.outlook?.end?.middle_s },
];

/** Columns: the key of the order that their head sorts by, and their title. */
const COLUMNS = [
  ["name", "Job"], ["state", "State"], ["workers", "Workers"], ["progress", "Progress"],
  ["loss", "Loss"], ["rate", "Samples/s"], ["end", "End"],
];

const HINTS = {
  rate: "Measured samples per second; in percent, how far the prediction is off",
  workers: "Workers now → workers that the policy gives",
};

const FILTERS = [
  ["all", "All states", () => true],
  ["open", "Not ended", (state) => !hasEnded(state)],
  ...STATES.map((name) => [name, name[0].toUpperCase() + name.slice(1), (state) => state === name]),
];

export class Jobs {
  /** `hears.open(name)` and `hears.older()` are told what the reader wants. */
  constructor(store, hears) {
    this.store = store;
    this.hears = hears;
    this.selected = null;
    this.listed = [];
    this.page = 0;
    this.order = "state";
    this.reversed = false;
    this.filter = "all";
    this.words = [];
    this.rows = new Map();
    this.stale = true;
    this.#controls();
  }

  #controls() {
    const head = byId("job-columns");
    this.heads = COLUMNS.map(([key, title]) => {
      const button = make("button", { type: "button", title: HINTS[key] ?? null }, title);
      button.addEventListener("click", () => this.#sort(key, this.order === key && !this.reversed));
      const cell = make("th", { role: "columnheader", scope: "col", class: `column-${key}` }, button);
      head.append(cell);
      return [key, cell];
    });
    byId("sort").append(...ORDERS.map(({ key, title }) => make("option", { value: key }, `Sort: ${title.toLowerCase()}`)));
    byId("state-filter").append(...FILTERS.map(([key, title]) => make("option", { value: key }, title)));
    byId("sort").addEventListener("change", (event) => this.#sort(event.target.value, false));
    byId("direction").addEventListener("click", () => this.#sort(this.order, !this.reversed));
    byId("state-filter").addEventListener("change", (event) => {
      this.filter = event.target.value;
      this.#changed();
    });
    byId("filter").addEventListener("input", (event) => {
      this.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.#changed();
    });
    byId("previous").addEventListener("click", () => this.#turn(this.page - 1));
    byId("next").addEventListener("click", () => this.#turn(this.page + 1));
    byId("older").addEventListener("click", () => this.hears.older());
    byId("job-rows").addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (!row || String(window.getSelection())) return;
      this.select(row.dataset.job);
      this.hears.open(row.dataset.job, false);
    });
    narrow.addEventListener("change", () => this.#changed());
  }

  #sort(key, reversed) {
    this.order = key;
    this.reversed = reversed;
    this.#changed();
  }

  #changed() {
    this.page = 0;
    this.stale = true;
    this.render(this.hears.now());
  }

  #turn(page) {
    this.page = page;
    this.render(this.hears.now());
    byId("jobs").scrollIntoView({ block: "start" });
  }

  #size() {
    return narrow.matches ? PAGE_NARROW : PAGE;
  }

  /** Filters and sorts. */
  #list() {
    const matches = FILTERS.find(([key]) => key === this.filter)[2];
    const { value } = ORDERS.find(({ key }) => key === this.order);
    const found = [];
    for (const entry of this.store.jobs.values()) {
      if (matches(entry.job.state) && this.words.every((word) => entry.lower.includes(word) || entry.job.queue?.toLowerCase().includes(word))) found.push([value(entry) ?? null, entry]);
    }
    const sign = this.reversed ? -1 : 1;
    found.sort(([a, x], [b, y]) => {
      if (a !== b) return a === null ? 1 : b === null ? -1 : a < b ? -sign : sign;
      // Of jobs that are over, the last comes first; of others the one that came first.
      const late = (y.job.ended_s ?? 0) - (x.job.ended_s ?? 0);
      return sign * (late || x.job.submitted_s - y.job.submitted_s) || (x.lower < y.lower ? -1 : 1);
    });
    this.listed = found.map(([, entry]) => entry);
    this.stale = false;
  }

  /** Brings the page up to date; `stale` says that a job changed since. */
  render(now) {
    if (this.stale) {
      this.#list();
      this.#say();
    }
    const size = this.#size();
    const pages = Math.max(1, Math.ceil(this.listed.length / size));
    this.page = Math.max(0, Math.min(this.page, pages - 1));
    const first = this.page * size;
    const visible = this.listed.slice(first, first + size);
    const tabbed = visible.some(({ job }) => job.name === this.selected) ? this.selected : visible[0]?.job.name;
    const rows = visible.map((entry, index) => {
      const row = this.#row(entry);
      row.update(entry, now);
      set(row.element, {
        "aria-rowindex": first + index + 2,
        "aria-selected": entry.job.name === this.selected,
        tabindex: entry.job.name === tabbed ? 0 : -1,
      });
      return row.element;
    });
    const focused = document.activeElement;
    arrange(byId("job-rows"), rows);
    // An element that moves loses the focus.
    if (focused !== document.activeElement && rows.includes(focused)) focused.focus({ preventScroll: true });
    for (const [name, row] of this.rows) if (!row.element.isConnected) this.rows.delete(name);
    show(byId("pages"), pages > 1);
    byId("previous").disabled = this.page === 0;
    byId("next").disabled = this.page === pages - 1;
    setText(byId("page-text"), `${count(first + 1)}–${count(first + visible.length)} of ${count(this.listed.length)}`);
  }

  #row(entry) {
    let row = this.rows.get(entry.job.name);
    if (!row) {
      row = new Row(entry);
      this.rows.set(entry.job.name, row);
    }
    return row;
  }

  /** What is around the rows: heads, numbers, and what to do when there are none. */
  #say() {
    for (const [key, cell] of this.heads) {
      set(cell, { "aria-sort": this.order === key ? (this.reversed ? "descending" : "ascending") : null });
    }
    byId("sort").value = this.order;
    setText(byId("direction"), this.reversed ? "↓" : "↑");
    set(byId("direction"), { "aria-pressed": this.reversed });
    const counts = new Map();
    for (const { job } of this.store.jobs.values()) counts.set(job.state, (counts.get(job.state) ?? 0) + 1);
    for (const [key, title, matches] of FILTERS) {
      const number = STATES.reduce((sum, state) => sum + (matches(state) ? (counts.get(state) ?? 0) : 0), 0);
      setText(byId("state-filter").namedItem(key) ?? this.#option(key), `${title} (${count(number)})`);
    }
    set(byId("job-table"), { "aria-rowcount": this.listed.length + 1 });
    show(byId("job-table"), this.listed.length > 0);
    this.#sayNothing();
    const cluster = this.store.cluster?.jobs ?? {};
    const ended = STATES.filter(hasEnded).map((state) => (cluster[state] ?? 0) - (counts.get(state) ?? 0));
    const missing = ended.reduce((sum, number) => sum + Math.max(0, number), 0);
    show(byId("older"), missing > 0);
    setText(byId("older"), `Load ${plural(missing, "job")} that ended earlier`);
  }

  #option(key) {
    return byId("state-filter").querySelector(`option[value=${key}]`);
  }

  #sayNothing() {
    const box = byId("jobs-empty");
    show(box, this.listed.length === 0);
    if (this.listed.length) return;
    if (!this.store.cluster) {
      box.replaceChildren("Waiting for the daemon …");
    } else if (this.store.jobs.size === 0) {
      box.replaceChildren("No jobs yet. Submit one: ", make("code", {}, "bellwether submit JOB.toml"));
    } else {
      const clear = make("button", { type: "button", class: "quiet" }, "Show all jobs");
      clear.addEventListener("click", () => this.clear());
      box.replaceChildren("No job matches. ", clear);
    }
  }

  /** Takes the filters away. */
  clear() {
    byId("filter").value = "";
    byId("state-filter").value = "all";
    this.words = [];
    this.filter = "all";
    this.#changed();
  }

  /** Selects a job; `focus` also goes to its row. */
  select(name, focus = false) {
    this.selected = name;
    const index = this.listed.findIndex(({ job }) => job.name === name);
    if (index >= 0) this.page = Math.floor(index / this.#size());
    this.render(this.hears.now());
    if (focus) this.focus();
  }

  /** Puts the focus on the selected row. */
  focus() {
    const row = this.rows.get(this.selected)?.element;
    row?.focus({ preventScroll: true });
    row?.scrollIntoView({ block: "nearest" });
  }

  /** Selects the job that is `places` further down; returns its name. */
  move(places) {
    if (!this.listed.length) return null;
    const at = this.listed.findIndex(({ job }) => job.name === this.selected);
    const to = at < 0 ? this.page * this.#size() : Math.max(0, Math.min(at + places, this.listed.length - 1));
    this.select(this.listed[to].job.name, true);
    return this.selected;
  }
}

/** The row of one job. */
class Row {
  constructor(entry) {
    const { job } = entry;
    const cells = Object.fromEntries(COLUMNS.map(([key, title]) => {
      const main = make("span", { class: "main" });
      const sub = make("small", { class: "sub" });
      const cell = make("td", { role: "gridcell", class: `column-${key}`, "data-label": title }, main, sub);
      return [key, { cell, main, sub }];
    }));
    this.cells = cells;
    this.element = make("tr", { role: "row", "data-job": job.name }, ...COLUMNS.map(([key]) => cells[key].cell));
    cells.name.cell.prepend(make("span", { class: `swatch job-${entry.colour}`, "aria-hidden": "true" }));
    setText(cells.name.main, job.name);
    set(cells.name.main, { title: job.name });
    this.word = make("span");
    this.sign = null;
    cells.state.main.append(this.word);
    this.bar = make("progress", { max: 1, value: 0 });
    cells.progress.main.append(this.bar);
    this.steps = make("span");
    this.share = make("span");
    cells.progress.sub.append(this.steps, this.share);
    this.rate = make("span");
    this.off = make("span", { class: "off" });
    cells.rate.main.append(this.rate, " ", this.off);
  }

  update({ job }, now) {
    this.#changed(job);
    this.#timed(job, now);
  }

  #changed(job) {
    if (job === this.job) return;
    const { name, state, workers: number, loss, rate } = this.cells;
    if (job.state !== this.job?.state) {
      this.sign?.remove();
      this.sign = shape(job.state);
      state.main.prepend(this.sign);
      setText(this.word, job.state);
      set(this.element, { "data-state": job.state });
    }
    const why = job.why || job.outlook?.waits_for || "";
    setText(state.sub, why);
    set(state.sub, { title: why || null });
    setText(number.main, workers(job));
    setText(number.sub, `of ${limits(job)}`);
    set(this.bar, { value: share(job), "aria-label": `Progress of ${job.name}` });
    setText(this.steps, `${count(job.step)} / ${count(job.total_steps)}`);
    setText(this.share, percent(share(job)));
    setText(loss.main, shownLoss(job.loss));
    setText(this.rate, measured(job.examples_per_s));
    setText(this.off, off(job));
    setText(rate.sub, job.predicted_examples_per_s == null ? "" : `${measured(job.predicted_examples_per_s)} predicted`);
    set(name.sub, { title: iso(job.submitted_s) });
    this.job = job;
  }

  #timed(job, now) {
    const { name, end } = this.cells;
    setText(name.sub, `${age(now - job.submitted_s)} old${job.queue ? ` · ${job.queue}` : ""}`);
    const start = job.outlook?.waits_for ? job.outlook.start?.middle_s : null;
    const time = job.ended_s ?? job.expected_end_s ?? job.outlook?.end?.middle_s;
    const soon = (time) => (time < now ? "any moment" : relative(time, now));
    setText(end.main, time == null ? "–" : job.ended_s == null ? soon(time) : relative(time, now));
    set(end.main, { title: time == null ? null : `${moment(time, now)} (${iso(time)})` });
    const due = deadline(job, now);
    setText(end.sub, due?.text ?? (start == null ? "" : `starts ${soon(start)}`));
    set(end.sub, { "data-deadline": due?.kind ?? null, title: due ? iso(job.deadline_s) : null });
  }
}
