// Dialogs. The browser keeps the focus within, closes them with Escape, and gives the focus back.

import { announce, element, errorBox } from "./dom.js";

/** Shows a dialog. `actions`: elements at its end, beside the button that closes it. Returns the dialog. */
export function openDialog(title, content, actions = [], close = "Close") {
  const dialog = element("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() });
  dialog.append(
    element("h2", { id: "dialog-title" }, title),
    content,
    element("div", { class: "actions" },
      element("button", { type: "button", onclick: () => dialog.close() }, close), ...actions));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks before something is done. `verb`: the text of the button that does `work()`. `content`: nodes or texts. An error
 * of `work` is shown in the dialog. `work` returns what is announced.
 */
export function confirm(title, content, verb, work, { isDangerous = false } = {}) {
  const { box, show } = errorBox();
  const button = element("button", { type: "submit", class: isDangerous ? "danger" : "primary" }, verb);
  const id = "confirmation";
  const form = element("form", { id, novalidate: true }, ...content, box);
  button.setAttribute("form", id);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!form.reportValidity()) return;
    button.disabled = true;
    show(null);
    try {
      announce(await work());
      dialog.close();
    } catch (error) {
      show(error);
    } finally {
      button.disabled = false;
    }
  });
  const dialog = openDialog(title, form, [button], "Cancel");
  return dialog;
}
