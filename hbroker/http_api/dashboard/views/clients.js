// The MQTT clients of all gateways, and the sessions of those that are offline.

import { confirm } from "../dialogs.js";
import { badge, element, field, select } from "../dom.js";
import { count, dateTime } from "../format.js";
import { pagedTable } from "../paged_table.js";

export const title = "Clients";
export const seesNetwork = true;

const VERSIONS = { 3: "3.1", 4: "3.1.1", 5: "5" };

export function open(view, { api, caller }, signal) {
  const gateway = element("input", { type: "search", name: "gateway" });
  const state = select([["", "any"], ["connected", "connected"], ["offline", "offline"]]);
  const silent = element("p", { class: "error", hidden: true });
  const columns = [
    { title: "Client", class: "text", cell: (each) => each.client },
    { title: "Workspace", cell: (each) => each.workspace ?? "" },
    { title: "Gateway", cell: (each) => each.gateway },
    { title: "State", cell: (each) => badge(each.state, each.state === "connected" ? "good" : "none") },
    { title: "User", cell: (each) => each.user ?? "" },
    { title: "Address", cell: (each) => each.address ?? "" },
    { title: "MQTT", cell: (each) => VERSIONS[each.version] ?? "" },
    { title: "Since", cell: (each) => (each.since_us ? dateTime(new Date(each.since_us / 1_000)) : "") },
    { title: "Subscriptions", number: true, cell: (each) => count(each.subscriptions) },
    { title: "Queued", number: true, cell: (each) => count(each.queued ?? 0) },
    { title: "Dropped", number: true, cell: (each) => count(each.dropped ?? 0) },
  ];
  if (caller.changes_network) {
    columns.push({
      title: "Actions",
      cell: (each) => (each.state === "connected" ? disconnect(each) : element("span", {}, purge(each), " ", end(each))),
    });
  }
  const { whole, load } = pagedTable("MQTT clients", columns, async (cursor, limit) => {
    const query = { limit, cursor, gateway: gateway.value.trim(), in_state: state.value };
    const page = await api.get("clients", query, signal);
    silent.hidden = page.silent.length === 0;
    silent.textContent = `These gateways did not answer, and their clients are missing: ${page.silent.join(", ")}`;
    return page;
  }, "None matches.");

  function change(each, label, text, path, done) {
    const who = { client: each.client, workspace: each.workspace };
    const ask = () => confirm(`${label} of ${each.client}?`, [element("p", {}, text)], label, async () => {
      await api.post(path, who);
      load();
      return done;
    }, { isDangerous: true });
    return element("button", { type: "button", "aria-label": `${label} of ${each.client}`, onclick: ask }, `${label}…`);
  }

  const purge = (each) => change(each, "Purge queue",
    "All messages that wait for it are discarded. Its subscriptions stay.",
    "clients/purge", `Nothing waits for ${each.client} any more.`);
  const end = (each) => change(each, "End session",
    "Its subscriptions, and all that waits for it, are discarded.",
    "clients/end-session", `The session of ${each.client} has ended.`);

  function disconnect(each) {
    const ask = () => confirm(`Disconnect ${each.client}?`, [
      element("p", {}, "Its session stays, and it may connect again at once."),
    ], "Disconnect", async () => {
      const { gateways } = await api.post("clients/disconnect", { client: each.client, workspace: each.workspace });
      load();
      return gateways.length ? `${each.client} was disconnected.` : `${each.client} was not connected any more.`;
    }, { isDangerous: true });
    const name = `Disconnect ${each.client}`;
    return element("button", { type: "button", "aria-label": name, onclick: ask }, "Disconnect…");
  }

  const form = element("form", { class: "bar" },
    field("Gateway", gateway), field("State", state), element("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  state.addEventListener("change", load);
  view.append(form, silent, whole);
  load();
}
