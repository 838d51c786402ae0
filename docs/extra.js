// The theme puts every copy button into a navigation landmark of its own, and screen readers would list them all.
new MutationObserver(() => {
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) buttons.setAttribute("role", "none")
}).observe(document.body, { childList: true, subtree: true })
