package atomicfile

// NewHiddenNamed is NewHidden where there are no files without a name.
var NewHiddenNamed = newHiddenNamed
