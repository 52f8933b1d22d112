package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
)

// values is a list of items of one value without a name.
func values(list ...string) *manifest.List {
	l := &manifest.List{Names: 1, Columns: []string{""}}
	for _, v := range list {
		l.Items = append(l.Items, []string{v})
	}
	return l
}

// table is a list of items: a line with columns, in which * follows the names, and one for each item.
func table(lines ...string) *manifest.List {
	l := &manifest.List{}
	for _, c := range strings.Fields(lines[0]) {
		if c == "*" {
			l.Names = len(l.Columns)
			continue
		}
		l.Columns = append(l.Columns, c)
	}
	for _, line := range lines[1:] {
		var item []string
		for _, v := range strings.Fields(line) {
			if file, ok := strings.CutPrefix(v, "@"); ok {
				l.Files = append(l.Files, file)
				continue
			}
			item = append(item, v)
		}
		l.Items = append(l.Items, item)
	}
	return l
}

// tasksOf prints the tasks of a definition: their values and what they read.
func tasksOf(d *manifest.Definition) []string {
	var list []string
	for i := range d.Tasks {
		t := &d.Tasks[i]
		var b strings.Builder
		b.WriteString(t.Name)
		for _, v := range t.Items {
			fmt.Fprintf(&b, " %s=%s", v.Name, v.Value)
		}
		for _, in := range t.Inputs {
			fmt.Fprintf(&b, " %s<-", in.Name)
			switch s := in.Source; s.Kind {
			case manifest.FromInput:
				b.WriteString(below(d.Inputs[s.Index].Name, s.Path))
			case manifest.FromTask:
				b.WriteString(below(dot(d.Tasks[s.Index].Name, d.Entry(s)), s.Path))
			default:
				b.WriteString("(")
				for k, it := range d.FanIns[s.Index] {
					if k > 0 {
						b.WriteString(" ")
					}
					b.WriteString(it.Label + ":")
					if it.Task < 0 {
						b.WriteString(below(d.Inputs[it.Input].Name, it.Path))
					} else {
						b.WriteString(below(dot(d.Tasks[it.Task].Name, d.Entry(s)), it.Path))
					}
				}
				b.WriteString(")")
			}
			if in.Source.Path != "" {
				b.WriteString("@" + in.Path)
			}
		}
		list = append(list, b.String())
	}
	for _, f := range d.Families {
		if f.Pending {
			keys := []string{}
			for _, s := range f.Sources {
				if !s.Known {
					keys = append(keys, s.Key)
				}
			}
			list = append(list, strings.TrimSpace(fmt.Sprintf("pending %s: %s", f.Base, strings.Join(slices.Concat(keys, f.Waits), " "))))
		}
		if f.Fault != nil {
			list = append(list, f.Fault.Error())
		}
	}
	return list
}

func below(name, path string) string {
	if path == "" {
		return name
	}
	return name + "/" + path
}

func dot(name, entry string) string {
	if entry == "" {
		return name
	}
	return name + "." + entry
}

func expand(t *testing.T, text string, lists manifest.Lists) *manifest.Definition {
	t.Helper()
	d, err := manifest.Parse("e3.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	kept, err := manifest.DecodeDefinition(data)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := kept.Encode(); err != nil || string(again) != string(data) {
		t.Fatalf("the definition object is not canonical: %v\n%s\n%s", err, data, again)
	}
	full, err := d.Expand(lists)
	if err != nil {
		t.Fatal(err)
	}
	again, err := kept.Expand(lists)
	if err != nil {
		t.Fatal(err)
	}
	strip := func(d *manifest.Definition) []string {
		list := tasksOf(d)
		for i := range list {
			if rest, ok := strings.CutPrefix(list[i], "e3.yaml:"); ok {
				list[i] = rest[strings.Index(rest, " ")+1:]
			}
		}
		return list
	}
	if diff := cmp.Diff(strip(full), strip(again)); diff != "" {
		t.Fatalf("the definition object makes other tasks (-file +object):\n%s", diff)
	}
	return full
}

const head = "e3: 1\nname: p\n"

func TestItems(t *testing.T) {
	raw := table("sample lane *", "s1 L1 @s1_L1.fq", "s1 L2 @s1_L2.fq", "s2 L1 @s2_L1.fq")
	for _, test := range []struct {
		name, text string
		lists      manifest.Lists
		want       []string
	}{
		{"a list that a task makes", `
tasks:
  split: {out: parts.json, run: x}
  fit: {matrix: {n: {from: split}}, out: fit.txt, run: x}
  all: {in: {fits: "fit[*]"}, out: all.txt, run: x}
`, manifest.Lists{"split": values("a", "b/c", "b%2Fc")},
			[]string{"split", "fit[a] n=a", "fit[b%2Fc] n=b/c", "fit[b%252Fc] n=b%2Fc",
				"all fits<-(a.txt:fit[a] b%2Fc.txt:fit[b%2Fc] b%252Fc.txt:fit[b%252Fc])"}},
		{"not known yet", `
tasks:
  all: {in: {fits: "fit[*]"}, out: all.txt, run: x}
  after: {in: [all], out: after.txt, run: x}
  split: {out: parts.json, run: x}
  fit: {matrix: {n: split}, out: fit.txt, run: x}
  other: {matrix: {n: [1, 2]}, in: [split], out: fit.txt, run: x}
`, nil,
			[]string{"split", "other[1] n=1 split<-split", "other[2] n=2 split<-split",
				"pending all: fit", "pending after: all", "pending fit: split"}},
		{"no items", `
tasks:
  split: {out: parts.json, run: x}
  fit: {matrix: {n: split}, out: fit.txt, run: x}
  all: {in: {fits: "fit[*]"}, out: all.txt, run: x}
`, manifest.Lists{"split": values()}, []string{"split", "all fits<-()"}},
		{"files by names", `
inputs: {raw: {files: "raw/{sample}_{lane}.fq"}}
tasks:
  align: {matrix: raw, in: {reads: "raw[sample,lane]"}, out: a.bam, run: x}
  merge: {matrix: {sample: raw.sample}, in: {lanes: "align[sample, *]"}, out: m.bam, run: x}
  cat: {matrix: {sample: raw.sample}, in: {lanes: "raw[sample,*]"}, out: m.bam, run: x}
`, manifest.Lists{"raw": raw}, []string{
			"align[sample=s1,lane=L1] sample=s1 lane=L1 reads<-raw/s1_L1.fq@raw/s1_L1.fq",
			"align[sample=s1,lane=L2] sample=s1 lane=L2 reads<-raw/s1_L2.fq@raw/s1_L2.fq",
			"align[sample=s2,lane=L1] sample=s2 lane=L1 reads<-raw/s2_L1.fq@raw/s2_L1.fq",
			"merge[s1] sample=s1 lanes<-(sample=s1,lane=L1.bam:align[sample=s1,lane=L1] sample=s1,lane=L2.bam:align[sample=s1,lane=L2])",
			"merge[s2] sample=s2 lanes<-(sample=s2,lane=L1.bam:align[sample=s2,lane=L1])",
			"cat[s1] sample=s1 lanes<-(s1_L1.fq:raw/s1_L1.fq s1_L2.fq:raw/s1_L2.fq)",
			"cat[s2] sample=s2 lanes<-(s2_L1.fq:raw/s2_L1.fq)",
		}},
		{"rows of a table", `
inputs: {sheet: {file: sheet.csv}}
tasks:
  fit: {matrix: [{id: {from: sheet, with: [depth]}}, {rate: [1, 2]}], out: o.txt, run: x}
  group: {matrix: {group: sheet.group}, in: {own: "fit[rate=1, *]"}, out: o, run: x}
`, manifest.Lists{"sheet": table("id group depth", "a g1 3", "b g2 4")}, []string{
			"fit[id=a,rate=1] id=a rate=1 depth=3", "fit[id=a,rate=2] id=a rate=2 depth=3",
			"fit[id=b,rate=1] id=b rate=1 depth=4", "fit[id=b,rate=2] id=b rate=2 depth=4",
			"group[g1] group=g1 own<-(id=a,rate=1.txt:fit[id=a,rate=1] id=b,rate=1.txt:fit[id=b,rate=1])",
			"group[g2] group=g2 own<-(id=a,rate=1.txt:fit[id=a,rate=1] id=b,rate=1.txt:fit[id=b,rate=1])",
		}},
		{"a constant of the reader", `
inputs: {sheet: {file: sheet.csv}}
tasks:
  norm: {matrix: {group: sheet.group}, out: o, run: x}
  fit: {matrix: {id: sheet}, in: {norm: "norm[group]"}, out: f, run: x}
  of: {matrix: {group: sheet.group}, in: {fits: "fit[group=group, *]"}, out: o, run: x}
`, manifest.Lists{"sheet": table("id group", "a g1", "b g2", "c g1")}, []string{
			"norm[g1] group=g1", "norm[g2] group=g2",
			"fit[a] id=a group=g1 norm<-norm[g1]", "fit[b] id=b group=g2 norm<-norm[g2]", "fit[c] id=c group=g1 norm<-norm[g1]",
			"of[g1] group=g1 fits<-(a:fit[a] c:fit[c])", "of[g2] group=g2 fits<-(b:fit[b])",
		}},
		{"counts that differ", `
inputs: {raw: {glob: "raw/*.fq"}}
tasks:
  split: {matrix: {sample: raw}, in: {reads: "raw[sample]"}, out: {parts: parts/, log: log.txt}, run: x}
  fit: {matrix: {sample: raw, chunk: {from: "split[sample].parts"}}, in: {part: "split[sample].parts[chunk]"}, out: o.txt, run: x}
  merge: {matrix: {sample: raw}, in: {fits: "fit[sample,*]"}, out: o, run: x}
`, manifest.Lists{"raw": table("* ", ""), "split[s1].parts": nil}, nil},
		{"zip, include, exclude", `
tasks:
  fit: {matrix: {zip: {a: [1, 2], b: [x, y]}, c: [5, 6], exclude: [{a: 2, c: 6}], include: [{a: 3, b: z, c: 7}]}, out: o, run: x}
  next: {matrix: {a: [1, 2]}, in: {f: "fit[a, b=x, c=5]"}, out: n, run: x}
`, nil, nil},
		{"names differ", `
inputs: {sheet: {file: sheet.csv}}
tasks:
  fit: {matrix: {id: {from: sheet, by: Name, with: {weight: "Weight (kg)"}}}, out: o, run: x}
`, manifest.Lists{"sheet": {Columns: []string{"Name", "Weight (kg)"}, Items: [][]string{{"a", "7"}}}},
			[]string{"fit[a] id=a weight=7"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			switch test.name {
			case "counts that differ":
				test.lists = manifest.Lists{"raw": {Names: 1, Columns: []string{""}, Items: [][]string{{"s1"}, {"s2"}}, Files: []string{"s1.fq", "s2.fq"}}}
				want := []string{
					"split[s1] sample=s1 reads<-raw/s1.fq@raw/s1.fq", "split[s2] sample=s2 reads<-raw/s2.fq@raw/s2.fq",
					"pending fit: split[s1].parts split[s2].parts", "pending merge: fit",
				}
				if diff := cmp.Diff(want, tasksOf(expand(t, head+test.text, test.lists))); diff != "" {
					t.Errorf("before the parts are known (-want +got):\n%s", diff)
				}
				test.lists["split[s1].parts"] = &manifest.List{Names: 1, Columns: []string{""}, Items: [][]string{{"p1"}, {"p2"}}, Files: []string{"p1", "p2/"}}
				test.lists["split[s2].parts"] = &manifest.List{Names: 1, Columns: []string{""}}
				test.want = []string{want[0], want[1],
					"fit[sample=s1,chunk=p1] sample=s1 chunk=p1 part<-split[s1].parts/p1@parts/p1",
					"fit[sample=s1,chunk=p2] sample=s1 chunk=p2 part<-split[s1].parts/p2@parts/p2",
					"merge[s1] sample=s1 fits<-(sample=s1,chunk=p1.txt:fit[sample=s1,chunk=p1] sample=s1,chunk=p2.txt:fit[sample=s1,chunk=p2])",
					"merge[s2] sample=s2 fits<-()",
				}
			case "zip, include, exclude":
				test.want = []string{
					"fit[a=1,b=x,c=5] a=1 b=x c=5", "fit[a=1,b=x,c=6] a=1 b=x c=6", "fit[a=2,b=y,c=5] a=2 b=y c=5", "fit[a=3,b=z,c=7] a=3 b=z c=7",
					"pending next:", "e3.yaml:6:39: task next: fit[a, b=x, c=5]: fit has no item for next[2]",
				}
			}
			if diff := cmp.Diff(test.want, tasksOf(expand(t, head+test.text, test.lists))); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

// A matrix of 20,000 lines, and families on it.
func TestManyLines(t *testing.T) {
	const lines = 20_000
	var b strings.Builder
	b.WriteString(head + "tasks:\n  list: {out: l.txt, run: x}\n  lines:\n    out: o\n    run: x\n    matrix:\n      n:\n")
	items := make([]string, lines)
	for i := range items {
		items[i] = fmt.Sprint("item", i)
		b.WriteString("        - " + items[i] + "\n")
	}
	b.WriteString("  own: {matrix: {n: list}, in: {line: 'lines[n]'}, out: p, run: x}\n")
	b.WriteString("  again: {matrix: {n: list}, in: {own: 'own[n]', of: 'own[n=n, *]'}, out: q, run: x}\n")
	b.WriteString("  all: {in: {all: 'again[*]'}, out: r, run: x}\n")
	d, err := manifest.Parse("e3.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if d, err = d.Expand(manifest.Lists{"list": values(items...)}); err != nil || d.Faults() != nil {
		t.Fatal(err, d.Faults())
	}
	if len(d.Tasks) != 3*lines+2 {
		t.Fatalf("%d tasks, want %d", len(d.Tasks), 3*lines+2)
	}
}

// TestRoomOfGrown: a definition that was given a room keeps it through its object and its expansion.
func TestRoomOfGrown(t *testing.T) {
	for _, said := range []string{"", "room: open\n"} {
		text := "e3: 1\nname: p\n" + said + "inputs: {raw: {dir: raw}}\ntasks:\n  t: {matrix: {items: raw}, out: o, run: [touch, o]}\n"
		def, err := manifest.Parse("e3.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		same, err := def.Encode()
		if err != nil || strings.Contains(string(same), "closed") || said == "" && strings.Contains(string(same), "room") {
			t.Errorf("unchanged: %s, %v", same, err)
		}
		def.Room = manifest.ClosedRoom
		data, err := def.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := manifest.DecodeDefinition(data)
		if err != nil || back.Room != manifest.ClosedRoom {
			t.Fatalf("read again: %v, %v", back, err)
		}
		grown, err := def.Expand(nil)
		if err != nil || grown.Room != manifest.ClosedRoom {
			t.Errorf("expanded: %v, %v", grown, err)
		}
	}
}

// A pattern says which files of a folder are items, and what of their names names them.
func TestFilesOfFolder(t *testing.T) {
	file := `e3: 1
name: p
tasks:
  split: {out: parts/, run: x}
  t: {matrix: {id: {from: split, files: "{id}.fa"}}, in: {part: "split[id]"}, out: "o/{id}.txt", run: x}
  u: {in: ["t[*]"], out: u, run: x}
`
	list := &manifest.List{Names: 1, Columns: []string{""}, Items: [][]string{{"a.fa"}, {"a.fai"}, {"b.fa"}, {".fa"}}, Files: []string{"a.fa", "a.fai", "b.fa", ".fa"}}
	d := expand(t, file, manifest.Lists{"split": list})
	var got []string
	for i := range d.Tasks {
		s := d.Tasks[i].Name
		for _, in := range d.Tasks[i].Inputs {
			s += " " + in.Path
		}
		got = append(got, s)
	}
	if diff := cmp.Diff([]string{"split", "t[a] parts/a.fa", "t[b] parts/b.fa", "u t"}, got); diff != "" {
		t.Errorf("tasks differ (-want +got):\n%s", diff)
	}
	for pattern, want := range map[string]string{
		`"{x}.fa"`: `"{x}.fa" is not the name of a file with {id}`, `"a/{id}"`: "is not the name of a file with {id}", `id.fa`: "has no {name}",
		`"{id}.fa", by: k`: "files are of a folder, by, column and with of a table",
	} {
		_, err := manifest.Parse("f", []byte(strings.Replace(file, `"{id}.fa"`, pattern, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("files: %s: %v, want %q", pattern, err, want)
		}
	}
}
