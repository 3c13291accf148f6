"use strict";
// Sorts and filters the table, which is complete without this script, the latest run first.
(() => {
  const table = document.getElementById("runs");
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const rows = Array.from(body.rows);
  const texts = new Map(rows.map((row) => [row, textOf(row)]));
  const controls = document.getElementById("controls");
  const filter = document.getElementById("filter");
  const none = document.getElementById("none");
  const shown = document.getElementById("shown");

  // Join cells by newlines, so that no filter word matches across two cells.
  function textOf(row) {
    const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    const parts = [];
    while (walker.nextNode()) parts.push(walker.currentNode.data);
    return parts.join("\n").toLowerCase();
  }

  function keyOf(row, column, isNumber) {
    const cell = row.cells[column];
    if (!cell || (column > 0 && row.cells.length < heads.length)) return null;
    const key = cell.dataset.key;
    if (isNumber) return key === undefined ? null : Number(key);
    return key === undefined ? cell.textContent.toLowerCase() : key;
  }

  function sort(column) {
    const head = heads[column];
    const isNumber = head.classList.contains("figures");
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const keyed = rows.map((row, place) => ({ row, place, key: keyOf(row, column, isNumber) }));
    keyed.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
      return sign * (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) || a.place - b.place;
    });
    body.append(...keyed.map((entry) => entry.row));
    for (const each of heads) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
  }

  function narrow() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const fits = words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.textContent = `${count} of ${rows.length} shown`;
    none.hidden = count > 0;
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(column));
    head.append(button);
    head.setAttribute("aria-sort", "none");
  });
  filter.addEventListener("input", narrow);
  controls.addEventListener("submit", (event) => event.preventDefault());
  controls.hidden = false;
  narrow();
})();
