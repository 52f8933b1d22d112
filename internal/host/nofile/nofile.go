// Package nofile knows the limit of open files with which this process was started. The Go runtime raises this limit
// when it begins, and only syscall.ForkExec lowers it again for commands; a program that forks by itself has to lower
// it, too.
package nofile

// A Limit is struct rlimit64.
type Limit struct{ Soft, Hard uint64 }
