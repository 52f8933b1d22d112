package record_test

import (
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
	"e3/internal/format/record"
)

// Generators of valid records. Values that a record cannot distinguish from absence (an empty option, a zero time) are
// left out.

var (
	texts   = rapid.StringN(0, 12, -1)
	names   = rapid.StringN(1, 12, -1)
	numbers = rapid.Int64()
	amounts = rapid.Float64Range(0, 1e9)
	hashes  = rapid.Custom(func(t *rapid.T) string {
		return digest.Sum(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "content")).String()
	})
	times = rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64Range(-1<<40, 1<<45).Draw(t, "ms")).UTC()
	})
	optTimes = rapid.OneOf(rapid.Just(time.Time{}), times)
	micros   = rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "us")) * time.Microsecond
	})
	millis = rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 1<<40).Draw(t, "ms")) * time.Millisecond
	})
)

func few[T any](g *rapid.Generator[T]) *rapid.Generator[[]T] { return rapid.SliceOfN(g, 0, 4) }

func kinds[K ~int](n int) *rapid.Generator[K] {
	return rapid.Custom(func(t *rapid.T) K { return K(rapid.IntRange(0, n-1).Draw(t, "kind")) })
}

var statuses = rapid.Custom(func(t *rapid.T) *record.Status {
	s := &record.Status{
		State: kinds[record.State](4).Draw(t, "state"), ExecutionID: texts.Draw(t, "id"),
		InputHashes: few(hashes).Draw(t, "inputs"), StartedAt: times.Draw(t, "started"),
	}
	if s.State == record.Running {
		s.PID, s.PIDStartTime, s.BootID = numbers.Draw(t, "pid"), numbers.Draw(t, "start"), texts.Draw(t, "boot")
		return s
	}
	s.CompletedAt = times.Draw(t, "completed")
	switch s.State {
	case record.Error:
		s.Message = texts.Draw(t, "message")
	case record.Failed:
		s.ExitCode = numbers.Draw(t, "exit")
	case record.Success:
		s.OutputHash = hashes.Draw(t, "output")
	}
	return s
})

var metadata = rapid.Custom(func(t *rapid.T) *record.Metadata {
	m := &record.Metadata{ExecutionID: texts.Draw(t, "id"), Origin: record.Origin{SourceRepo: texts.Draw(t, "source")}}
	if m.Origin.SourceRepo != "" {
		m.Origin.ImportedAt = times.Draw(t, "at")
	}
	return m
})

var details = rapid.Custom(func(t *rapid.T) *record.Detail {
	d := &record.Detail{
		Attempt: numbers.Draw(t, "attempt"), Worker: texts.Draw(t, "worker"), RunID: texts.Draw(t, "run"),
		Workspace: texts.Draw(t, "ws"), Task: texts.Draw(t, "task"), UserCPU: micros.Draw(t, "user"),
		SystemCPU: micros.Draw(t, "system"), PeakRSS: numbers.Draw(t, "rss"), BytesIn: numbers.Draw(t, "in"),
		BytesOut: numbers.Draw(t, "out"), Signal: texts.Draw(t, "signal"), Reason: texts.Draw(t, "reason"),
		Version: texts.Draw(t, "version"), Logs: logs.Draw(t, "logs"),
	}
	if rapid.Bool().Draw(t, "begun before") {
		d.Begun = ids.Draw(t, "begun")
	}
	if rapid.Bool().Draw(t, "in a batch") {
		d.Batch = record.Batched{ID: ids.Draw(t, "first"), Items: rapid.IntRange(1, 1000).Draw(t, "items")}
	}
	return d
})

var logs = rapid.Custom(func(t *rapid.T) record.Logs {
	sum := func(name string) record.LogSum {
		return record.LogSum{Size: rapid.Int64Range(0, 1e17).Draw(t, name+" size"), Sum: rapid.Uint32().Draw(t, name)}
	}
	if rapid.Bool().Draw(t, "unknown") {
		return record.Logs{}
	}
	return record.Logs{Known: true, Stdout: sum("stdout"), Stderr: sum("stderr")}
})

var runs = rapid.Custom(func(t *rapid.T) *record.Run {
	r := &record.Run{
		RunID: texts.Draw(t, "id"), WorkspaceName: texts.Draw(t, "ws"), PackageRef: texts.Draw(t, "package"),
		StartedAt: times.Draw(t, "started"), CompletedAt: optTimes.Draw(t, "completed"),
		State: kinds[record.RunState](4).Draw(t, "state"), InputSnapshot: texts.Draw(t, "in"), OutputSnapshot: texts.Draw(t, "out"),
		Tasks: record.NewRunTasks(slices.Values(runEntries.Draw(t, "tasks"))),
		Summary: record.Summary{Total: numbers.Draw(t, "total"), Completed: numbers.Draw(t, "completed"),
			Cached: numbers.Draw(t, "cached"), Failed: numbers.Draw(t, "failed"), Skipped: numbers.Draw(t, "skipped")},
	}
	if r.State == record.RunFailed {
		r.FailedTask, r.Error = texts.Draw(t, "failed"), texts.Draw(t, "error")
	}
	return r
})

var runEntries = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) record.TaskExecution {
	return record.TaskExecution{
		// Around 127 and 128 bytes the length takes a second byte.
		Task:        rapid.OneOf(texts, rapid.StringN(120, 130, -1)).Draw(t, "task"),
		ExecutionID: texts.Draw(t, "execution"), Cached: rapid.Bool().Draw(t, "cached"),
	}
}), 0, 6, func(e record.TaskExecution) string { return e.Task })

var workspaceStates = rapid.Custom(func(t *rapid.T) *record.WorkspaceState {
	if rapid.IntRange(0, 9).Draw(t, "deployed") == 0 {
		return nil
	}
	return &record.WorkspaceState{
		PackageName: texts.Draw(t, "name"), PackageVersion: texts.Draw(t, "version"), PackageHash: texts.Draw(t, "hash"),
		DeployedAt: times.Draw(t, "deployed"), RootHash: texts.Draw(t, "root"), RootUpdatedAt: times.Draw(t, "updated"),
		CurrentRunID: texts.Draw(t, "run"),
	}
})

var lockStates = rapid.Custom(func(t *rapid.T) *record.LockState {
	return &record.LockState{
		Operation: kinds[record.Operation](4).Draw(t, "operation"), Holder: texts.Draw(t, "holder"),
		AcquiredAt: times.Draw(t, "acquired"), ExpiresAt: optTimes.Draw(t, "expires"),
	}
})

var envVars = rapid.Custom(func(t *rapid.T) record.EnvVar {
	return record.EnvVar{Name: texts.Draw(t, "name"), Value: texts.Draw(t, "value")}
})

var tasks = rapid.Custom(func(t *rapid.T) *record.Task {
	task := &record.Task{Env: few(envVars).Draw(t, "env"), Version: texts.Draw(t, "version")}
	if rapid.Bool().Draw(t, "shell") {
		task.Shell = texts.Draw(t, "script")
	} else {
		task.Argv = rapid.SliceOfN(texts, 1, 4).Draw(t, "argv")
	}
	plain := texts.Filter(func(s string) bool { return !strings.HasPrefix(s, "@") })
	task.Inputs = few(rapid.Custom(func(t *rapid.T) record.Input {
		in := record.Input{Name: plain.Draw(t, "name"), Kind: kinds[record.Kind](6).Draw(t, "kind")}
		if !in.Kind.OfMachine() {
			in.Path = texts.Draw(t, "path")
		}
		return in
	})).Draw(t, "inputs")
	task.Output.Multi = rapid.Bool().Draw(t, "multi")
	most := 1
	if task.Output.Multi {
		most = 4
	}
	task.Output.Entries = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record.OutputEntry {
		return record.OutputEntry{Name: texts.Draw(t, "name"), Path: texts.Draw(t, "path"), Kind: kinds[record.Kind](3).Draw(t, "kind")}
	}), 1, most).Draw(t, "outputs")
	task.Passed = record.Passed{Env: record.Names(few(texts).Draw(t, "passed")), Secrets: record.Names(few(texts).Draw(t, "secrets"))}
	if rapid.Bool().Draw(t, "closed") {
		task.Room = record.Room{Closed: true, Network: rapid.Bool().Draw(t, "network")}
		if rapid.Bool().Draw(t, "device") {
			task.Room = task.Room.WithDevices([]string{"nvidia"})
		}
		if rapid.Bool().Draw(t, "with an image") {
			task.Image = hashes.Draw(t, "image")
		}
	}
	if task.Image == "" && rapid.Bool().Draw(t, "in an environment") {
		e := &record.Environment{Path: few(rapid.SampledFrom([]string{".", "bin", "a/bin"})).Draw(t, "folders"), Env: few(envVars).Draw(t, "variables"), Platform: texts.Draw(t, "platform")}
		if rapid.Bool().Draw(t, "made by a script") {
			e.Shell = texts.Draw(t, "making script")
		} else {
			e.Argv = rapid.SliceOfN(texts, 1, 4).Draw(t, "making argv")
		}
		if rapid.Bool().Draw(t, "with a program") {
			e.Tools = []string{"uv"}
			task.Inputs = append(task.Inputs, record.Input{Name: "%uv", Kind: record.KindTool})
		}
		task.Environment = e
		task.Inputs = append(task.Inputs, record.Input{Name: record.EnvironmentInput("py"), Kind: record.KindDir})
	}
	if rapid.Bool().Draw(t, "in batches") {
		task.Batch = &record.Batch{}
		if len(task.Env) > 0 {
			task.Batch.Own = []string{task.Env[0].Name}
		}
	}
	return task
})

var leaves = rapid.Custom(func(t *rapid.T) record.Leaf {
	l := record.Leaf{Kind: kinds[record.LeafKind](5).Draw(t, "kind")}
	if l.Kind != record.LeafUnassigned {
		l.Hash = hashes.Draw(t, "hash")
	}
	if l.Kind == record.LeafFile {
		l.Size, l.Executable = numbers.Draw(t, "size"), rapid.Bool().Draw(t, "executable")
	}
	return l
})

var nodes = rapid.Custom(func(t *rapid.T) record.Node {
	n := record.Node(rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) record.NodeEntry {
		return record.NodeEntry{Name: texts.Draw(t, "name"), Leaf: leaves.Draw(t, "leaf")}
	}), 0, 8, func(e record.NodeEntry) string { return e.Name }).Draw(t, "entries"))
	slices.SortFunc(n, func(a, b record.NodeEntry) int { return beast2.CompareStrings(a.Name, b.Name) })
	return n
})

var wires = rapid.Custom(func(t *rapid.T) record.Wire {
	w := record.Wire{Kind: rapid.SampledFrom([]record.WireKind{record.WireFanIn, record.WireInput, record.WireOutput}).Draw(t, "kind")}
	switch w.Kind {
	case record.WireInput:
		w.Name, w.Entry = texts.Draw(t, "name"), texts.Draw(t, "entry")
	case record.WireOutput:
		w.Name, w.Entry = texts.Draw(t, "task"), texts.Draw(t, "entry")
	case record.WireFanIn:
		w.Items = few(rapid.Custom(func(t *rapid.T) record.FanItem {
			return record.FanItem{Label: texts.Draw(t, "label"), Task: texts.Draw(t, "task"), Entry: texts.Draw(t, "entry")}
		})).Draw(t, "items")
	}
	return w
})

var views = rapid.Custom(func(t *rapid.T) record.View {
	v := record.View{Entry: texts.Draw(t, "entry"), Path: texts.Draw(t, "path"), Kind: kinds[record.ViewKind](3).Draw(t, "kind")}
	if rapid.Bool().Draw(t, "drawn") {
		v.Plot = record.Plot{
			X: texts.Draw(t, "x"), Y: few(texts).Draw(t, "y"), Title: texts.Draw(t, "title"), XLabel: texts.Draw(t, "x label"),
			YLabel: texts.Draw(t, "y label"), Template: texts.Draw(t, "template"),
		}
	}
	return v
})

var policies = rapid.Custom(func(t *rapid.T) record.Policy {
	if rapid.Bool().Draw(t, "default") {
		return record.Policy{}
	}
	p := record.Policy{
		Description: texts.Draw(t, "description"), Timeout: millis.Draw(t, "timeout"), Retries: numbers.Draw(t, "retries"),
		Backoff: millis.Draw(t, "backoff"), CPU: amounts.Draw(t, "cpu"), Memory: numbers.Draw(t, "memory"),
		Resources: few(rapid.Custom(func(t *rapid.T) record.Amount {
			return record.Amount{Name: texts.Draw(t, "name"), Value: amounts.Draw(t, "value")}
		})).Draw(t, "resources"),
		Priority: numbers.Draw(t, "priority"), Views: few(views).Draw(t, "views"),
	}
	if rapid.Bool().Draw(t, "says more") {
		p.RetryOn, p.Lost = few(texts).Draw(t, "on"), record.LostRetries(rapid.Int64Min(-1).Draw(t, "lost"))
		p.OOM = record.Escalation{Factor: amounts.Draw(t, "factor"), Max: rapid.Int64Min(0).Draw(t, "most")}
		p.Approve, p.Suspend = rapid.Bool().Draw(t, "approve"), rapid.Int64Range(0, 255).Draw(t, "suspend")
		p.OnLost, p.MayFail = kinds[record.OnLost](3).Draw(t, "on lost"), rapid.Bool().Draw(t, "may fail")
		p.Batch, p.Limits = rapid.Int64Range(0, 1000).Draw(t, "batch"), rapid.Bool().Draw(t, "limits")
		p.Queue, p.Labels = texts.Draw(t, "queue"), few(texts).Draw(t, "labels")
	}
	return p
})

var packages = rapid.Custom(func(t *rapid.T) *record.Package {
	return &record.Package{
		Name: texts.Draw(t, "name"), Version: texts.Draw(t, "version"), Description: texts.Draw(t, "description"),
		Inputs: rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) record.PackageInput {
			in := record.PackageInput{Name: texts.Draw(t, "name"), Source: kinds[record.InputSource](9).Draw(t, "source"),
				Location: texts.Draw(t, "location"), Executable: rapid.Bool().Draw(t, "executable"), NoExport: rapid.Bool().Draw(t, "no export"),
				Default: leaves.Draw(t, "default")}
			switch in.Source {
			case record.FromVariable:
				in.Name, in.Default = record.VariableInput(in.Location), record.Leaf{Kind: record.LeafUnassigned}
			case record.FromTool:
				in.Name, in.Default = record.ToolInput(in.Location), record.Leaf{Kind: record.LeafUnassigned}
			}
			return in
		}), 0, 4, func(in record.PackageInput) string { return in.Name }).Draw(t, "inputs"),
		Tasks: rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) record.PackageTask {
			return record.PackageTask{Name: texts.Draw(t, "name"), Task: hashes.Draw(t, "task"),
				Output: kinds[record.Kind](3).Draw(t, "output"), Wiring: few(wires).Draw(t, "wiring"), Policy: policies.Draw(t, "policy")}
		}), 0, 4, func(task record.PackageTask) string { return task.Name }).Draw(t, "tasks"),
	}
})

var fileStats = rapid.Custom(func(t *rapid.T) record.FileStat {
	return record.FileStat{Size: numbers.Draw(t, "size"), ModTime: numbers.Draw(t, "mtime"), ChangeTime: numbers.Draw(t, "ctime"),
		Inode: numbers.Draw(t, "inode"), Seen: numbers.Draw(t, "seen")}
})

var links = rapid.Custom(func(t *rapid.T) *record.Link {
	return &record.Link{
		Home: texts.Draw(t, "home"), Room: texts.Draw(t, "room"), Images: texts.Draw(t, "images"), File: texts.Draw(t, "file"), Stat: fileStats.Draw(t, "stat"), Package: hashes.Draw(t, "package"), Set: few(texts).Draw(t, "set"),
		Inputs: few(rapid.Custom(func(t *rapid.T) record.LinkInput {
			return record.LinkInput{Name: texts.Draw(t, "name"), Source: kinds[record.InputSource](9).Draw(t, "source"),
				Location: texts.Draw(t, "location"), Leaf: leaves.Draw(t, "leaf"),
				Files: few(rapid.Custom(func(t *rapid.T) record.LinkFile {
					return record.LinkFile{Path: texts.Draw(t, "path"), Stat: fileStats.Draw(t, "stat"),
						Hash:       digest.Sum([]byte(texts.Draw(t, "content"))),
						Executable: rapid.Bool().Draw(t, "executable")}
				})).Draw(t, "files"), Folder: rapid.SliceOf(rapid.Byte()).Draw(t, "folder")}
		})).Draw(t, "inputs"),
	}
})

var resultsPlans = rapid.Custom(func(t *rapid.T) *record.ResultsPlan {
	return &record.ResultsPlan{Dir: texts.Draw(t, "dir"), Of: few(texts).Draw(t, "of")}
})

var resultLists = rapid.Custom(func(t *rapid.T) *record.Results {
	return &record.Results{
		Files: few(rapid.Custom(func(t *rapid.T) record.ResultFile {
			f := record.ResultFile{Path: texts.Draw(t, "path"), Set: texts.Draw(t, "set"), Kind: kinds[record.ResultKind](4).Draw(t, "kind"),
				Stat: fileStats.Draw(t, "stat"), Hash: digest.Sum([]byte(texts.Draw(t, "content")))}
			if rapid.Bool().Draw(t, "at work") {
				next := digest.Sum([]byte(texts.Draw(t, "next")))
				f.Next = next[:]
			}
			return f
		})).Draw(t, "files"),
		Sets: few(rapid.Custom(func(t *rapid.T) record.ResultSet {
			return record.ResultSet{Name: texts.Draw(t, "name"), Source: texts.Draw(t, "source")}
		})).Draw(t, "sets"),
	}
})

var proofs = rapid.Custom(func(t *rapid.T) *record.Proof {
	p := &record.Proof{
		RunID: texts.Draw(t, "run"), Package: texts.Draw(t, "package"), Inputs: texts.Draw(t, "inputs"), Tasks: texts.Draw(t, "tasks"),
		Generation: texts.Draw(t, "generation"), Shards: few(numbers).Draw(t, "shards"), CheckedAt: numbers.Draw(t, "checked"),
		Durable: rapid.Bool().Draw(t, "durable"), Partial: rapid.Bool().Draw(t, "partial"), Open: few(texts).Draw(t, "open"),
	}
	if rapid.Bool().Draw(t, "signed") {
		p.Signature = signatures.Draw(t, "signature")
	}
	return p
})

var durations = rapid.MapOfN(names, millis, 0, 6)
