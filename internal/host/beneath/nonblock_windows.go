package beneath

// Nonblock is no flag here.
const Nonblock = 0
