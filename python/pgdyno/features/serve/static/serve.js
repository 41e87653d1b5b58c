"use strict";
// The pages are complete without this script: it copies commands, saves charts, and prepares what htmx has loaded.

addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = before), 1500);
});

// An image of this server leaves the canvas readable. Twice the pixels, for slides.
for (const button of document.querySelectorAll("[data-png]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const image = new Image(), canvas = document.createElement("canvas"), link = document.createElement("a");
    image.src = button.dataset.png;
    await image.decode();
    [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    link.href = URL.createObjectURL(await new Promise((done) => canvas.toBlob(done, "image/png")));
    link.download = "effect.png";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

addEventListener("htmx:afterSwap", (event) => {
  for (const table of event.target.querySelectorAll(".scroll > table")) makeSortable(table);
  if (location.hash) openTarget();
});
