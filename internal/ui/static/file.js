// @ts-check
// Sorts and filters the list of tasks in a file, which has no server to ask. Without it the list is complete, in the order of the run.

const list = /** @type {HTMLTableElement | null} */ (document.getElementById("list"));
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("filter"));
const find = /** @type {HTMLInputElement | null} */ (document.getElementById("find"));
const state = /** @type {HTMLSelectElement | null} */ (document.getElementById("state"));
const found = document.getElementById("found");

/**
 * The value by which a cell is sorted.
 * @param {HTMLTableCellElement} cell
 * @returns {number | string}
 */
function key(cell) {
  const n = cell.dataset.n ?? cell.dataset.ms;
  if (n !== undefined) return Number(n);
  const text = cell.textContent ?? "";
  return cell.classList.contains("num") ? Number(text) : text.toLowerCase();
}

if (list && form && find && state && found) {
  const heads = Array.from(list.tHead?.rows[0]?.cells ?? []);
  const rows = Array.from(list.tBodies[0].rows);
  const show = () => {
    const word = find.value.toLowerCase();
    let n = 0;
    for (const row of rows) {
      const [name, status] = [row.cells[0].textContent ?? "", row.cells[1].querySelector(".state")?.lastChild?.textContent ?? ""];
      row.hidden = (state.value !== "" && status.trim() !== state.value) || !name.toLowerCase().includes(word);
      if (!row.hidden) n++;
    }
    found.textContent = n === rows.length ? "" : `${n} of ${rows.length}`;
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const sorted = head.getAttribute("aria-sort");
      const down = sorted ? sorted === "ascending" : head.classList.contains("num"); // of numbers, the largest first
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row, at) => ({ row, key: key(row.cells[column]), at }));
      keyed.sort((a, b) => {
        const d = typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key : String(a.key).localeCompare(String(b.key), undefined, { numeric: true });
        return (down ? -d : d) || a.at - b.at;
      });
      list.tBodies[0].append(...keyed.map((k) => k.row));
    });
  });
  form.addEventListener("submit", (e) => e.preventDefault());
  find.addEventListener("input", show);
  state.addEventListener("change", show);
  form.hidden = false;
}
