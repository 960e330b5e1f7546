// Tokens: make, narrow, look at.

import { announce, checkbox, element, errorBox, field, table } from "../dom.js";
import { dateTime } from "../format.js";

export const title = "Tokens";

const DAY_S = 86_400;

export function open(view, { api, caller }) {
  view.append(
    ...(caller.changes_network ? [maker(api)] : []),
    narrower(api),
    inspector(api));
}

const lines = (control) => control.value.split("\n").map((each) => each.trim()).filter((each) => each !== "");
const expiry = (at) => (at === null ? "never" : dateTime(new Date(at * 1_000)));

/** The controls of what a token allows, and what they say. */
function rights(days) {
  const read = element("textarea", { rows: "2", spellcheck: "false" });
  const write = element("textarea", { rows: "2", spellcheck: "false" });
  const retain = element("input", {});
  const share = element("input", {});
  const client = element("input", { autocomplete: "off" });
  const valid = element("input", { type: "number", min: "0.01", max: "3650", step: "any", value: days });
  const controls = [
    field("May read", read, "topic filters, one a line"), field("May write", write, "topic filters, one a line"),
    element("div", { class: "bar" }, checkbox("May retain", retain), checkbox("May share", share)),
    field("Client id", client, "empty: any"),
    field("Days valid", valid, days === "" ? "empty: as long as the other one" : null),
  ];
  const said = () => ({
    read: lines(read),
    write: lines(write),
    retain: retain.checked,
    share: share.checked,
    client: client.value.trim() || null,
    ...(valid.value === "" ? {} : { valid_s: Math.max(60, Math.round(Number(valid.value) * DAY_S)) }),
  });
  return { controls, said };
}

/** A form that requests something, and shows what comes of it. `ask()` returns nodes. */
function card(heading, text, controls, verb, ask) {
  const error = errorBox();
  const button = element("button", { type: "submit", class: "primary" }, verb);
  const result = element("div", { class: "result" });
  const form = element("form", { class: "card", "aria-label": heading },
    element("h2", {}, heading), element("p", { class: "note" }, text), ...controls,
    element("div", { class: "actions" }, button), error.box, result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    result.replaceChildren();
    try {
      result.append(...await ask());
      error.show(null);
    } catch (problem) {
      error.show(problem);
    }
    button.disabled = false;
  });
  return form;
}

function made({ token, expires_at: at, revocation_id: id }) {
  const text = element("textarea", { rows: "4", readonly: true, value: token, class: "secret" });
  const copy = element("button", { type: "button", onclick: async () => {
    await navigator.clipboard.writeText(token);
    announce("Copied.");
  } }, "Copy");
  announce("The token is made.");
  return [field("The token: whoever has it has its rights", text), copy,
    element("p", { class: "note text" }, `Valid until ${expiry(at)}. Revocation id: ${id}`)];
}

function maker(api) {
  const { controls, said } = rights("30");
  const workspace = element("input", { autocomplete: "off" });
  return card("Make a token", "The authority of the network signs it. You can give no more than your own token allows.",
    [...controls, field("Workspace", workspace, "empty: none")], "Make",
    async () => made(await api.post("tokens", { ...said(), workspace: workspace.value.trim() || null })));
}

function narrower(api) {
  const token = element("textarea", { rows: "3", required: true, spellcheck: "false", name: "token" });
  const { controls, said } = rights("");
  return card("Narrow a token", "Makes one that allows less, from another one.",
    [field("The other token", token), ...controls], "Narrow",
    async () => made(await api.post("tokens/attenuate", { ...said(), token: token.value.trim() })));
}

function inspector(api) {
  const token = element("textarea", { rows: "3", required: true, spellcheck: "false", name: "token" });
  return card("Look at a token", "What it says, and whether it is valid. Not whether it is revoked.",
    [field("The token", token)], "Look", async () => {
      const { blocks, is_valid: isValid, error } = await api.post("tokens/inspect", { token: token.value.trim() });
      const flags = ({ retain, share }) => [retain ? "retain" : "", share ? "share" : ""].filter(Boolean).join(", ");
      const { box, fill } = table("Blocks of the token", [
        { title: "May read", class: "text", cell: (each) => each.read?.join(", ") ?? "as before" },
        { title: "May write", class: "text", cell: (each) => each.write?.join(", ") ?? "as before" },
        { title: "Also", cell: flags },
        { title: "Client", cell: (each) => each.client ?? "any" },
        { title: "Workspace", cell: (each) => each.workspace ?? "" },
        { title: "Until", cell: (each) => expiry(each.expires_at) },
      ]);
      fill(blocks);
      return [element("p", { role: "status" }, isValid ? "It is valid." : `It is not valid: ${error}`), box];
    });
}
