"use strict";
// Tables that are wider than the window scroll. This lets a keyboard reach them.
{
  const reach = () => {
    for (const e of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
      e.tabIndex = 0;
      e.setAttribute("role", "group");
      e.setAttribute("aria-label", "Table");
    }
  };
  new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
  reach();
}
