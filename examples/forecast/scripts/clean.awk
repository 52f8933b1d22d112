# Weekly readings, "YYYYMMDD,ppm" with an empty value where there was none, to monthly
# means: "YYYY-MM,ppm,readings". Months without a reading are interpolated and have 0.

BEGIN { FS = ","; first = 999999 }

NR == 1 { if ($0 != "date,co2") fail("the first line is not \"date,co2\""); next }

{
	sub(/\r$/, "")
	if (NF != 2 || length($1) != 8 || $1 ~ /[^0-9]/ || $2 ~ /[^0-9.]/) fail("not a reading: " $0)
	month = substr($1, 1, 4) * 12 + substr($1, 5, 2) - 1
	if (month < first) first = month
	if (month > last) last = month
	if ($2 != "") { sum[month] += $2; count[month]++ }
}

END {
	if (failed) exit 1
	if (!last || !count[first] || !count[last]) fail("the record must begin and end with a month that has readings")
	print "month,co2,readings"
	for (m = first; m <= last; m++) {
		if (count[m]) { value = sum[m] / count[m]; before = m }
		else {
			for (after = m; !count[after]; after++) ;
			left = sum[before] / count[before]; right = sum[after] / count[after]
			value = left + (right - left) * (m - before) / (after - before)
			filled++
		}
		printf "%04d-%02d,%.3f,%d\n", int(m / 12), m % 12 + 1, value, count[m]
	}
	printf "%d weeks, %d months, %d of them filled in\n", NR - 1, last - first + 1, filled | "cat 1>&2"
}

function fail(why) {
	printf "clean: line %d: %s\n", NR, why | "cat 1>&2"
	failed = 1
	exit 1
}
