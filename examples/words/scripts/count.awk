# The words of a book, the most frequent one first: how often, and its share.
{ for (i = 1; i <= NF; i++) { n[tolower($i)]++; all++ } }
END { for (w in n) printf "%s %d %.2f\n", w, n[w], n[w] / all | "sort -k 2,2nr -k 1,1" }
