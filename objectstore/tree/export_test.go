package tree

// Header is the beginning of every directory object, for tests.
const Header = header
