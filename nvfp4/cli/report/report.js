"use strict";
// A table is sorted by the column whose heading is pressed, and the other way when pressed again.

const plain = /^[\d,]+(\.\d+)?\s*%?$/;
const words = new Intl.Collator("en", { numeric: true });
const nothing = ["", "-"];

function compared(one, other) {
  if (!plain.test(one) || !plain.test(other)) return words.compare(one, other);
  return Number.parseFloat(one.replaceAll(",", "")) - Number.parseFloat(other.replaceAll(",", ""));
}

function sort(table, heading) {
  const up = heading.getAttribute("aria-sort") !== "ascending";
  const text = (row) => row.cells[heading.cellIndex].textContent.trim();
  const rows = [...table.tBodies[0].rows];
  const filled = rows.filter((row) => !nothing.includes(text(row)));
  const empty = rows.filter((row) => nothing.includes(text(row)));
  filled.sort((one, other) => (up ? 1 : -1) * compared(text(one), text(other)));
  table.tBodies[0].append(...filled, ...empty);
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
}

for (const table of document.querySelectorAll("table.sorted")) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, heading));
    heading.append(button);
  }
}
