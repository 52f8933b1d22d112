package cached

// Booted is when this machine started.
var Booted = booted
