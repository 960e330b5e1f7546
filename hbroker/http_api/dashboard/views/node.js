// One node: what it owns, its counters, and what can be done with it.

import { confirm, openDialog } from "../dialogs.js";
import { element, errorBox, field, table } from "../dom.js";
import { bytes, count, duration, percent, rate, subtree } from "../format.js";

/** Shows a node. Its numbers are those of now. */
export async function openNode(name, context) {
  const content = element("div", {});
  const actions = context.caller.changes_network ? buttons(context, () => dialog.close(), () => node) : [];
  let node = null;
  const dialog = openDialog(name, content, actions);
  try {
    node = await context.api.get(`nodes/${encodeURIComponent(name)}`);
    content.append(...described(node));
    for (const each of actions) each.disabled = false;
  } catch (error) {
    const { box, show } = errorBox();
    show(error);
    content.append(box);
  }
}

/** What can be done with a node, once it is known. */
function buttons(context, close, node) {
  const then = (next) => () => {
    close();
    next(node(), context);
  };
  return [
    element("button", { type: "button", disabled: true, onclick: then(move) }, "Move a subtree…"),
    element("button", { type: "button", class: "danger", disabled: true, onclick: then(leave) }, "Leave…"),
  ];
}

function described(node) {
  const facts = [
    ["Subtrees", node.subtrees.map(subtree).join(", ") || "none"],
    ["Delegated", node.children.join(", ") || "none"],
    ["Parent", node.parent ?? "none"],
    ["Address", node.address],
    ["State", node.is_silent ? "silent for half a minute" : "live"],
    ["Security", node.security],
    ["Epoch", String(node.epoch)],
    ["Received", `${count(node.messages_received)} messages, ${bytes(node.bytes_received)}`],
    ["Sent", `${count(node.messages_sent)} messages, ${bytes(node.bytes_sent)}`],
    ["Rates", node.rates === null ? "not known yet"
      : `${rate(node.rates.messages_received)} in/s, ${rate(node.rates.messages_sent)} out/s`],
    ["Sessions", `${count(node.sessions)} connected, ${count(node.sessions_offline)} offline`],
    ["Subscriptions", count(node.subscriptions)],
    ["Publishers", count(node.publishers)],
    ["Wills", count(node.wills)],
    ["Queued", `${count(node.queued_messages)} messages, ${bytes(node.queued_bytes)}`],
    ["CPU", `${node.rates === null ? "?" : percent(node.rates.cpu_seconds)} now, ${duration(node.cpu_seconds)} in all`],
    ["Memory", bytes(node.resident_bytes)],
  ];
  const drops = table("What it discarded", [
    { title: "Discarded because", cell: ([reason]) => reason },
    { title: "Count", number: true, cell: ([, number]) => count(number) },
  ], "Nothing was discarded.");
  drops.fill(Object.entries(node.dropped).sort(([, a], [, b]) => b - a));
  return [
    element("dl", { class: "facts" },
      ...facts.flatMap(([term, fact]) => [element("dt", {}, term), element("dd", {}, fact)])),
    drops.box,
  ];
}

function move(node, context) {
  const names = [...context.live.nodes.keys()].filter((each) => each !== node.name).sort();
  const proposed = node.subtrees.find((each) => each !== "") ?? "";
  const prefix = element("input", { required: true, value: proposed, name: "subtree" });
  const to = element("input", { required: true, list: "node-names", name: "node", autocomplete: "off" });
  const list = element("datalist", { id: "node-names" }, ...names.map((each) => element("option", { value: each })));
  confirm(`Move from ${node.name}`, [
    element("p", {}, "The subtree goes to the other node with its sessions and retained messages, while it is in use. ",
      "Overview shows how far the move is."),
    field("Subtree", prefix, "One that it owns, or a part of it"),
    field("To the node", to), list,
  ], "Move", async () => {
    const begun = await context.api.post("moves", { subtree: prefix.value.trim(), node: to.value.trim() });
    return `The move of ${begun.subtree} to ${begun.node} has begun.`;
  });
}

function leave(node, context) {
  confirm(`Have ${node.name} leave?`, [
    element("p", {},
      `It hands ${node.subtrees.map(subtree).join(", ") || "nothing"} back to the node above, and ends. `,
      "Only its host can start it again."),
  ], "Have it leave", async () => {
    const { seconds } = await context.api.post(`nodes/${encodeURIComponent(node.name)}/leave`, {});
    return `${node.name} has left, after ${duration(seconds)}.`;
  }, { isDangerous: true });
}
