package workspace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"e3/workspace"
)

// A wait for a free workspace names each holder once, and ends within a second of the holder.
func TestAwaitFree(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		first := st.begin("w0", nil)
		time.Sleep(10 * time.Second)
		var told []*workspace.BusyError
		began := time.Now()
		waiter := st.process()
		if err := waiter.ws.AwaitFree(t.Context(), "w0", func(e *workspace.BusyError) { told = append(told, e) }); err != nil {
			t.Fatal(err)
		}
		free := time.Now()
		<-first.done
		late := free.Sub(began) - (first.took - 10*time.Second)
		if late < 0 || late > time.Second {
			t.Errorf("the wait ended %v after the run, want at most 1s", late)
		}
		if len(told) != 1 || told[0].Doing() != "being run" || told[0].Holder == "" || told[0].Since.IsZero() {
			t.Errorf("told of %+v, want the one run", told)
		}
	})
}

func TestAwaitFreeEnds(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		first := st.begin("w0", nil)
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		err := st.process().ws.AwaitFree(ctx, "w0", func(*workspace.BusyError) {})
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 6*time.Second {
			t.Errorf("AwaitFree: %v after %v, want the end of its context after 5s", err, took)
		}
		if err := st.process().ws.AwaitFree(t.Context(), "other", nil); err != nil {
			t.Errorf("a free workspace: %v", err)
		}
		<-first.done
	})
}
