package events_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

func TestClean(t *testing.T) {
	day := func(n int) time.Time { return epoch.AddDate(0, 0, n) }
	store := func(t *testing.T) *mem.Store {
		s := mem.New()
		for _, run := range []struct {
			ws, id     string
			began, end int // days; -1: not ended
		}{
			{"w", runAt(day(0)), 0, 0},
			{"w", runAt(day(1)), 1, 5}, // a long run
			{"w", runAt(day(2)), 2, -1},
			{"w", runAt(day(3)), 3, 3},
			{"w", runAt(day(6)), 6, 6},
			{"gone", runAt(day(1)), 1, 1},
			{"w", "not-a-uuid", 0, 0},
		} {
			list := []events.Event{{Time: day(run.began), Type: events.RunStarted}, {Time: day(run.began), Type: events.TaskFailed}}
			if run.end >= 0 {
				list = append(list, events.Event{Time: day(run.end), Type: events.RunFailed})
			}
			put(t, s, run.ws, run.id, lines(t, run.ws, run.id, list...))
		}
		torn := lines(t, "w", runAt(day(0).Add(1)), events.Event{Time: day(0), Type: events.RunCompleted})
		put(t, s, "torn", "r1", append(torn, '{'))
		return s
	}
	keep := func(_ context.Context, run events.RunRef) (bool, error) { return run.Run == runAt(day(3)), nil }
	left := func(t *testing.T, s refstore.Streams) []string {
		runs, err := events.Runs(t.Context(), s, "")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range runs {
			names = append(names, r.Workspace+"/"+r.Run)
		}
		return names
	}
	for _, test := range []struct {
		name   string
		o      events.CleanOptions
		before int
		want   []string
	}{
		{"old ones", events.CleanOptions{}, 4, []string{"w/" + runAt(day(0)), "gone/" + runAt(day(1)), "w/not-a-uuid"}},
		{"a workspace", events.CleanOptions{Workspace: "w"}, 4, []string{"w/" + runAt(day(0)), "w/not-a-uuid"}},
		{"all that ended", events.CleanOptions{}, 400, []string{"w/" + runAt(day(0)), "gone/" + runAt(day(1)), "w/" + runAt(day(1)), "w/" + runAt(day(6)), "w/not-a-uuid"}},
		{"none", events.CleanOptions{}, 0, nil},
	} {
		for _, dry := range []bool{true, false} {
			t.Run(test.name+map[bool]string{true: ", dry"}[dry], func(t *testing.T) {
				s := store(t)
				before := left(t, s)
				o := test.o
				o.Before, o.Keep, o.DryRun = day(test.before), keep, dry
				cleaned, err := events.Clean(t.Context(), s, o)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, c := range cleaned {
					got = append(got, c.Workspace+"/"+c.Run)
					if c.Events != 3 || c.Bytes < 250 || c.EndedAt.Before(epoch) {
						t.Errorf("got %+v", c)
					}
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("got  %q\nwant %q", got, test.want)
				}
				want := slices.DeleteFunc(before, func(r string) bool { return !dry && slices.Contains(test.want, r) })
				if after := left(t, s); !slices.Equal(after, want) {
					t.Errorf("left  %q\nwant %q", after, want)
				}
			})
		}
	}
	broken := errors.New("who knows")
	cleaned, err := events.Clean(t.Context(), store(t), events.CleanOptions{Before: day(400), Keep: func(_ context.Context, run events.RunRef) (bool, error) {
		if run.Workspace == "gone" {
			return false, broken
		}
		return false, nil
	}})
	if len(cleaned) != 1 || !errors.Is(err, broken) || !strings.Contains(err.Error(), "of workspace gone") {
		t.Errorf("with doubts: %v, %v", cleaned, err)
	}
}
