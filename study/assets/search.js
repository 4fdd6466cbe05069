// The search of a page: a field in its header, and links to what is found.
"use strict";
{
  const { h, set, count, test, assert } = kit;

  // Functions that list what can be found: {name, note, state}. The state is that of the address; `at` names a panel.
  const lists = [() => kit.panels.map(({ id, title }) => ({ name: title, note: "part of this page", state: { at: id } }))];
  kit.findable = list => lists.push(list);
  const MOST_FOUND = 12;
  kit.search = () => {
    const input = h("input", { type: "search", id: "search", placeholder: "Search", "aria-label": "Search this page", oninput: find, onfocus: find });
    const found = h("div", { class: "found", hidden: true, "aria-live": "polite", onmousedown: e => e.preventDefault() });
    const link = ({ name, note, state: changes }) => h("a", { href: kit.address(changes), onclick(event) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      found.hidden = true;
      set(changes, true);
      const target = document.getElementById(changes.at);
      target.tabIndex = -1;
      target.focus({ preventScroll: true });
      target.scrollIntoView();
    } }, name, " ", h("span", { class: "soft small" }, note));
    function find() {
      const words = input.value.toLowerCase().split(/\s+/).filter(word => word), first = one => one.name.toLowerCase().startsWith(words[0]);
      const all = words.length ? lists.flatMap(list => list()).filter(one => words.every(word => `${one.name} ${one.note}`.toLowerCase().includes(word))) : [];
      all.sort((a, b) => first(b) - first(a));
      const rest = all.length - MOST_FOUND;
      found.hidden = !words.length;
      found.replaceChildren(...all.slice(0, MOST_FOUND).map(link), ...rest > 0 || !all.length ? [h("p", { class: "soft small" }, rest > 0 ? `and ${count(rest)} more` : "nothing found")] : []);
    }
    const element = h("div", { class: "search", role: "search", onkeydown(e) { if (e.key === "Escape") { input.focus(); found.hidden = true; } if (e.key === "Enter" && e.target === input) found.querySelector("a")?.click(); } }, input, found);
    element.addEventListener("focusout", e => { if (!element.contains(e.relatedTarget)) found.hidden = true; });
    test("everything that can be found has a link that leads to it", () => {
      const all = lists.flatMap(list => list()), stride = Math.ceil(all.length / 200);
      for (let i = 0; i < all.length; i += stride) {
        input.value = `${all[i].name} ${all[i].note}`;
        find();
        const wanted = kit.address(all[i].state), links = [...found.querySelectorAll("a")];
        assert(document.getElementById(all[i].state.at), `${all[i].name} is in no part of the page`);
        assert(links.length === MOST_FOUND || links.some(a => a.getAttribute("href") === wanted), `${all[i].name} is not found`);
      }
      input.value = "no such name";
      find();
      assert(found.textContent === "nothing found", found.textContent);
      input.value = "";
      find();
      return Math.ceil(all.length / stride);
    });
    return element;
  };
}
