// The head of the page: who decides, how many slots are used, how well.

import { ask, byId, complain, make, set, setText, show } from "./page.js";
import { spark } from "./slots.js";
import { hasEnded } from "./store.js";
import { count, duration, percent, sentence } from "./words.js";

const MINUTES = 15;
const BINS = 60;

export class Overview {
  constructor(store, hears) {
    this.store = store;
    this.hears = hears;
    this.select = byId("policy");
    this.select.addEventListener("change", () => this.#choose());
  }

  /** Fetches the policies that there are. */
  async policies(api) {
    try {
      const { policies } = await api.get("/v1/policies");
      this.ideas = new Map(policies.map(({ name, idea }) => [name, idea]));
      this.select.replaceChildren(...policies.map(({ name, idea }) => make("option", { value: name, title: idea }, name)));
      this.select.disabled = false;
      this.#policy();
    } catch (error) {
      complain(error);
    }
  }

  /** Shows the policy that decides, unless the reader is about to choose one. */
  #policy() {
    const { policy } = this.store.cluster;
    if (this.asking) return;
    if (![...this.select.options].some(({ value }) => value === policy)) this.select.append(make("option", { value: policy }, policy));
    if (this.select.value !== policy) this.select.value = policy;
  }

  async #choose() {
    const policy = this.select.value;
    this.asking = true;
    const text = `${sentence(this.ideas.get(policy) ?? "")} All jobs are new to it, and it may change their workers at once. A job that has to wait goes on later from its checkpoint.`.trim();
    if (await ask(`Let ${policy} decide from now on?`, text, `Use ${policy}`)) await this.hears.choose(policy);
    this.asking = false;
    this.#policy();
  }

  render(now) {
    const { cluster } = this.store;
    if (!cluster) return;
    this.#policy();
    const used = cluster.slots - cluster.free;
    setText(byId("slots-used"), `${count(used)} of ${count(cluster.slots)}`);
    set(byId("slots-used"), { title: `${count(cluster.free)} free` });
    const start = Math.max(now - 60 * MINUTES, cluster.since_s);
    const shares = this.store.shares(start, now, BINS);
    const mean = shares.reduce((sum, share) => sum + share, 0) / BINS;
    setText(byId("utilization"), percent(mean));
    set(byId("utilization"), { title: `${percent(cluster.utilization)} in the ${duration(now - cluster.since_s)} since the ledger began` });
    spark(byId("spark"), this.store.shares(now - 60 * MINUTES, now, BINS));
    this.#counts(cluster);
    show(byId("no-outlook"), cluster.no_outlook != null);
    setText(byId("no-outlook"), `It is not foreseen when jobs start and end: ${cluster.no_outlook ?? ""}`);
  }

  #counts({ jobs, time_scale }) {
    const waiting = jobs.queued ?? 0;
    const active = (jobs.running ?? 0) + (jobs.starting ?? 0) + (jobs.stopping ?? 0);
    setText(byId("job-counts"), `${count(active)} active, ${count(waiting)} waiting`);
    const ended = Object.entries(jobs).reduce((sum, [state, number]) => sum + (hasEnded(state) ? number : 0), 0);
    set(byId("job-counts"), { title: `${count(jobs.suspended ?? 0)} suspended, ${count(ended)} ended` });
    const title = `${active} active, ${waiting} waiting · Bellwether`;
    if (document.title !== title) document.title = title;
    setText(byId("pace"), time_scale === 1 ? "" : `the policy’s clock runs ${count(time_scale)} times as fast`);
  }
}
