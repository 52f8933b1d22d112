package notation

// MaxBatch is the greatest number of items that one command gets. Each item has its own folder and three open files.
const MaxBatch = 1_000
