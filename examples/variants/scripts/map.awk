# Stands for a mapper: the place of each read in the genome, with at most two bases that differ.
FNR == NR { if (!/^>/) genome = genome $0; next }
FNR % 4 == 2 {
	for (at = 1; at <= length(genome) - length($0) + 1; at++) {
		differ = 0
		for (i = 1; i <= length($0) && differ <= 2; i++) differ += substr(genome, at + i - 1, 1) != substr($0, i, 1)
		if (differ <= 2) { printf "%d\t%s\t%s\n", at, sample, $0; break }
	}
}
