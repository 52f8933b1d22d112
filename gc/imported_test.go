package gc_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"e3/gc"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Of a workspace's imported runs, the latest 20 stay, the one that its state names, and recent imports. The next
// collection removes the objects of the rest.
func TestImportedRunsRetire(t *testing.T) {
	h := newHouse(t, t.TempDir())
	now := time.Now()
	made := int64(0)
	held, ids := map[string]objectstore.Hash{}, map[string][]string{}
	add := func(ws string, came time.Time) {
		made++
		u, ended := uuid.Must(uuid.NewV7()), now.AddDate(-1, 0, 0)
		var stamp [8]byte
		binary.BigEndian.PutUint64(stamp[:], uint64(ended.UnixMilli()+made)) // runs are as old as their ids say
		copy(u[:6], stamp[2:])
		id := u.String()
		snapshot := h.put("{" + id + "}")
		run := record.Run{RunID: id, WorkspaceName: ws, PackageRef: "p@1", StartedAt: ended, CompletedAt: ended, State: record.RunCompleted, InputSnapshot: snapshot.String()}
		p := record.Provenance{Steps: []record.Step{{By: "ann@a", ImportedAt: now.AddDate(-9, 0, 0)}, {By: "bob@b", ImportedBy: "me@here", ImportedAt: came}}}
		_, err := h.Records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "DATAFLOW/" + ws, Sort: id}, Value: run.Encode(),
			Fields: []refstore.Field{{Name: "provenance.beast2", Value: p.Encode()}}})
		h.must(err)
		held[id], ids[ws] = snapshot, append(ids[ws], id)
		line := fmt.Sprintf(`{"seq":1,"time":%q,"run":%q,"workspace":%q,"type":"run.completed"}`, ended.UTC().Format(time.RFC3339), id, ws)
		h.must(h.Records.Append(t.Context(), refstore.Key{Partition: "EVENTS/" + ws, Sort: id}, 0, []byte(eventstest.Summed(line+"\n"))))
	}
	h.must(h.Workspaces.Create(t.Context(), "here"))
	for i := range 25 {
		came := now.AddDate(0, 0, -100)
		if i == 1 {
			came = now.AddDate(0, 0, -10)
		}
		add("here", came)
		add("away", now.AddDate(0, 0, -100))
	}
	add("few", now.AddDate(0, 0, -100))
	// The state names the third.
	rec, err := h.Records.Get(t.Context(), refstore.Key{Partition: "WORKSPACE", Sort: "here"})
	h.must(err)
	state := record.WorkspaceState{PackageName: "p", PackageVersion: "1", PackageHash: h.put("package").String(), DeployedAt: now,
		RootHash: h.put("root").String(), RootUpdatedAt: now, CurrentRunID: ids["here"][2]}
	rec.Value = state.Encode()
	_, err = h.Records.Put(t.Context(), rec)
	h.must(err)

	want := []events.RunRef{}
	for _, ws := range []string{"away", "here"} {
		for i, id := range ids[ws][:5] {
			if ws == "away" || i != 1 && i != 2 {
				want = append(want, events.RunRef{Workspace: ws, Run: id})
			}
		}
	}
	order := func(a, b events.RunRef) int {
		return slices.Compare([]string{a.Workspace, a.Run}, []string{b.Workspace, b.Run})
	}
	before := now.AddDate(0, 0, -90)
	for _, dry := range []bool{true, false} {
		got, err := h.Workspaces.Cleaner.RetireImported(t.Context(), before, dry)
		h.must(err)
		slices.SortFunc(got, order)
		slices.SortFunc(want, order)
		if !slices.Equal(got, want) {
			t.Errorf("dry run %v: %d go, %v, want %d: %v", dry, len(got), got, len(want), want)
		}
	}
	cleaned, err := h.Workspaces.Cleaner.CleanEvents(t.Context(), "", before, false)
	h.must(err)
	if len(cleaned) != len(want) {
		t.Errorf("the events of %d runs went, want those of the %d", len(cleaned), len(want))
	}
	h.must(h.Records.Delete(t.Context(), rec.Key, must(h.Records.Get(t.Context(), rec.Key)).Version)) // its package and tree are none
	h.collect(gc.Options{})
	for id, snapshot := range held {
		gone := slices.ContainsFunc(want, func(r events.RunRef) bool { return r.Run == id })
		if there := h.has(snapshot); there == gone {
			t.Errorf("what run %s held is there: %v, want %v", id, there, !gone)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
