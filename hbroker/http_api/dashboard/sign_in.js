// Sign-in: the user gives a token of the network.

import { element, errorBox, field } from "./dom.js";

/** Shows the form. `onToken(text)` tries the token, and throws Problem if it is not taken. */
export function signIn(main, reason, onToken) {
  const error = errorBox();
  error.show(reason === null ? null : new Error(reason));
  const token = element("input", {
    type: "password", autocomplete: "off", spellcheck: "false", required: true, name: "token",
  });
  const file = element("input", { type: "file", onchange: () => take(file.files[0]) });
  const button = element("button", { type: "submit", class: "primary" }, "Sign in");
  const form = element("form", { class: "card sign-in" },
    element("p", {}, "This network requires tokens. What yours allows, you can do here. ",
      "It is kept in this tab alone, until you close it."),
    error.box,
    field("Token", token, "Paste it, or drop its file here: .hbroker/NETWORK/operator.token"),
    field("Or choose its file", file),
    element("div", { class: "actions" }, button));

  async function take(given) {
    if (given === undefined || given === null) return;
    token.value = (await given.text()).trim();
    form.requestSubmit();
  }

  form.addEventListener("dragover", (event) => event.preventDefault());
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    const text = event.dataTransfer.getData("text/plain");
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
    else token.value = text.trim();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await onToken(token.value.trim());
    } catch (problem) {
      error.show(problem);
      token.select();
      token.focus();
    }
    button.disabled = false;
  });
  main.replaceChildren(element("h1", {}, "Sign in"), form);
  token.focus();
}
