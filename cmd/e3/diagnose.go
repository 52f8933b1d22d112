package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strings"
)

// diagnose begins the diagnostics that E3_DEBUG and E3_PROFILE ask for. stop ends them and writes the profiles.
func (a *app) diagnose() (stop func() error, err error) {
	if topics := a.Getenv("E3_DEBUG"); topics != "" {
		h, err := newTopicFilter(topics, a.Stderr)
		if err != nil {
			return nil, usagef("E3_DEBUG: %v", err)
		}
		slog.SetDefault(slog.New(h))
	}
	return beginProfiles(a.Getenv("E3_PROFILE"))
}

// debugTopics are the topics that E3_DEBUG may name. A message has its topic as first attribute.
var debugTopics = []string{"leases", "lookups", "requests"}

// topicFilter passes on the messages of some topics. It is safe for concurrent use.
type topicFilter struct {
	slog.Handler
	named []string
}

// newTopicFilter reads a list of topics, such as "leases,requests"; "all" is all of them.
func newTopicFilter(list string, out io.Writer) (*topicFilter, error) {
	t := &topicFilter{Handler: slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})}
	for name := range strings.SplitSeq(list, ",") {
		switch {
		case name == "all":
			t.named = debugTopics
		case slices.Contains(debugTopics, name):
			t.named = append(t.named, name)
		default:
			return nil, fmt.Errorf("no topic %q; there are %s and all", name, strings.Join(debugTopics, ", "))
		}
	}
	return t, nil
}

// Handle writes a message if its topic was asked for.
func (t *topicFilter) Handle(ctx context.Context, r slog.Record) error {
	wanted := false
	r.Attrs(func(first slog.Attr) bool {
		wanted = first.Key == "topic" && slices.Contains(t.named, first.Value.String())
		return false
	})
	if !wanted {
		return nil
	}
	return t.Handler.Handle(ctx, r)
}

// beginProfiles begins the profiles of a list such as "cpu:e3.cpu,memory:e3.mem".
func beginProfiles(list string) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range stops {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	if list == "" {
		return stop, nil
	}
	for each := range strings.SplitSeq(list, ",") {
		kind, file, _ := strings.Cut(each, ":")
		if file == "" || !slices.Contains([]string{"cpu", "memory", "trace"}, kind) {
			return nil, errors.Join(usagef("E3_PROFILE is a list of cpu:FILE, memory:FILE and trace:FILE, not %q", each), stop())
		}
		end, err := profileTo(kind, file)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("E3_PROFILE: %w", err), stop())
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// profileTo begins one profile.
func profileTo(kind, file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	switch kind {
	case "cpu":
		err = pprof.StartCPUProfile(f)
		stop = func() error { pprof.StopCPUProfile(); return f.Close() }
	case "trace":
		err = trace.Start(f)
		stop = func() error { trace.Stop(); return f.Close() }
	default:
		stop = func() error {
			runtime.GC() // a heap profile shows the state at the last collection
			return errors.Join(pprof.WriteHeapProfile(f), f.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return stop, nil
}
