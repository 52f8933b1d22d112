// @ts-check
// Puts the values of a chart's lines at the pointer into the table below it. The table has values without this module, too.

/** @param {Element} e @param {string} name */
const numbers = (e, name) => (e.getAttribute(name) || "").split(" ").filter(Boolean).map(Number);

/**
 * The x axis of a chart: how numbers become pixels of the drawing, and back.
 * @param {Element} chart
 */
function axis(chart) {
  const [mode, ...scale] = (chart.getAttribute("data-scale") || "").split(" ");
  const [left, right, bottom, from, to] = scale.map(Number);
  const log = mode === "log";
  return {
    bottom,
    /** @param {number} x */
    pixel: (x) => left + ((log ? Math.log10(x) : x) - from) / (to - from) * (right - left),
    /** @param {number} pixel */
    place: (pixel) => {
      const x = from + Math.min(1, Math.max(0, (pixel - left) / (right - left))) * (to - from);
      return log ? 10 ** x : x;
    },
  };
}

/**
 * The point of a line that is nearest to x, of two the earlier; none if the line does not reach x.
 * @param {Element} line
 * @param {number} x
 */
function nearest(line, x) {
  const xs = numbers(line, "data-x"), ys = (line.getAttribute("data-y") || "").split(" ");
  let best = -1, least = Infinity, greatest = -Infinity;
  xs.forEach((at, i) => {
    least = Math.min(least, at);
    greatest = Math.max(greatest, at);
    if (best < 0 || Math.abs(at - x) < Math.abs(xs[best] - x)) best = i;
  });
  return best < 0 || x < least || x > greatest ? undefined : { x: xs[best], y: ys[best] };
}

/** The digits behind the point of a number, and the point. @param {string} text */
const behind = (text) => { const at = text.search(/[.e]/); return at < 0 ? 0 : text.length - at; };

document.addEventListener("pointermove", (e) => {
  const chart = e.target instanceof Element ? e.target.closest("svg[data-scale]") : null;
  const matrix = chart instanceof SVGSVGElement && chart.getScreenCTM();
  if (!chart || !matrix) return;
  const lines = Array.from(chart.querySelectorAll("[data-x]")), scale = axis(chart);
  const pointed = scale.place((e.clientX - matrix.e) / matrix.a);
  const places = lines.flatMap((line) => nearest(line, pointed)?.x ?? []);
  if (!places.length) return;
  const x = places.reduce((a, b) => (Math.abs(b - pointed) < Math.abs(a - pointed) ? b : a));
  const labels = chart.getAttribute("data-labels")?.split("\n");
  const head = document.querySelector("th.here a") || document.querySelector("th.here");
  if (head) head.textContent = `At ${chart.getAttribute("data-axis")} ${labels ? labels[x] : x}`;
  const texts = lines.map((line) => nearest(line, x)?.y ?? "");
  const most = Math.max(...texts.map(behind));
  texts.forEach((text, i) => {
    const cell = document.querySelector(`td[data-line="${i}"]`);
    if (cell) cell.textContent = text && text + "\u2007".repeat(most - behind(text));
  });
  let rule = chart.querySelector(".rule");
  if (!rule) chart.append(rule = document.createElementNS(chart.namespaceURI, "path"));
  rule.setAttribute("class", "rule");
  rule.setAttribute("d", `M${scale.pixel(x)} 30V${scale.bottom}`);
});
