package beneath

// WithoutOpenat2 runs a test as on a kernel without that call.
func WithoutOpenat2(do func()) {
	had := canOpenat2
	canOpenat2 = func() bool { return false }
	defer func() { canOpenat2 = had }()
	do()
}
