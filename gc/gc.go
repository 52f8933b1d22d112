// Package gc keeps a repository small: [Collect] removes the objects that nothing needs, [Prune] removes executions
// from the cache (doc/design.md, "Keeping the house clean").
package gc
