// The last lines of a job's journal and logs, as they are written.

import { make } from "./page.js";
import { iso, moment } from "./words.js";

/** Lines that are kept. */
export const LINES = 200;

export class Log {
  constructor() {
    this.box = make("ol", { class: "log", tabindex: 0, "aria-label": "Last lines of the journal and the logs" });
    this.clear();
  }

  clear() {
    this.box.replaceChildren(make("li", { class: "quiet-text" }, "Nothing was written yet."));
    this.fresh = true;
    this.steps = null;
  }

  /** Says why there are no lines. */
  say(error) {
    this.clear();
    this.box.replaceChildren(make("li", {}, [error.message, error.hint].filter(Boolean).join(" — ")));
  }

  /** Takes an event of the stream: `journal` with a line, and often a sentence; `log` with a file and its line. */
  add(name, data) {
    if (this.fresh) this.box.replaceChildren();
    this.fresh = false;
    const atEnd = this.box.scrollTop + this.box.clientHeight > this.box.scrollHeight - 8;
    if (name === "journal" && data.line.event === "committed") {
      this.#commit(data.line);
    } else if (name === "journal") {
      this.steps = null;
      this.box.append(journal(data));
    } else if (data.file !== "coordinator.log" || !/^step \d/.test(data.line)) {
      // What the coordinator says of steps is in the journal too, with its time.
      this.steps = null;
      this.box.append(make("li", {}, make("b", {}, data.file), " ", data.line));
    }
    while (this.box.children.length > LINES) this.box.firstElementChild.remove();
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
  }

  /** Steps are committed all the time: those without another word between them are one line. */
  #commit({ time_s, first, last }) {
    const from = this.steps?.from ?? first;
    const item = entry(time_s, `steps ${from}–${last} are committed`);
    if (this.steps) this.steps.item.replaceWith(item);
    else this.box.append(item);
    this.steps = { from, item };
  }
}

/** A line of the journal: its sentence, or what happened and the rest as names with values. */
function journal({ sentence, line: { time_s, event, ...rest } }) {
  if (sentence) return entry(time_s, sentence);
  const words = Object.entries(rest).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  return entry(time_s, `${event.replaceAll("_", " ")} ${words.join(", ")}`);
}

function entry(time_s, text) {
  const time = iso(time_s);
  return make("li", {}, make("time", { datetime: time, title: time }, moment(time_s)), " ", text);
}
