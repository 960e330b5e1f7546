// The network as a whole: sums and rates, alerts, moves, and the last events.

import { badge, element, table } from "../dom.js";
import { bytes, count, percent, rate } from "../format.js";
import { sparkline } from "../sparkline.js";
import { EVENT_COLUMNS } from "./events.js";

export const title = "Overview";
export const seesNetwork = true;

const RECENT = 8;
const MOST_MOVES = 10;

// Each tile: its title, its number, what is below, and what of the history its line shows.
const TILES = [
  ["Messages in", (n) => `${rate(n.rates.messages_received)}/s`, (n) => `${bytes(n.rates.bytes_received)}/s`,
    (each) => each.messages_received],
  ["Messages out", (n) => `${rate(n.rates.messages_sent)}/s`, (n) => `${bytes(n.rates.bytes_sent)}/s`,
    (each) => each.messages_sent],
  ["Queued", (n) => count(n.queued_messages), (n) => bytes(n.queued_bytes), (each) => each.queued],
  ["Sessions", (n) => count(n.sessions), (n) => `${count(n.sessions_offline)} offline`, (each) => each.sessions],
  ["CPU", (n) => percent(n.rates.cpu_seconds), () => "100%: one processor", (each) => each.cpu_seconds],
  ["Nodes", (n) => count(n.nodes), (n) => (n.silent.length ? `${count(n.silent.length)} silent` : "none silent"), null],
];

export function open(view, { live }, signal) {
  const tiles = TILES.map(([name, number, below, line]) => tile(name, number, below, line));
  const silent = element("p", { class: "error", hidden: true });
  const alerts = table("Alerts that stand", [
    { title: "Alert", cell: (each) => each.alert || each.topic },
    {
      title: "Severity",
      cell: (each) => badge(each.severity ?? "none", each.severity === "critical" ? "bad" : "warn"),
    },
    { title: "Node", cell: (each) => each.node ?? "" },
    { title: "Value", number: true, cell: (each) => each.value?.toPrecision(3) ?? "" },
    { title: "Limit", number: true, cell: (each) => each.threshold?.toPrecision(3) ?? "" },
  ], "No alert stands. They come from hbroker analyze --follow.");
  const moves = table("Moves", [
    { title: "Subtree", class: "text", cell: (each) => each.subtree },
    { title: "To", cell: (each) => each.node },
    { title: "State", cell: (each) => badge(each.state, { running: "warn", done: "good", failed: "bad" }[each.state]) },
    { title: "Step", class: "text", cell: (each) => each.error ?? each.steps.at(-1) ?? "" },
  ], "None was begun from here.");
  const events = table("Last events", EVENT_COLUMNS, "None yet.");
  view.append(
    element("div", { class: "tiles" }, ...tiles.map((each) => each.box)), silent,
    element("section", {}, element("h2", {}, "Alerts"), alerts.box),
    element("section", {}, element("h2", {}, "Moves"), moves.box),
    element("section", {}, element("h2", {}, "Last events"), events.box,
      element("p", {}, element("a", { href: "#/events" }, "All events"))));

  live.on(["network"], signal, () => {
    if (live.network === null) return;
    for (const each of tiles) each.show(live.network, live.history);
    const names = live.network.silent;
    silent.hidden = names.length === 0;
    const some = names.slice(0, 10).join(", ");
    const more = names.length > 10 ? ` and ${count(names.length - 10)} more` : "";
    silent.textContent = `Silent for half a minute: ${some}${more}`;
  });
  live.on(["alerts"], signal, () => alerts.fill(live.alerts.slice(0, 50)));
  live.on(["moves"], signal, () => {
    const all = [...live.moves.values()].reverse();
    const isRunning = (each) => each.state === "running";
    moves.fill([...all.filter(isRunning), ...all.filter((each) => !isRunning(each))].slice(0, MOST_MOVES));
  });
  let isDue = false;
  live.on(["events"], signal, () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      events.fill(live.events.slice(-RECENT).reverse());
    });
  });
}

function tile(name, number, below, line) {
  const value = element("b", {}, "–");
  const more = element("small", {});
  const chart = line === null ? null : sparkline();
  const box = element("div", { class: "tile" }, element("span", {}, name), value, more, chart?.picture ?? null);
  const show = (network, history) => {
    value.textContent = number(network);
    more.textContent = below(network);
    chart?.draw(history.map((each) => ({ at: each.at, value: line(each) })));
  };
  return { box, show };
}
