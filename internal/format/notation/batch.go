package notation

// MaxBatch is the greatest number of items that one command gets. Each has a folder of its own and three open files.
const MaxBatch = 1_000
