// What the page knows of the network, and keeps up to date: from the stream of events, which says what has changed, and
// requests for that. While the page is hidden it follows nothing.

const MOST_EVENTS = 1_000;
const MOST_HISTORY = 400;
const HISTORY_MS = 10 * 60_000;
const POLL_MS = 10_000; // A node that is silent says nothing. So ask from time to time.
const RETRY_MS = [1_000, 30_000];

/**
 * The network, live. It dispatches an event when one of these has changed: `network`, `nodes`, `alerts`, `moves`,
 * `events`, `connection`. `signal` ends it.
 */
export class Live extends EventTarget {
  network = null;
  nodes = new Map();
  alerts = [];
  moves = new Map();
  events = []; // The newest is the last one.
  added = 0; // How many events were ever added.
  history = []; // The sums of the network over the last minutes.
  problem = null; // Why it is not live; null: it is.

  #api;
  #signal;
  #watchers = 0;
  #refreshes;

  constructor(api, signal) {
    super();
    this.#api = api;
    this.#signal = signal;
    const period = () => Math.max(1_000, 5 * (this.network?.nodes ?? 0));
    this.#refreshes = {
      network: new Refresh(() => this.#readNetwork(), period, signal),
      nodes: new Refresh(() => this.#readNodes(), period, signal),
      alerts: new Refresh(() => this.#readAlerts(), period, signal),
    };
  }

  /** Begins to follow the network. */
  start() {
    this.#refreshes.network.ask();
    this.#refreshes.alerts.ask();
    this.#readHistory();
    this.#readMoves();
    this.#follow();
    const timer = setInterval(() => this.#poll(), POLL_MS);
    this.#signal.addEventListener("abort", () => clearInterval(timer));
  }

  /** Keeps the nodes up to date until `signal` ends it. Without a watcher, they are not requested. */
  watchNodes(signal) {
    this.#watchers += 1;
    signal.addEventListener("abort", () => { this.#watchers -= 1; });
    this.#refreshes.nodes.ask();
  }

  /** Calls `listener` now, and when one of `names` has changed, until `signal` ends it. */
  on(names, signal, listener) {
    for (const name of names) this.addEventListener(name, listener, { signal });
    listener();
  }

  #poll() {
    if (document.hidden) return;
    this.#refreshes.network.ask();
    if (this.#watchers) this.#refreshes.nodes.ask();
  }

  async #readNetwork() {
    this.network = await this.#api.get("network", {}, this.#signal);
    const { rates, queued_messages: queued, sessions } = this.network;
    const now = Date.now();
    this.history.push({ at: now, ...rates, queued, sessions });
    this.history = this.history.filter((each) => each.at > now - HISTORY_MS).slice(-MOST_HISTORY);
    this.#tell("network");
  }

  async #readHistory() {
    try {
      const { items } = await this.#api.get("network/history", {}, this.#signal);
      const now = Date.now();
      const samples = items.map(({ age_s: age, rates, queued_messages: queued, sessions }) =>
        ({ at: now - 1_000 * age, ...rates, queued, sessions }));
      this.history = [...samples, ...this.history];
      if (this.network !== null) this.#tell("network");
    } catch {
      // The stream says so.
    }
  }

  async #readNodes() {
    const { items } = await this.#api.list("nodes", {}, 100_000, this.#signal);
    this.nodes = new Map(items.map((node) => [node.name, node]));
    this.#tell("nodes");
  }

  async #readAlerts() {
    this.alerts = (await this.#api.list("alerts", {}, 1_000, this.#signal)).items;
    this.#tell("alerts");
  }

  async #readMoves() {
    try {
      const { items } = await this.#api.list("moves", {}, 1_000, this.#signal);
      for (const move of items) this.moves.set(move.id, { ...move, ...this.moves.get(move.id) });
      this.#tell("moves");
    } catch {
      // The stream says so.
    }
  }

  async #follow() {
    let last = 0; // So the events come first that the API has kept.
    let [pause, longest] = RETRY_MS;
    while (!this.#signal.aborted) {
      await shown(this.#signal);
      const paused = new AbortController();
      const pauseIfHidden = () => { if (document.hidden) paused.abort(); };
      document.addEventListener("visibilitychange", pauseIfHidden);
      try {
        const onOpen = () => { [pause] = RETRY_MS; this.#setProblem(null); };
        const signal = AbortSignal.any([this.#signal, paused.signal]);
        for await (const event of this.#api.stream("events", { after: last, signal, onOpen })) {
          if (event.id !== null) last = event.id;
          this.#take(event.name, JSON.parse(event.data));
        }
        this.#setProblem("The API has ended the stream.");
      } catch (error) {
        if (error.name !== "AbortError") this.#setProblem(error.message);
        if (error.status === 401 || error.status === 403) return;
      } finally {
        document.removeEventListener("visibilitychange", pauseIfHidden);
      }
      if (!paused.signal.aborted) await sleep(pause, this.#signal);
      pause = Math.min(2 * pause, longest);
    }
  }

  #take(kind, content) {
    if (kind === "node") {
      this.#refreshes.network.ask();
      if (this.#watchers) this.#refreshes.nodes.ask();
      return;
    }
    if (kind === "alert") this.#refreshes.alerts.ask();
    if (kind === "move") {
      this.moves.delete(content.id);
      this.moves.set(content.id, content);
      while (this.moves.size > MOST_EVENTS) this.moves.delete(this.moves.keys().next().value);
      this.#tell("moves");
    }
    this.added += 1;
    const said = new Date(content.time);
    this.events.push({ number: this.added, kind, content, at: Number.isNaN(said.getTime()) ? new Date() : said });
    if (this.events.length > MOST_EVENTS) this.events.shift();
    this.#tell("events");
  }

  #setProblem(problem) {
    if (problem === this.problem || this.#signal.aborted) return;
    this.problem = problem;
    this.#tell("connection");
  }

  #tell(name) {
    this.dispatchEvent(new Event(name));
  }
}

/** Does work when it is asked to, at most once in `period()` milliseconds, and never twice at the same time. */
class Refresh {
  #due = null;
  #isBusy = false;
  #isAsked = false;
  #last = -Infinity;

  constructor(work, period, signal) {
    Object.assign(this, { work, period, signal });
    signal.addEventListener("abort", () => clearTimeout(this.#due));
  }

  ask() {
    if (this.#isBusy) this.#isAsked = true;
    else if (this.#due === null && !this.signal.aborted) {
      const wait = Math.max(0, this.#last + this.period() - performance.now());
      this.#due = setTimeout(() => this.#run(), wait);
    }
  }

  async #run() {
    this.#isBusy = true;
    this.#isAsked = false;
    this.#last = performance.now();
    try {
      await this.work();
    } catch {
      // The stream fails, too, and says so.
    }
    this.#isBusy = false;
    this.#due = null;
    if (this.#isAsked) this.ask();
  }
}

const sleep = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

/** Waits until the page is visible. */
const shown = (signal) => new Promise((resolve) => {
  const done = new AbortController();
  const look = () => {
    if (document.hidden && !signal.aborted) return;
    done.abort();
    resolve();
  };
  document.addEventListener("visibilitychange", look, { signal: done.signal });
  signal.addEventListener("abort", look, { signal: done.signal });
  look();
});
