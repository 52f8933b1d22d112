# Continues the record by horizon months. The model comes first, then the monthly record.
# Writes "month,co2,low,high"; low and high are two standard deviations of the fit away.

BEGIN { FS = "," }

NR == FNR { model[$1] = $2; next }
FNR > 1 { last = $1 }

END {
	for (i = 1; ("coef" i) in model; i++) coef[i] = model["coef" i]
	print "month,co2,low,high"
	m = substr(last, 1, 4) * 12 + substr(last, 6, 2) - 1
	for (k = 1; k <= horizon; k++) {
		month = sprintf("%04d-%02d", int((m + k) / 12), (m + k) % 12 + 1)
		v = predict(years(month), model["degree"], model["harmonics"], coef)
		printf "%s,%.3f,%.3f,%.3f\n", month, v, v - 2 * model["sigma"], v + 2 * model["sigma"]
	}
}
