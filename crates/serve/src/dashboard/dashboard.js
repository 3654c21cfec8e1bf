// The page: opens a session, follows the daemon's events, and gives every part what it needs.

import { Api, openSession } from "./api.js";
import { Decisions } from "./decisions.js";
import { Detail } from "./detail.js";
import { Jobs } from "./jobs.js";
import { keys } from "./keys.js";
import { News } from "./news.js";
import { Overview } from "./overview.js";
import { ask, byId, complain, set, setText, show } from "./page.js";
import { Queues } from "./queues.js";
import { Slots } from "./slots.js";
import { Store, hasEnded } from "./store.js";
import { moment } from "./words.js";

const SESSION = "bellwether-session";
const TICK_MS = 1000;
const OLDER = 500;

/** The code in the address, if there is one. */
const givenCode = () => new URLSearchParams(location.hash.slice(1)).get("code");

/** The session that the address buys, which then no longer shows its code, or the one of before. */
async function takeSession() {
  const code = givenCode();
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    sessionStorage.removeItem(SESSION);
    sessionStorage.setItem(SESSION, await openSession(code));
  }
  return sessionStorage.getItem(SESSION);
}

class Page {
  constructor(session) {
    this.api = new Api(session);
    this.store = new Store();
    this.end = new AbortController();
    this.dirty = new Set();
    this.frame = 0;
    this.live = false;
    const hears = {
      now: () => this.api.now(),
      open: (name, focus) => this.open(name, focus),
      close: () => this.close(),
      older: () => this.older(),
      act: (verb, name) => this.act(verb, name),
      limit: (name, change) => this.request("PATCH", `/v1/jobs/${encodeURIComponent(name)}`, change),
      choose: (policy) => this.request("PUT", "/v1/policy", { policy }),
      say: (text) => this.news.say(text),
    };
    this.news = new News();
    this.jobs = new Jobs(this.store, hears);
    this.slots = new Slots(this.store, hears);
    this.detail = new Detail(this.store, this.api, hears);
    this.decisions = new Decisions(this.store, hears);
    this.overview = new Overview(this.store, hears);
    this.queues = new Queues(this.store);
    keys(this);
    this.soon("jobs", "decisions");
    setInterval(() => this.soon("time"), TICK_MS);
    this.#follow();
  }

  #follow() {
    let first = true;
    this.api.follow("/v1/events", this.end.signal, {
      open: () => {
        first = true;
      },
      event: (name, text) => {
        if (name !== "state") return;
        const start = performance.now();
        const changes = this.store.apply(JSON.parse(text), first);
        if (first) {
          this.#connection("live");
          this.overview.policies(this.api);
        } else {
          this.news.changes(changes);
        }
        first = false;
        this.jobs.stale = true;
        this.script_ms = (this.script_ms ?? 0) + performance.now() - start;
        this.soon("jobs", "decisions", "time");
      },
      lost: () => this.#connection(this.store.cluster ? "reconnecting" : "connecting"),
      refused: (error) => {
        this.end.abort();
        sessionStorage.removeItem(SESSION);
        close(error.status === 401 ? "This session has ended: it ends with the daemon’s process." : error.message);
      },
    });
  }

  #connection(state) {
    this.live = state === "live";
    const text = state === "reconnecting" ? `reconnecting, as of ${moment(this.api.heard_s)}` : state;
    set(byId("connection"), { "data-state": state });
    if (byId("connection-text").textContent === text) return;
    setText(byId("connection-text"), text);
    this.news.say(this.live ? "connected" : "the connection is lost");
  }

  /** Brings parts up to date with the next frame. */
  soon(...parts) {
    for (const part of parts) this.dirty.add(part);
    this.frame ||= requestAnimationFrame(() => this.#render());
  }

  #render() {
    const start = performance.now();
    this.frame = 0;
    const parts = this.dirty;
    this.dirty = new Set();
    const now = this.api.now();
    if (parts.has("decisions")) this.decisions.render();
    this.jobs.render(now);
    this.detail.render(now);
    this.slots.highlight(this.detail.name);
    if (parts.has("time")) {
      // What is held now is not known while nobody says so.
      const known = this.live ? now : this.api.heard_s;
      this.store.prune(known);
      this.slots.render(known);
      this.overview.render(known);
      this.queues.render();
    }
    const script_ms = (this.script_ms ?? 0) + performance.now() - start;
    this.script_ms = 0;
    document.dispatchEvent(new CustomEvent("bellwether:rendered", { detail: { script_ms, event: parts.has("jobs") } }));
  }

  open(name, focus) {
    if (!this.store.jobs.has(name)) return this.#fetch(name, focus);
    this.jobs.select(name);
    this.detail.open(name, focus);
    this.soon();
  }

  /** A job that ended long ago is known by name only. */
  async #fetch(name, focus) {
    try {
      this.store.put(await this.api.get(`/v1/jobs/${encodeURIComponent(name)}`));
      this.jobs.stale = true;
      this.open(name, focus);
    } catch (error) {
      complain(error);
    }
  }

  close() {
    if (!this.detail.close()) return;
    this.jobs.focus();
    this.soon();
  }

  async older() {
    byId("older").disabled = true;
    try {
      let after = "";
      do {
        const answer = await this.api.get(`/v1/jobs?limit=${OLDER}${after && `&after=${encodeURIComponent(after)}`}`);
        for (const job of answer.jobs) this.store.put(job);
        after = answer.next ?? null;
      } while (after);
    } catch (error) {
      complain(error);
    }
    byId("older").disabled = false;
    this.jobs.stale = true;
    this.soon("jobs");
  }

  /** Suspends, resumes or cancels. */
  async act(verb, name) {
    const { job } = this.store.jobs.get(name) ?? {};
    if (!job) return;
    if (hasEnded(job.state)) return this.news.say(`${name} has ended`);
    if ((verb === "suspend" && job.state === "suspended") || (verb === "resume" && job.state !== "suspended")) {
      return this.news.say(`${name} is ${job.state}`);
    }
    if (verb === "cancel" && !(await ask(`Cancel ${name}?`, "It stops training and cannot be resumed. Its folder and its last checkpoint stay.", "Cancel the job"))) return;
    await this.request("POST", `/v1/jobs/${encodeURIComponent(name)}/${verb}`);
  }

  async request(method, path, body) {
    try {
      await this.api.send(method, path, body);
      return true;
    } catch (error) {
      complain(error);
      return false;
    }
  }
}

/** Says that there is no session, and how to get one. */
function close(why) {
  show(byId("board"), false);
  show(byId("entry"), true);
  if (why) setText(byId("entry-why"), why);
  set(byId("connection"), { "data-state": "closed" });
  setText(byId("connection-text"), "not connected");
}

window.addEventListener("hashchange", () => givenCode() && location.reload());

takeSession().then(
  (session) => (session ? new Page(session) : close()),
  (error) => close(error.status === 401 ? "The code in this address was used before, or is too old." : error.message),
);
