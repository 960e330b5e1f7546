// The nodes as trees. Nodes say themselves which node is above them, so that may be unknown, or a circle. Each node is
// shown once whatever they say.

const SUMMED = ["sessions", "queued_messages"];
const RATES = ["messages_received", "messages_sent", "cpu_seconds"];

/**
 * All nodes (by name), each behind the one above it. Of each item: `node`, `level` (from 1), `position` and `siblings`
 * (among those below the same node), `children`, `parent` (an item, or null), and `total`: sums with all below, and the longest lag.
 */
export function forest(nodes) {
  const items = new Map();
  for (const node of nodes.values()) items.set(node.name, { node, parent: null, children: [] });
  const roots = [];
  for (const item of items.values()) {
    const parent = items.get(item.node.parent) ?? null;
    if (parent === null || parent === item) roots.push(item);
    else {
      item.parent = parent;
      parent.children.push(item);
    }
  }
  const order = [];
  const seen = new Set();
  arrange(roots);
  visit(roots, order, seen);
  for (const item of items.values()) {
    if (seen.has(item)) continue;
    item.parent.children = item.parent.children.filter((each) => each !== item);
    item.parent = null;
    visit([item], order, seen);
  }
  addUp(order);
  return order;
}

function arrange(siblings) {
  siblings.sort((a, b) => (a.node.name < b.node.name ? -1 : 1));
  siblings.forEach((each, index) => Object.assign(each, { position: index + 1, siblings: siblings.length }));
}

function visit(begin, order, seen) {
  const waiting = [...begin].reverse();
  while (waiting.length) {
    const item = waiting.pop();
    if (seen.has(item)) continue;
    seen.add(item);
    item.level = item.parent === null ? 1 : item.parent.level + 1;
    item.position ??= 1;
    item.siblings ??= 1;
    order.push(item);
    arrange(item.children);
    for (let index = item.children.length - 1; index >= 0; index -= 1) waiting.push(item.children[index]);
  }
}

function addUp(order) {
  for (const item of order) {
    item.total = { nodes: 1 };
    for (const name of SUMMED) item.total[name] = item.node[name];
    for (const name of RATES) item.total[name] = item.node.rates?.[name] ?? 0;
    item.lag = item.node.lag_seconds;
  }
  for (let index = order.length - 1; index >= 0; index -= 1) {
    const { parent, total, lag } = order[index];
    total.lag_seconds = lag;
    if (parent === null) continue;
    for (const name of ["nodes", ...SUMMED, ...RATES]) parent.total[name] += total[name];
    parent.lag = parent.lag === null || lag === null ? null : Math.max(parent.lag, lag);
  }
}

/** The items that are shown: without those below a collapsed one; or those that match `text`, and those above them. */
export function visible(order, collapsed, text) {
  if (text !== "") {
    const wanted = text.toLowerCase();
    const kept = new Set();
    for (const item of order) {
      const words = [item.node.name, ...item.node.subtrees];
      if (!words.some((each) => each.toLowerCase().includes(wanted))) continue;
      for (let each = item; each !== null && !kept.has(each); each = each.parent) kept.add(each);
    }
    return order.filter((item) => kept.has(item));
  }
  let below = Infinity;
  return order.filter((item) => {
    if (item.level > below) return false;
    below = collapsed.has(item.node.name) ? item.level : Infinity;
    return true;
  });
}
