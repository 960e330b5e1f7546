// Requests to the API, each with the token of the user. Errors are problem details (RFC 9457).

const KEY = "hbroker.token";

/** A request that was refused, or was not answered (status 0). */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** The API. `onUnauthorized(detail)` is called when it does not take the token any more. */
export class Api {
  constructor(onUnauthorized) {
    this.onUnauthorized = onUnauthorized;
  }

  /** The token. It is kept for as long as the tab is open. */
  get token() {
    return sessionStorage.getItem(KEY);
  }

  set token(text) {
    if (text === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, text);
  }

  /** Requests something below /v1. Returns what its JSON says. Throws Problem. */
  async get(path, query = {}, signal = undefined) {
    return (await this.#send("GET", path, { query, signal })).json();
  }

  /** Sends JSON to something below /v1. Returns what the JSON of the answer says. Throws Problem. */
  async post(path, body) {
    return (await this.#send("POST", path, { body })).json();
  }

  /** All items of a list, at most `most`, and whether there are more. Throws Problem. */
  async list(path, query = {}, most = 10_000, signal = undefined) {
    const items = [];
    let cursor = null;
    do {
      const limit = Math.min(1_000, most - items.length);
      const page = await this.get(path, { ...query, limit, ...(cursor === null ? {} : { cursor }) }, signal);
      items.push(...page.items);
      cursor = page.next;
    } while (cursor !== null && items.length < most);
    return { items, more: cursor !== null };
  }

  /**
   * The server-sent events of a stream: `id`, `name` and `data` of each. `onOpen` is called when it has begun.
   * (EventSource cannot send a token.) Throws Problem.
   */
  async* stream(path, { query = {}, after = null, signal, onOpen = () => {} }) {
    const headers = { Accept: "text/event-stream", ...(after === null ? {} : { "Last-Event-ID": String(after) }) };
    const answer = await this.#send("GET", path, { query, headers, signal });
    onOpen();
    let event = { id: null, name: "message", data: [] };
    for await (const line of lines(answer.body)) {
      if (line === "") {
        if (event.data.length) yield { ...event, data: event.data.join("\n") };
        event = { id: null, name: "message", data: [] };
        continue;
      }
      const [, key, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (key === "event") event.name = value;
      else if (key === "id") event.id = Number(value);
      else if (key === "data") event.data.push(value);
    }
  }

  async #send(method, path, { query = {}, body, headers = {}, signal }) {
    const given = Object.entries(query).filter(([, value]) => value !== "" && value !== null);
    const url = `/v1/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
    const { token } = this;
    const all = {
      ...headers,
      ...(token === null ? {} : { Authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
    };
    let answer;
    try {
      const content = body && JSON.stringify(body);
      answer = await fetch(url, { method, headers: all, signal, body: content, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, "The API does not answer.");
    }
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    const detail = [problem.detail ?? answer.statusText, ...(problem.errors ?? [])].join(" – ");
    // Only if the token was not replaced meanwhile.
    if (answer.status === 401 && token === this.token) this.onUnauthorized(detail);
    throw new Problem(answer.status, detail);
  }
}

/** The lines of a body as they come. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const parts = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      let from = 0;
      let to;
      while ((to = value.indexOf("\n", from)) >= 0) {
        parts.push(value.slice(from, to));
        from = to + 1;
        const line = parts.join("");
        parts.length = 0;
        yield line.endsWith("\r") ? line.slice(0, -1) : line;
      }
      parts.push(value.slice(from));
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : new Problem(0, "The connection to the API has ended.");
  } finally {
    await reader.cancel().catch(() => {});
  }
}
