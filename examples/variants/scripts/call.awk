# Stands for a caller: the bases of mapped reads that differ from the genome, and how many reads show them.
FNR == NR { if (!/^>/) genome = genome $0; next }
{
	for (i = 1; i <= length($3); i++) {
		base = substr($3, i, 1)
		if (base != substr(genome, $1 + i - 1, 1)) seen[sprintf("%05d\t%s", $1 + i - 1, base)]++
	}
}
END { for (v in seen) if (seen[v] >= least) print v "\t" seen[v] | "sort" }
