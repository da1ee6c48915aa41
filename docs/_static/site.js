// Tabs for pairs of code and for a choice of verbs, a button that copies a block, and the menu by keyboard. Without JavaScript
// the halves of a pair stand one below the other, each with its label.
"use strict";

(() => {
  const KEY = "dibs-half";
  const root = document.documentElement;

  const remember = (name) => {
    try {
      localStorage.setItem(KEY, name);
    } catch {
      // then it is chosen for this page only
    }
  };

  // ---- pairs

  const show = (name) => {
    root.dataset.half = name;
    for (const tab of document.querySelectorAll(".pair > .pair-tabs button")) {
      const isChosen = tab.textContent === name;
      tab.setAttribute("aria-selected", String(isChosen));
      tab.tabIndex = isChosen ? 0 : -1;
    }
  };

  // Pairs above may change their height: what was clicked stays where it is.
  const choose = (tab) => {
    const top = tab.getBoundingClientRect().top;
    show(tab.textContent);
    remember(tab.textContent);
    window.scrollBy({ top: tab.getBoundingClientRect().top - top, behavior: "instant" });
  };

  /** One of several verbs: this box only, and not remembered. */
  const chooseVerb = (tab) => {
    for (const each of tab.parentElement.children) {
      const isChosen = each === tab;
      each.setAttribute("aria-selected", String(isChosen));
      each.tabIndex = isChosen ? 0 : -1;
      document.getElementById(each.getAttribute("aria-controls")).hidden = !isChosen;
    }
  };

  const onKey = (choose) => (event) => {
    const tabs = [...event.currentTarget.querySelectorAll("button")];
    const at = tabs.indexOf(event.target);
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 };
    if (!(event.key in steps)) return;
    const next = tabs[(steps[event.key] + tabs.length) % tabs.length];
    event.preventDefault();
    choose(next);
    next.focus();
  };

  const makeTab = (half, id, choose) => {
    const tab = document.createElement("button");
    const name = half.querySelector(".half-label").textContent.trim();
    Object.assign(tab, { type: "button", textContent: name, id: `tab-${id}` });
    half.id ||= `half-${id}`;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", half.id);
    half.setAttribute("role", "tabpanel");
    half.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => choose(tab));
    return tab;
  };

  const makeTabs = (pair, number) => {
    const isPair = pair.classList.contains("pair");
    const chosen = isPair ? choose : chooseVerb;
    const list = document.createElement("div");
    list.className = "pair-tabs";
    list.setAttribute("role", "tablist");
    list.setAttribute("aria-label", isPair ? "Threads or asyncio" : "Verb");
    const halves = [...pair.querySelectorAll(":scope > .half")];
    list.append(...halves.map((half, at) => makeTab(half, `${number}-${at}`, chosen)));
    list.addEventListener("keydown", onKey(chosen));
    pair.prepend(list);
    pair.classList.add("tabs");
    if (!isPair) chooseVerb(list.firstElementChild);
  };

  // A link may lead into the half that is not shown.
  const showTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const label = target?.closest(".half")?.querySelector(".half-label").textContent.trim();
    if (label && label !== root.dataset.half) show(label);
    target?.scrollIntoView({ behavior: "instant" });
  };

  // ---- copying

  const copy = async (button, text) => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  };

  const addCopyButton = (block) => {
    const code = block.querySelector("pre");
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy", textContent: "Copy" });
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", () => copy(button, code.textContent));
    code.tabIndex = 0; // a long line is scrolled with the arrow keys
    block.append(button);
  };

  // ---- the menu and the contents, where a narrow screen hides them: Furo has labels for a mouse

  const makeButton = (label, name) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: `${label.className} drawer-button` });
    button.setAttribute("aria-label", name);
    button.append(...label.childNodes);
    label.replaceWith(button);
    return button;
  };

  const makeDrawer = (name, box, drawer, labels) => {
    const buttons = labels.map((label) => makeButton(label, name));
    const shown = () => buttons.find((button) => button.checkVisibility());
    // What is out of sight is not reached with Tab.
    const draw = () => {
      drawer.inert = shown() !== undefined && !box.checked;
      for (const button of buttons) button.setAttribute("aria-expanded", String(box.checked));
    };
    const turn = (isOpen) => {
      box.checked = isOpen;
      draw();
      (isOpen ? drawer.querySelector("a, input") : shown())?.focus();
    };
    for (const button of buttons) button.addEventListener("click", () => turn(!box.checked));
    box.addEventListener("change", draw);
    window.addEventListener("resize", draw);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && box.checked) turn(false);
    });
    draw();
  };

  const makeDrawers = () => {
    const parts = [
      ["Menu", "__navigation", ".sidebar-drawer", ".nav-overlay-icon"],
      ["On this page", "__toc", ".toc-drawer", ".toc-overlay-icon:not(.no-toc)"],
    ];
    for (const [name, box, drawer, labels] of parts) {
      makeDrawer(name, document.getElementById(box), document.querySelector(drawer), [...document.querySelectorAll(labels)]);
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".pair, .choice").forEach(makeTabs);
    show(root.dataset.half); // page.html has set it
    showTarget();
    document.querySelectorAll("article .highlight").forEach(addCopyButton);
    document.querySelectorAll(".table-wrapper").forEach((table) => (table.tabIndex = 0));
    makeDrawers();
  });
  window.addEventListener("hashchange", showTarget);
})();
