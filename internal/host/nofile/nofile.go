// Package nofile knows how many open files the process that started this one allowed it. The Go runtime raises this limit
// when it begins, and only syscall.ForkExec lowers it again for commands; a program that forks by itself has to do so too.
package nofile

// A Limit is struct rlimit64.
type Limit struct{ Soft, Hard uint64 }
