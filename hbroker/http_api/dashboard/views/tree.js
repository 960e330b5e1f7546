// The nodes as a tree, with the load of each. A collapsed row shows the sums of all nodes below it.

import { element, errorBox, field } from "../dom.js";
import { count, lag, percent, rate, subtree } from "../format.js";
import { forest, visible } from "../tree/forest.js";
import { TreeGrid } from "../tree/tree_grid.js";
import { openNode } from "./node.js";

export const title = "Tree";
export const seesNetwork = true;

const summed = (pick) => (item, isCollapsed) => pick(isCollapsed ? item.total : {
  ...item.node, ...(item.node.rates ?? { messages_received: 0, messages_sent: 0, cpu_seconds: 0 }),
});

const COLUMNS = [
  {
    title: "Node",
    class: "node",
    text: ({ node, total }, isCollapsed) =>
      (isCollapsed ? `${node.name} and ${count(total.nodes - 1)} below` : node.name),
  },
  { title: "Subtrees", class: "subtrees", text: ({ node }) => node.subtrees.map(subtree).join(", ") },
  { title: "In/s", class: "number", text: summed((each) => rate(each.messages_received)) },
  { title: "Out/s", class: "number", text: summed((each) => rate(each.messages_sent)) },
  { title: "Sessions", class: "number wide", text: summed((each) => count(each.sessions)) },
  { title: "Queued", class: "number wide", text: summed((each) => count(each.queued_messages)) },
  { title: "Lag", class: "number wide", text: summed((each) => lag(each.lag_seconds)) },
  { title: "CPU", class: "number wide", text: summed((each) => percent(each.cpu_seconds)) },
  { title: "State", class: "state", text: ({ node }) => (node.is_silent ? "silent" : node.rates ? "live" : "new") },
];

export function open(view, context, signal) {
  const { live } = context;
  const collapsed = new Set();
  const filter = element("input", { type: "search", oninput: draw, placeholder: "name or subtree" });
  const shown = element("p", { class: "note", role: "status" });
  const error = errorBox();
  let order = [];
  const grid = new TreeGrid("Nodes", COLUMNS, {
    onOpen: (item) => openNode(item.node.name, context),
    onToggle: (item) => {
      if (!collapsed.delete(item.node.name)) collapsed.add(item.node.name);
      draw();
    },
    isCollapsed: (item) => filter.value === "" && collapsed.has(item.node.name),
  });
  const fold = element("button", {
    type: "button",
    onclick: () => {
      for (const { node, children } of order) if (children.length) collapsed.add(node.name);
      draw();
    },
  }, "Collapse all");
  const unfold = element("button", { type: "button", onclick: () => { collapsed.clear(); draw(); } }, "Expand all");
  view.append(
    element("div", { class: "bar" }, field("Filter", filter), fold, unfold, shown), error.box, grid.box,
    element("p", { class: "note" }, "Arrow keys move and fold, Enter opens a node."));

  function draw() {
    const wanted = filter.value.trim();
    const rows = visible(order, collapsed, wanted);
    const text = `${wanted === "" ? "" : `${count(rows.length)} of `}${count(order.length)} nodes`;
    if (shown.textContent !== text) shown.textContent = text;
    grid.show(rows);
  }

  signal.addEventListener("abort", () => grid.close());
  live.watchNodes(signal);
  live.on(["nodes"], signal, () => {
    order = forest(live.nodes);
    draw();
  });
}
