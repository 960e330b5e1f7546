// The sessions at nodes, those with the most messages queued first.

import { badge, element, errorBox, field, select, table } from "../dom.js";
import { bytes, count } from "../format.js";

export const title = "Sessions";
export const seesNetwork = true;

const MOST_READ = 5_000;
const MOST_SHOWN = 500;
const STATES = { connected: "good", stalled: "bad", offline: "none" };

const COLUMNS = [
  { title: "Client", class: "text", cell: (each) => each.client || "(unknown)" },
  { title: "Node", cell: (each) => each.node },
  { title: "State", cell: (each) => badge(each.state, STATES[each.state]) },
  { title: "Queued", number: true, cell: (each) => count(each.queued) },
  { title: "Bytes", number: true, cell: (each) => bytes(each.queued_bytes) },
  { title: "Accepted", number: true, cell: (each) => count(each.accepted) },
  { title: "Delivered", number: true, cell: (each) => count(each.delivered) },
  { title: "Expired", number: true, cell: (each) => count(each.expired) },
  {
    title: "Dropped",
    class: "text",
    cell: (each) => Object.entries(each.dropped).map(([reason, number]) => `${count(number)} ${reason}`).join(", "),
  },
];

export function open(view, { api }, signal) {
  const client = element("input", { type: "search", name: "client" });
  const node = element("input", { type: "search", name: "node" });
  const state = select([["", "any"], ["connected", "connected"], ["stalled", "stalled"], ["offline", "offline"]]);
  const number = element("p", { class: "note", role: "status" });
  const error = errorBox();
  const { box, fill } = table("Sessions", COLUMNS, "None matches.");
  const form = element("form", { class: "bar" },
    field("Client", client), field("Node", node), field("State", state),
    element("button", { type: "submit" }, "Show"), number);
  view.append(form, error.box, box, element("p", { class: "note" },
    "A node lists the 1,000 sessions that have the most messages queued. ",
    "Accepted = delivered + expired + dropped + queued."));

  async function load() {
    view.setAttribute("aria-busy", "true");
    try {
      const query = { client: client.value.trim(), node: node.value.trim(), in_state: state.value };
      const { items, more } = await api.list("sessions", query, MOST_READ, signal);
      items.sort((a, b) => b.queued - a.queued);
      fill(items.slice(0, MOST_SHOWN));
      const shown = items.length > MOST_SHOWN ? `, of which ${count(MOST_SHOWN)} are shown` : "";
      number.textContent = `${more ? "over " : ""}${count(items.length)} sessions${shown}`;
      error.show(null);
    } catch (problem) {
      if (problem.name !== "AbortError") error.show(problem);
    }
    view.removeAttribute("aria-busy");
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load();
  });
  state.addEventListener("change", load);
  load();
}
