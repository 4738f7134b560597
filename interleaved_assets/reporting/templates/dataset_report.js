// Sorting by a click on a heading, and filtering by name. Without script the table is there in the order given.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const numeric = !heading.classList.contains("text");
      const first = numeric ? "descending" : "ascending";
      const order = heading.getAttribute("aria-sort") === first ? (numeric ? "ascending" : "descending") : first;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, undefined, { numeric: true });
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort((a, b) => sign * compare(a[0], b[0])).forEach(([, row]) => body.append(row));
    });
  });
}
const search = document.querySelector("input[type=search]");
search?.addEventListener("input", () => {
  const wanted = search.value.trim().toLowerCase();
  for (const row of document.querySelector("table[data-sortable]").tBodies[0].rows) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
});
