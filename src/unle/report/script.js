// Tables and figures that are wider than their box get a hint.
(() => {
  const look = () => {
    for (const box of document.querySelectorAll(".scroll, .paper")) {
      box.classList.toggle("overflows", box.scrollWidth > box.clientWidth + 4);
    }
  };
  look();
  addEventListener("resize", look);
})();

// Enlarge a figure: it is moved into the dialog and back, so that no id exists twice.
(() => {
  const dialog = document.querySelector("dialog");
  const stage = dialog.querySelector(".stage");
  let home = null;
  let zoom = 1;
  const set = (value) => {
    zoom = Math.min(8, Math.max(0.2, value));
    stage.style.setProperty("--zoom", zoom);
  };
  const fit = () => {
    const box = stage.querySelector("svg").viewBox.baseVal;
    set((stage.clientHeight * box.width) / (box.height * stage.clientWidth));
    if (zoom > 1) set(1);
  };
  for (const button of document.querySelectorAll("button.zoom")) {
    button.addEventListener("click", () => {
      home = button.parentElement.querySelector(".paper");
      stage.append(home.querySelector("svg"));
      stage.setAttribute("aria-label", home.getAttribute("aria-label"));
      dialog.showModal();
      fit();
      stage.focus();
    });
  }
  dialog.addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-zoom]");
    if (pressed && pressed.dataset.zoom === "0") fit();
    else if (pressed) set(pressed.dataset.zoom === "+" ? zoom * 1.4 : zoom / 1.4);
    if (event.target.closest("[data-close]") || event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") set(zoom * 1.4);
    if (event.key === "-") set(zoom / 1.4);
    if (event.key === "0") fit();
  });
  dialog.addEventListener("close", () => home.append(stage.querySelector("svg")));
})();
