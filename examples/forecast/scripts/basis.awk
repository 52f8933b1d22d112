# The terms of the model, for whoever fits or evaluates it:
#
#   y(t) = a0 + a1 x + … + ad x^d + sum over h of (bh cos 2πht + ch sin 2πht)
#
# t is the time in years. x runs from about -1 to 1 over the record, which keeps the
# equations well-conditioned.

# years turns "1958-03" into the middle of that month.
function years(month) { return substr(month, 1, 4) + (substr(month, 6, 2) - 0.5) / 12 }

# basis sets row[1..n] to the terms at t and returns n.
function basis(t, degree, harmonics, row,    i, h, n, x, angle) {
	x = (t - 1980) / 22
	row[n = 1] = 1
	for (i = 1; i <= degree; i++) { row[n + 1] = row[n] * x; n++ }
	angle = 2 * atan2(0, -1) * (t - int(t))
	for (h = 1; h <= harmonics; h++) { row[++n] = cos(h * angle); row[++n] = sin(h * angle) }
	return n
}

# predict evaluates the model in coef[1..] at t.
function predict(t, degree, harmonics, coef,    i, n, y, row) {
	n = basis(t, degree, harmonics, row)
	for (i = 1; i <= n; i++) y += coef[i] * row[i]
	return y
}
