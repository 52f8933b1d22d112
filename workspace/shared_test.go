package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
	"e3/workspace"
)

// A team shares the workspace w. Each member has a machine with a project of its own.
type team struct {
	t       testing.TB
	dir     string
	records *mem.Store
	objects *objectstore.Dir
	table   *leaseTable
	version int           // of the package that was last registered
	later   time.Duration // how far all clocks are ahead
}

func newTeam(t testing.TB, dir string) *team {
	t.Helper()
	objects, err := objectstore.OpenDir(filepath.Join(dir, "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &team{t: t, dir: dir, records: mem.New(), objects: objects, table: newLeaseTable()}
}

// A colleague is a machine. Its local records outlive its processes.
type colleague struct {
	team  *team
	name  string
	dir   string // of the project
	local *mem.Store
}

func (tm *team) colleague(name string) *colleague {
	tm.t.Helper()
	c := &colleague{team: tm, name: name, dir: filepath.Join(tm.dir, name), local: mem.New()}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		tm.t.Fatal(err)
	}
	return c
}

func (c *colleague) file() string { return filepath.Join(c.dir, c.name+".yaml") }

func (c *colleague) write(name, text string) {
	c.team.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
		c.team.t.Fatal(err)
	}
}

// project writes the package file, with the text of the value n.
func (c *colleague) project(n string) {
	c.write(c.name+".yaml", fmt.Sprintf("e3: 1\nname: p\ninputs: {a: {file: a.txt}, b: {file: b.txt}, n: {value: %q}}\n"+
		"tasks: {t: {in: [a, b], out: o, run: cat $a $b}}\n", n))
}

// A fuse kills a process at one of its calls of the stores: before the call takes effect, or after.
type fuse struct {
	mu    sync.Mutex
	calls int
	at    int // 0: never
	after bool
	dead  bool
	last  string
}

// burn returns whether the call takes effect, and whether it returns.
func (f *fuse) burn(what string, key any) (takes, answered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return false, false
	}
	f.calls++
	if f.calls == f.at {
		f.dead, f.last = true, fmt.Sprint(what, " ", key)
		return f.after, false
	}
	return true, true
}

// A fusedStore is a store as one process sees it.
type fusedStore struct {
	*mem.Store
	fuse *fuse
}

func (s *fusedStore) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if _, ok := s.fuse.burn("get", key); !ok {
		return refstore.Record{}, errDead
	}
	return s.Store.Get(ctx, key, fields...)
}

func (s *fusedStore) Put(ctx context.Context, r refstore.Record) (v refstore.Version, err error) {
	takes, ok := s.fuse.burn("put", r.Key)
	if takes {
		v, err = s.Store.Put(ctx, r)
	}
	if !ok {
		return "", errDead
	}
	return v, err
}

func (s *fusedStore) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.Put(ctx, r)
}

func (s *fusedStore) Sync(context.Context) error { return nil }

func (s *fusedStore) Delete(ctx context.Context, key refstore.Key, v refstore.Version) (err error) {
	takes, ok := s.fuse.burn("delete", key)
	if takes {
		err = s.Store.Delete(ctx, key, v)
	}
	if !ok {
		return errDead
	}
	return err
}

func (s *fusedStore) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if _, ok := s.fuse.burn("list", q.Partition); !ok {
		return func(yield func(refstore.Record, error) bool) { yield(refstore.Record{}, errDead) }
	}
	return s.Store.List(ctx, q)
}

func (s *fusedStore) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) (err error) {
	takes, ok := s.fuse.burn("append", key)
	if takes {
		err = s.Store.Append(ctx, key, offset, data)
	}
	if !ok {
		return errDead
	}
	return err
}

// A colleagueProcess is a command on a machine.
type colleagueProcess struct {
	*colleague
	ws      *workspace.Workspaces
	session *leaseSession
	fuse    *fuse
}

// process starts a command; f, which may be nil, says where it dies.
func (c *colleague) process(f *fuse) *colleagueProcess {
	if f == nil {
		f = &fuse{}
	}
	p := &colleagueProcess{colleague: c, session: c.team.table.session(), fuse: f}
	records := &fusedStore{c.team.records, f}
	p.ws = workspace.New(workspace.Stores{
		Records: records, Derived: records, Local: &fusedStore{c.local, f}, Locks: p.session, Objects: c.team.objects, Lookups: 4,
		Now:    func() time.Time { return time.Now().Add(time.Hour + c.team.later) }, // so that files look settled
		Holder: func() string { return ".process (pid=1)" }, User: func() string { return c.name + "@" + c.name },
		Sweep: func(context.Context) error { return nil },
	})
	return p
}

func (p *colleagueProcess) deploy(ctx context.Context) (*workspace.Built, error) {
	if err := p.ws.Create(ctx, "w"); err != nil && !errors.Is(err, workspace.ErrExists) {
		return nil, err
	}
	return p.ws.Deployer.DeployFile(ctx, "w", p.file())
}

// register registers the present package file as a package and deploys that.
func (p *colleagueProcess) register(ctx context.Context) error {
	built, err := p.ws.Deployer.Build(ctx, p.file(), nil)
	if err != nil {
		return err
	}
	p.team.version++
	ref := workspace.PackageRef{Name: "p", Version: fmt.Sprintf("1.0.%d", p.team.version), Hash: built.Hash}
	if err := p.ws.Packages.Add(ctx, ref); err != nil {
		return err
	}
	return p.ws.Deployer.Deploy(ctx, "w", ref)
}

func (p *colleagueProcess) set(ctx context.Context, name, text string) error {
	leaf, err := p.ws.Datasets.PutStream(ctx, strings.NewReader(text))
	if name == "n" {
		leaf, err = p.ws.Datasets.PutValue(ctx, text)
	}
	if err != nil {
		return err
	}
	return p.ws.Datasets.Set(ctx, "w", name, leaf)
}

// start runs the workspace and returns the RunInfo.
func (p *colleagueProcess) start(ctx context.Context) (*workspace.RunInfo, error) {
	records := &fusedStore{p.team.records, p.fuse}
	runner := &place{run: shell}
	executor := executions.NewExecutor(executions.NewStore(records, p.team.objects), p.team.objects, p.session, runner, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: func(string) (string, bool) { return "", false },
		Scratch: func() (string, error) { return os.MkdirTemp(p.team.dir, "scratch") }, Now: time.Now,
	})
	var info *workspace.RunInfo
	_, err := p.ws.Runner.Start(ctx, "w", workspace.StartOptions{
		Executor: executor, Concurrency: 1, OnStart: func(i *workspace.RunInfo) { info = i },
	})
	return info, err
}

// inputs returns the workspace's inputs.
func (p *colleagueProcess) inputs(ctx context.Context) (map[string]string, error) {
	m := map[string]string{}
	for _, name := range []string{"a", "b", "n"} {
		d, err := p.ws.Datasets.Dataset(ctx, "w", workspace.DatasetPath{Name: name})
		if err != nil {
			return nil, err
		}
		h, err := objectstore.ParseHash(d.Hash)
		if err != nil {
			return nil, err
		}
		data, err := objectstore.ReadAll(ctx, p.team.objects, h, 1<<20)
		if err != nil {
			return nil, err
		}
		if m[name] = string(data); d.Kind == record.LeafValue {
			v, err := value.Decode(data)
			if err != nil {
				return nil, err
			}
			text, err := v.JSON()
			if err != nil {
				return nil, err
			}
			m[name] = strings.Trim(string(text), `"`)
		}
	}
	return m, nil
}

// marked returns the inputs that the workspace reports as set.
func (p *colleagueProcess) marked(ctx context.Context) (names []string, err error) {
	st, err := p.ws.Planner.Status(ctx, "w")
	if err != nil {
		return nil, err
	}
	for i := range st.Datasets {
		if st.Datasets[i].Set {
			names = append(names, st.Datasets[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// A teamModel is the expected content of the workspace.
type teamModel struct {
	owner    string                       // the machine whose package file is followed; "" for a registered package
	defaults map[string]string            // of the deployed package
	linked   map[string]string            // content of the owner's files when they were last read
	taken    map[string]string            // values of inputs that are not set: as linked, or the default after an unset on another machine
	set      map[string]string            // values that were set
	files    map[string]map[string]string // files on the machines' disks
	deployed map[string]bool              // machines that have deployed a file, and no package after it
}

func (m *teamModel) inputs() map[string]string {
	all := maps.Clone(m.taken)
	maps.Copy(all, m.set)
	return all
}

// deploy also models a start of the owner after a change of its package file.
func (m *teamModel) deploy(who string) {
	m.owner, m.defaults, m.linked, m.taken = who, maps.Clone(m.files[who]), maps.Clone(m.files[who]), maps.Clone(m.files[who])
	m.deployed[who] = true
}

func (m *teamModel) register(who string) {
	m.deploy(who)
	m.owner, m.deployed[who] = "", false
	m.differ()
}

// differ forgets set values that equal the package's: a registered package has no marks.
func (m *teamModel) differ() {
	if m.owner == "" {
		maps.DeleteFunc(m.set, func(name, text string) bool { return text == m.defaults[name] })
	}
}

func (m *teamModel) start(who string) {
	switch files := m.files[who]; {
	case m.owner != who:
	case files["n"] != m.defaults["n"]:
		m.deploy(who)
	default:
		m.linked, m.taken = maps.Clone(files), maps.Clone(files)
	}
}

func (m *teamModel) unset(who, name string) {
	if m.owner == who {
		m.taken[name] = m.linked[name]
	} else {
		m.taken[name] = m.defaults[name] // until the owner starts again, or unsets it
	}
	delete(m.set, name)
}

// Whatever the machines do, in any order: the workspace has the last deployment with later set values, and a start on a
// machine that is not the owner changes nothing.
func TestTeam(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "team")
		if err != nil {
			t.Fatal(err)
		}
		ctx, tm := t.Context(), newTeam(t, dir)
		m := &teamModel{set: map[string]string{}, files: map[string]map[string]string{}, deployed: map[string]bool{}}
		size := 0
		text := func() string { // every text has another length, so that each edit shows
			size++
			return strings.Repeat("x", size)
		}
		machines := map[string]*colleague{}
		edit := func(who, name string) {
			m.files[who][name] = text()
			if name == "n" {
				machines[who].project(m.files[who]["n"])
			} else {
				machines[who].write(name+".txt", m.files[who][name])
			}
		}
		names := []string{"ann", "bob", "eve"}
		inputs := []string{"a", "b", "n"}
		for _, who := range names {
			machines[who], m.files[who] = tm.colleague(who), map[string]string{}
			for _, name := range inputs {
				edit(who, name)
			}
		}
		must := func(err error) {
			if err != nil {
				rt.Helper()
				rt.Fatal(err)
			}
		}
		over := func(who string, built *workspace.Built, before string) {
			if other := before != who; built.Over == nil == other {
				rt.Fatalf("%s deploys over %v, and the workspace was %q's", who, built.Over, before)
			}
		}
		who := func(rt *rapid.T) string { return rapid.SampledFrom(names).Draw(rt, "who") }
		which := func(rt *rapid.T) string { return rapid.SampledFrom(inputs).Draw(rt, "input") }
		_, err = machines["ann"].process(nil).deploy(ctx)
		must(err)
		m.deploy("ann")
		rt.Repeat(map[string]func(*rapid.T){
			"edit": func(rt *rapid.T) { edit(who(rt), which(rt)) },
			"deploy": func(rt *rapid.T) {
				who, before := who(rt), m.owner
				built, err := machines[who].process(nil).deploy(ctx)
				must(err)
				over(who, built, before)
				m.deploy(who)
			},
			"register": func(rt *rapid.T) {
				who := who(rt)
				must(machines[who].process(nil).register(ctx))
				m.register(who)
			},
			"set": func(rt *rapid.T) {
				who, name, text := who(rt), which(rt), text()
				must(machines[who].process(nil).set(ctx, name, text))
				m.set[name] = text
			},
			"unset": func(rt *rapid.T) {
				who, name := who(rt), which(rt)
				_, was := m.set[name]
				before := m.inputs()[name]
				m.unset(who, name)
				changed, err := machines[who].process(nil).ws.Datasets.Unset(ctx, "w", name)
				must(err)
				if want := was || m.inputs()[name] != before; changed != want {
					rt.Fatalf("unset of %s says %v, want %v", name, changed, want)
				}
			},
			"start": func(rt *rapid.T) {
				who := who(rt)
				info, err := machines[who].process(nil).start(ctx)
				must(err)
				m.start(who)
				if told := info.Elsewhere != nil; told != (m.owner != who && (m.deployed[who] || m.owner != "")) {
					rt.Fatalf("a start by %s, deployed: %v, reports %v; the workspace is %q's", who, m.deployed[who], info.Elsewhere, m.owner)
				}
			},
			"": func(rt *rapid.T) {
				for _, who := range names {
					p := machines[who].process(nil)
					got, err := p.inputs(ctx)
					must(err)
					if want := m.inputs(); !maps.Equal(got, want) {
						rt.Fatalf("inputs are %v, want %v; set are %v, the workspace is %q's", got, want, m.set, m.owner)
					}
					marked, err := p.marked(ctx)
					must(err)
					if want := slices.Sorted(maps.Keys(m.set)); !slices.Equal(marked, want) {
						rt.Fatalf("for %s %v are set, want %v", who, marked, want)
					}
					want := ""
					if m.owner == who {
						want = machines[who].file()
					}
					if file, err := p.ws.Deployer.LinkedTo(ctx, "w"); file != want || err != nil {
						rt.Fatalf("for %s it follows %q, %v, want %q", who, file, err, want)
					}
				}
			},
		})
	})
}

// A value that is set while another machine starts is kept, and of concurrent sets none is lost.
func TestTeamSetDuringStart(t *testing.T) {
	ctx := t.Context()
	ann, bob := pairOfTeam(t)
	for round := range 10 {
		a := fmt.Sprint("edited ", round)
		ann.write("a.txt", a)
		ann.write("b.txt", a)
		if _, err := bob.process(nil).ws.Datasets.Unset(ctx, "w", "b"); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a": a, "b": fmt.Sprint("b ", round), "n": fmt.Sprint("n ", round)}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := ann.process(nil).start(ctx); err != nil {
				t.Error(err)
			}
		})
		for c, name := range map[*colleague]string{ann: "n", bob: "b"} {
			wg.Go(func() {
				if err := c.process(nil).set(ctx, name, want[name]); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, c := range []*colleague{bob, ann} {
			if _, err := c.process(nil).start(ctx); err != nil {
				t.Fatal(err)
			}
			p := c.process(nil)
			got, err := p.inputs(ctx)
			marked, markedErr := p.marked(ctx)
			if !maps.Equal(got, want) || !slices.Equal(marked, []string{"b", "n"}) || err != nil || markedErr != nil {
				t.Fatalf("round %d: after a start on %s inputs are %v, of which %v are set, want %v; %v, %v", round, c.name, got, marked, want, err, markedErr)
			}
		}
	}
}
