# Errors of models on the last holdout months. The monthly record comes first, then one
# file a model. Writes "degree,rmse,mae,bias", in ppm.

BEGIN { FS = ","; print "degree,rmse,mae,bias" }

FNR == 1 { file++ }
file == 1 { if (FNR > 1) { t[++months] = years($1); y[months] = $2 }; next }
FNR == 1 { if (file > 2) score(); split("", model) }
{ model[$1] = $2 }

END { score() }

function score(    m, e, squares, sum, bias, i, coef) {
	for (i = 1; ("coef" i) in model; i++) coef[i] = model["coef" i]
	for (m = months - holdout + 1; m <= months; m++) {
		e = predict(t[m], model["degree"], model["harmonics"], coef) - y[m]
		squares += e * e; sum += e < 0 ? -e : e; bias += e
	}
	printf "%d,%.4f,%.4f,%.4f\n", model["degree"], sqrt(squares / holdout), sum / holdout, bias / holdout
}
