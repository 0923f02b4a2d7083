// Set the chosen colours before anything is painted.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("hanme-theme");
  } catch {
    // storage is switched off: the system decides
  }
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
})();
