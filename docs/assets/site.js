"use strict";
// What is wider than the window scrolls. This lets a keyboard reach it, and names what has no name.
{
  const reach = () => {
    for (const e of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
      if (e.scrollWidth > e.clientWidth && e.tabIndex < 0) {
        e.tabIndex = 0;
        e.setAttribute("role", "group");
        e.setAttribute("aria-label", e.tagName === "CODE" ? "Code" : "Table");
      }
    }
    document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((e) => {
      const all = [...document.querySelectorAll("nav.md-code__nav")];
      e.setAttribute("aria-label", `Code ${all.indexOf(e) + 1}`);
    });
  };
  // The theme takes tabindex away from what was not too wide a moment ago.
  new MutationObserver(reach).observe(document.body, { childList: true, subtree: true, attributeFilter: ["tabindex"] });
  addEventListener("resize", reach);
  reach();
}
