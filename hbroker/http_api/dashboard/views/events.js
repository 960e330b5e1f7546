// What happens in the network, live: events of nodes and gateways, alerts, and moves.

import { badge, element, field, table } from "../dom.js";
import { clock, count, cut, dateTime } from "../format.js";

export const title = "Events";
export const seesNetwork = true;

const KINDS = { alert: "warn", audit: "none", missed: "bad", move: "good" };
const NOT_SHOWN = new Set(["event", "node", "time", "v"]);

export const EVENT_COLUMNS = [
  { title: "Time", cell: ({ at }) => element("time", { datetime: at.toISOString(), title: dateTime(at) }, clock(at)) },
  { title: "Kind", cell: ({ kind }) => badge(kind, KINDS[kind] ?? "none") },
  { title: "What", cell: ({ kind, content }) => what(kind, content) },
  { title: "Node", cell: ({ content }) => String(content.node ?? "") },
  { title: "Details", class: "text details", cell: ({ content }) => cut(details(content), 300) },
];

function what(kind, content) {
  if (kind === "alert") return `${content.alert ?? content.topic} ${content.state}`;
  if (kind === "move" || kind === "plan") return `${content.state}`;
  return String(content.event ?? kind);
}

function details(content) {
  return Object.entries(content)
    .filter(([name, value]) => !NOT_SHOWN.has(name) && value !== null && value !== "")
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("  ");
}

export function open(view, { live }, signal) {
  const filter = element("input", { type: "search", oninput: () => drawAll() });
  const number = element("p", { class: "note" });
  const { box, body, row, fill } = table("Events", EVENT_COLUMNS, "None yet, or none that matches.");
  let newest = 0;
  let isDue = false;
  view.append(
    element("div", { class: "bar" }, field("Filter", filter, "by any word of an event"), number), box,
    element("p", { class: "note" }, "The last 1,000 since the API began. ",
      element("code", {}, "hbroker audit --follow"), " shows them in a terminal."));

  const matches = (event) => {
    const wanted = filter.value.trim().toLowerCase();
    return wanted === "" || JSON.stringify([event.kind, event.content]).toLowerCase().includes(wanted);
  };

  function drawAll() {
    newest = live.added;
    fill(live.events.filter(matches).reverse());
    number.textContent = `${count(live.events.length)} events`;
  }

  function drawNew() {
    isDue = false;
    if (signal.aborted) return;
    const added = live.events.filter((each) => each.number > newest && matches(each));
    newest = live.added;
    if (added.length > 100 || body.querySelector(".none") !== null) {
      drawAll();
      return;
    }
    body.prepend(...added.reverse().map(row));
    while (body.rows.length > live.events.length) body.lastChild.remove();
    number.textContent = `${count(live.events.length)} events`;
  }

  drawAll();
  live.on(["events"], signal, () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(drawNew);
  });
}
