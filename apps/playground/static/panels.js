// One panel at a time: the one that the address names.

const panels = [...document.querySelectorAll(".panel")];
const links = [...document.querySelectorAll(".masthead nav a")];

function show() {
  const wanted = panels.find((panel) => `#${panel.id}` === location.hash);
  const panel = wanted ?? panels.find((each) => !each.hidden) ?? panels[0];
  for (const each of panels) each.hidden = each !== panel;
  for (const link of links) {
    if (link.hash === `#${panel.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  panel.dispatchEvent(new Event("shown"));
  if (wanted) scrollTo({ top: 0, behavior: "instant" });
}

addEventListener("hashchange", show);
show();
