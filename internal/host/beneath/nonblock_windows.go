package beneath

// Nonblock is no flag here.
const Nonblock = 0

// Folder is a flag of OpenFile with which it opens folders alone, and nothing keeps it waiting.
const Folder = 0
