"use strict";
// Shows the tooltip (`data-tip`) of the mark under the pointer, or of the mark that was touched.
(() => {
  const tip = document.getElementById("tip");
  const show = (event) => {
    const mark = event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const margin = 12;
    const left = Math.min(event.clientX + margin, innerWidth - tip.offsetWidth - margin);
    const above = event.clientY - tip.offsetHeight - margin;
    tip.style.left = `${Math.max(margin, left)}px`;
    tip.style.top = `${above > margin ? above : event.clientY + margin}px`;
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
