"use strict";
// The pages are complete without this script: it copies commands, and prepares what htmx has loaded.

addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
});

addEventListener("htmx:afterSwap", (event) => {
  for (const table of event.target.querySelectorAll(".scroll > table")) makeSortable(table);
  if (location.hash) openTarget();
});
