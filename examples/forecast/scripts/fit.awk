# Fits the model of basis.awk by least squares to all but the last holdout months.
# Variables: degree, harmonics, holdout. Writes "name,value" lines.

BEGIN { FS = "," }

FNR > 1 { t[++months] = years($1); y[months] = $2 }

END {
	used = months - holdout
	for (m = 1; m <= used; m++) {
		n = basis(t[m], degree, harmonics, row)
		if (m == 1 && used <= n) fail(used " months are too few for " n " terms")
		for (i = 1; i <= n; i++) {
			for (j = 1; j <= n; j++) a[i, j] += row[i] * row[j]
			a[i, n + 1] += row[i] * y[m]
		}
	}
	if (used < 1) fail("no month is left to train on")
	solve(n)
	for (m = 1; m <= used; m++) { e = y[m] - predict(t[m], degree, harmonics, coef); squares += e * e }
	sigma = sqrt(squares / (used - n))
	print "degree," degree
	print "harmonics," harmonics
	printf "sigma,%.6f\n", sigma
	for (i = 1; i <= n; i++) printf "coef%d,%.9f\n", i, coef[i]
	printf "degree %d: %d months, %d terms, residual %.3f ppm\n", degree, used, n, sigma | "cat 1>&2"
}

# solve reduces the normal equations a[i, 1..n] * coef = a[i, n+1], with pivoting.
function solve(n,    i, j, k, p, f, swap) {
	for (k = 1; k <= n; k++) {
		p = k
		for (i = k + 1; i <= n; i++) if (size(a[i, k]) > size(a[p, k])) p = i
		if (size(a[p, k]) < 1e-9) fail("the terms cannot be told apart")
		for (j = k; j <= n + 1; j++) { swap = a[k, j]; a[k, j] = a[p, j]; a[p, j] = swap }
		for (i = k + 1; i <= n; i++) {
			f = a[i, k] / a[k, k]
			for (j = k; j <= n + 1; j++) a[i, j] -= f * a[k, j]
		}
	}
	for (k = n; k >= 1; k--) {
		coef[k] = a[k, n + 1]
		for (j = k + 1; j <= n; j++) coef[k] -= a[k, j] * coef[j]
		coef[k] /= a[k, k]
	}
}

function size(v) { return v < 0 ? -v : v }

function fail(why) {
	print "fit: " why | "cat 1>&2"
	close("cat 1>&2")
	exit 1
}
