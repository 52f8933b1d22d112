package workspace

import "context"

// SetAttempts replaces Stores.Attempts.
func (w *Runner) SetAttempts(f func(ctx context.Context, ws, run string) ([]JobAttempt, error)) {
	w.states.Attempts = f
}
