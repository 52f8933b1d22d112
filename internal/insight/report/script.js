(function () {
  "use strict";
  var list = document.getElementById("list"), form = document.getElementById("filter");
  if (!list) return;
  var body = list.tBodies[0], rows = Array.prototype.slice.call(body.rows);
  var find = document.getElementById("find"), state = document.getElementById("state"), found = document.getElementById("found");
  function show() {
    var word = find.value.toLowerCase(), want = state.value, n = 0;
    rows.forEach(function (row) {
      var fits = (!want || row.cells[1].textContent === want) && (!word || row.cells[0].textContent.toLowerCase().indexOf(word) >= 0);
      row.hidden = !fits;
      if (fits) n++;
    });
    found.textContent = n === rows.length ? "" : n + " of " + rows.length;
  }
  function value(row, column) {
    var cell = row.cells[column], n = cell.getAttribute("data-n"), text = cell.textContent;
    if (n !== null) return Number(n);
    return column === 3 || column === 2 ? (text === "" ? -1 : Number(text)) : text.toLowerCase();
  }
  Array.prototype.forEach.call(list.tHead.rows[0].cells, function (head, column) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.textContent = "";
    head.appendChild(button);
    button.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") === "ascending";
      Array.prototype.forEach.call(list.tHead.rows[0].cells, function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      var keyed = rows.map(function (row, i) { return { row: row, key: value(row, column), at: i }; });
      keyed.sort(function (a, b) {
        var d = typeof a.key === "number" ? a.key - b.key : a.key.localeCompare(b.key, undefined, { numeric: true });
        return (down ? -d : d) || a.at - b.at;
      });
      var all = document.createDocumentFragment();
      keyed.forEach(function (k) { all.appendChild(k.row); });
      body.appendChild(all);
    });
  });
  form.addEventListener("submit", function (e) { e.preventDefault(); });
  find.addEventListener("input", show);
  state.addEventListener("change", show);
  form.hidden = false;
})();
