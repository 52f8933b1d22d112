package atomicfile

// NewHiddenNamed is NewHidden on a system without unnamed files.
var NewHiddenNamed = newHiddenNamed
