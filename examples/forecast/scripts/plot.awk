# Draws the record and the forecast as SVG. Reads the monthly record, then the forecast.
# Variable: holdout, the months that the models were compared on.

BEGIN {
	FS = ","
	width = 960; height = 540
	left = 72; right = width - 24; top = 64; bottom = height - 56
	ymin = 1e9; ymax = -1e9
}

function years(month) { return substr(month, 1, 4) + (substr(month, 6, 2) - 0.5) / 12 }
function see(v) { if (v < ymin) ymin = v; if (v > ymax) ymax = v }

FNR == 1 { file++; next }
file == 1 { t[++n] = years($1); y[n] = $2 + 0; see(y[n]); to = $1 }
file == 2 { ft[++k] = years($1); f[k] = $2 + 0; low[k] = $3 + 0; high[k] = $4 + 0; see(low[k]); see(high[k]); fto = $1 }

function px(v) { return sprintf("%.1f", left + (v - xmin) / (xmax - xmin) * (right - left)) }
function py(v) { return sprintf("%.1f", bottom - (v - ymin) / (ymax - ymin) * (bottom - top)) }
function floor(v) { return int(v) > v ? int(v) - 1 : int(v) }

# step is a round distance that puts about want marks on the range.
function step(range, want,    raw, unit) {
	raw = range / want
	for (unit = 1; unit * 10 <= raw; unit *= 10) ;
	for (; unit > raw; unit /= 10) ;
	return raw < 1.5 * unit ? unit : raw < 3.5 * unit ? 2 * unit : raw < 7.5 * unit ? 5 * unit : 10 * unit
}

function text(x, y, anchor, size, extra, s) {
	printf "<text x=\"%s\" y=\"%s\" text-anchor=\"%s\" font-size=\"%d\"%s>%s</text>\n", x, y, anchor, size, extra, s
}

function path(style, tt, v, from, to,    i) {
	printf "<path fill=\"none\" %s d=\"", style
	for (i = from; i <= to; i++) printf "%s%s %s", (i == from ? "M" : " L"), px(tt[i]), py(v[i])
	print "\"/>"
}

END {
	xmin = floor(t[1]); xmax = floor(k ? ft[k] : t[n]) + 1
	dy = step(ymax - ymin, 7); ymin = floor(ymin / dy) * dy; ymax = (floor(ymax / dy) + 1) * dy
	dx = step(xmax - xmin, 10)

	printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" fill=\"#222\">\n", width, height, width, height
	print "<title>CO2 at Mauna Loa: record and forecast</title>"
	print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
	text(left, 28, "start", 18, " font-weight=\"bold\"", "CO₂ at Mauna Loa, monthly means and forecast")

	if (holdout > 0 && holdout < n)
		printf "<rect x=\"%s\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#f2efe6\"/>\n", px(t[n - holdout + 1]), top, px(t[n]) - px(t[n - holdout + 1]), bottom - top

	for (v = ymin; v <= ymax + dy / 2; v += dy) {
		printf "<path stroke=\"#ddd\" d=\"M%d %s H%d\"/>\n", left, py(v), right
		text(left - 8, py(v) + 4, "end", 12, "", v)
	}
	for (v = (floor((xmin - 1) / dx) + 1) * dx; v <= xmax; v += dx) {
		printf "<path stroke=\"#222\" d=\"M%s %d v6\"/>\n", px(v), bottom
		text(px(v), bottom + 22, "middle", 12, "", v)
	}
	printf "<path stroke=\"#222\" fill=\"none\" d=\"M%d %d V%d H%d\"/>\n", left, top, bottom, right
	text((left + right) / 2, height - 12, "middle", 13, "", "year")
	text(0, 0, "middle", 13, sprintf(" transform=\"translate(20 %d) rotate(-90)\"", (top + bottom) / 2), "CO₂ (ppm)")

	if (k) {
		printf "<path fill=\"#d95f02\" fill-opacity=\"0.25\" d=\""
		for (i = 1; i <= k; i++) printf "%s%s %s", (i == 1 ? "M" : " L"), px(ft[i]), py(high[i])
		for (i = k; i >= 1; i--) printf " L%s %s", px(ft[i]), py(low[i])
		print " Z\"/>"
		path("stroke=\"#d95f02\" stroke-width=\"1.5\"", ft, f, 1, k)
	}
	path("stroke=\"#1b6ca8\" stroke-width=\"1.5\"", t, y, 1, n)

	x = left + 20; row = top + 20
	legend("#1b6ca8", 1, "observed, to " to)
	if (k) {
		legend("#d95f02", 1, "forecast, to " fto)
		legend("#d95f02", 0.25, "± 2 standard deviations of the fit")
	}
	if (holdout > 0) legend("#f2efe6", 1, "held out to compare models: " holdout " months")
	print "</svg>"
}

function legend(color, opacity, s) {
	printf "<rect x=\"%d\" y=\"%d\" width=\"22\" height=\"10\" fill=\"%s\" fill-opacity=\"%s\"%s/>\n", x, row - 9, color, opacity, (color == "#f2efe6" ? " stroke=\"#ccc\"" : "")
	text(x + 30, row, "start", 12, "", s)
	row += 20
}
