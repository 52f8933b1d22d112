# The result in words, as Markdown. Reads the monthly record, the forecast and the scores.

BEGIN { FS = "," }

FNR == 1 { file++; next }
file == 1 { if (!months++) from = $1; to = $1; value = $2; if (!$3) filled++ }
file == 2 { ahead++; if (ahead % 12 == 0) { yearly[++years] = $1; mean[years] = $2; low[years] = $3; high[years] = $4 } }
file == 3 { degree[++models] = $1; rmse[models] = $2; mae[models] = $3; bias[models] = $4; if (!best || $2 + 0 < rmse[best] + 0) best = models }

END {
	print "# CO2 at Mauna Loa\n"
	printf "%d months from %s to %s, %d of them filled in. The last one has %.1f ppm.\n\n", months, from, to, filled, value
	print "Errors on the months that training did not see, in ppm:\n"
	print "| degree | RMSE | MAE | bias | |\n|---:|---:|---:|---:|---|"
	for (i = 1; i <= models; i++) printf "| %d | %.2f | %.2f | %+.2f | %s |\n", degree[i], rmse[i], mae[i], bias[i], (i == best ? "chosen" : "")
	printf "\nThe forecast, %d months ahead:\n\n", ahead
	print "| month | ppm | low | high |\n|---|---:|---:|---:|"
	for (i = 1; i <= years; i++) printf "| %s | %.1f | %.1f | %.1f |\n", yearly[i], mean[i], low[i], high[i]
}
