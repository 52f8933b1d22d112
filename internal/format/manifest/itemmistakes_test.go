package manifest_test

import (
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// Each mistake is told with its place, what is wrong, and what to write instead.
func TestItemMistakes(t *testing.T) {
	raw := table("sample lane *", "s1 L1 @s1_L1.fq", "s1 L2 @s1_L2.fq")
	sheet := table("id Group depth", "a g1 3", "b g2 4")
	const rawInput = "inputs: {raw: {files: 'raw/{sample}_{lane}.fq'}, sheet: {file: sheet.csv}, n: {value: 3}, bin: {file: a.bin}, two: {glob: 'raw/*_*.fq'}}\n"
	for _, test := range []struct {
		name, tasks string
		want        []string // texts of the message
	}{
		// of the file
		{"unknown source", "t: {matrix: {s: rwa}, out: o, run: x}", []string{"e3.yaml:5:19", `no input or task "rwa"`, `did you mean "raw"?`}},
		{"unknown key", "t: {matrix: {s: {form: raw}}, out: o, run: x}", []string{`unknown key "form"`, `did you mean "from"?`}},
		{"no source", "t: {matrix: {s: {by: a}}, out: o, run: x}", []string{"the source of the items is missing", "write {from: source}"}},
		{"by and column", "t: {matrix: {s: {from: sheet, by: id, column: id}}, out: o, run: x}", []string{"both by and column"}},
		{"a single value", "t: {matrix: {s: n}, out: o, run: x}", []string{"the value n is not a list"}},
		{"no format", "t: {matrix: {s: bin}, out: o, run: x}", []string{"a.bin", "ends in .json"}},
		{"a glob with several wildcards", "t: {matrix: {s: two}, out: o, run: x}", []string{"several wildcards", "files: raw/{a}_{b}.fq"}},
		{"several outputs", "m: {out: {a: a.json, b: b.json}, run: x}\n  t: {matrix: {s: m}, out: o, run: x}", []string{"has several outputs", "write m.a"}},
		{"no such output", "m: {out: {a: a.json, b: b.json}, run: x}\n  t: {matrix: {s: {from: m.c}}, out: o, run: x}", []string{`no output "c"`, "the outputs are a, b"}},
		{"a list without an ending", "m: {out: list, run: x}\n  t: {matrix: {s: m}, out: o, run: x}", []string{"m is the file list", "ends in .json"}},
		{"a family as a source", "m: {matrix: {a: [1, 2]}, out: l.json, run: x}\n  t: {matrix: {s: m}, out: o, run: x}", []string{"m is a matrix", "m[name]"}},
		{"a selection without a matrix", "m: {out: l.json, run: x}\n  t: {matrix: {s: 'm[1]'}, out: o, run: x}", []string{"the task m has no matrix", "write m)"}},
		{"without brackets", "t: {matrix: raw, out: o, run: x}\n  u: {in: [t], out: p, run: x}", []string{"t is a matrix", "write t[*] for all items"}},
		{"without brackets, same dimensions", "t: {matrix: {a: [1, 2]}, out: o, run: x}\n  u: {matrix: {a: [1, 2]}, in: [t], out: p, run: x}", []string{"t is a matrix of 2 items", "write t[a] for the same item, or t[*]"}},
		{"without brackets, a shared dimension", "t: {matrix: {a: [1, 2], b: [3]}, out: o, run: x}\n  u: {matrix: {a: [1, 2]}, in: [t], out: p, run: x}", []string{"write t[a,*] for all of the same a"}},
		{"all files", "t: {in: {r: 'raw[*]'}, out: o, run: x}", []string{"all files together are the directory itself", "write raw"}},
		{"files of a file", "t: {in: {r: 'sheet[a]'}, out: o, run: x}", []string{"only a folder, a glob or files have items", "write sheet"}},
		{"zip of lengths", "t: {matrix: {zip: {a: [1, 2], b: [1]}}, out: o, run: x}", []string{"b has 1 items, and a has 2"}},
		{"a matrix of nothing", "t: {matrix: [], out: o, run: x}", []string{"there is no dimension"}},
		{"a number as a matrix", "t: {matrix: 4, out: o, run: x}", []string{"want a mapping"}},
		{"a dimension as a variable twice", "t: {matrix: {reads: raw}, in: {reads: sheet}, out: o, run: x}", []string{`"reads" names both an input and a dimension`}},
		{"bash sets it", "t: {matrix: {_: raw}, out: o, run: x}", []string{"bash sets"}},
		{"a circle", "t: {matrix: {s: u}, out: l.json, run: x}\n  u: {in: {a: 't[*]'}, out: l2.json, run: x}", []string{"wait for each other"}},
		{"itself", "t: {matrix: {s: 't[s]'}, out: l.json, run: x}", []string{"wait for each other: t → t"}},
		{"with a capital", "t: {matrix: {s: {from: sheet, with: [Group]}}, out: o, run: x}", []string{`"Group" cannot be the name of a variable`, "with: {group: Group}"}},
		{"a source with files", "t: {matrix: {s: 'raw.x[a]'}, out: o, run: x}", []string{"a source of items gives all of them"}},
		// of the lists
		{"no name", "t: {matrix: sheet, out: o, run: x}", []string{"e3.yaml:5:15", "the items of sheet have no name", "matrix: {name: sheet}", "its columns are id, Group, depth"}},
		{"no name at all", "t: {matrix: long, out: o, run: x}\n  long: {out: long.txt, run: x}", []string{"the items of long have no name", "matrix: {item: long}"}},
		{"no such column", "t: {matrix: {x: sheet}, out: o, run: x}", []string{`sheet has no column "x"`, "add by:", "id, Group, depth"}},
		{"by another column", "t: {matrix: {x: {from: sheet, by: ID}}, out: o, run: x}", []string{`no column "ID"`, "id, Group, depth"}},
		{"a column that is no variable", "t: {matrix: {id: sheet}, out: o, run: x}", []string{`the column "Group" of sheet cannot be the name of a variable`, `with: {group: "Group"}`}},
		{"two of one name", "t: {matrix: {sample: raw}, out: o, run: x}", []string{"s1_L1.fq and s1_L2.fq of raw are both named s1", "{sample: raw.sample}"}},
		{"no group", "t: {matrix: {g: sheet.group}, out: o, run: x}", []string{`no column "group"`}},
		{"no such item", "t: {matrix: raw, out: o, run: x}\n  u: {in: {a: 't[sample=s9,lane=L1]'}, out: p, run: x}", []string{"e3.yaml:6:15", "t has no item for u", "its sample is one of s1"}},
		{"a lone name", "t: {matrix: raw, out: o, run: x}\n  u: {in: {a: 't[s1]'}, out: p, run: x}", []string{`unclear to which dimension of t "s1" belongs`, "sample, lane"}},
		{"half a selection", "t: {matrix: raw, out: o, run: x}\n  u: {in: {a: 't[sample=s1]'}, out: p, run: x}", []string{"it does not say which lane of t", "add *"}},
		{"an unknown dimension", "t: {matrix: raw, out: o, run: x}\n  u: {in: {a: 't[smaple=s1,*]'}, out: p, run: x}", []string{`t has no dimension "smaple"`, "sample, lane"}},
		{"no such file", "t: {in: {a: 'raw[sample=s9,lane=L1]'}, out: o, run: x}", []string{"raw has no file for t"}},
		{"include without a dimension", "t: {matrix: [raw, {include: [{sample: s3}], b: [1]}], out: o, run: x}", []string{"an item under include has no lane"}},
		{"exclude of something else", "t: {matrix: [raw, {exclude: [{smple: s3}], b: [1]}], out: o, run: x}", []string{`"smple" is no dimension`, "sample, lane, b"}},
		{"a name twice", "t: {matrix: [raw, {sample: [1]}], out: o, run: x}", []string{`"sample" names two values`}},
		{"a variable twice", "t: {matrix: raw, in: {lane: sheet}, out: o, run: x}", []string{`"lane" names both an input and an item of the matrix; give the input another name`}},
		{"a column as a variable twice", "t: {matrix: {id: {from: sheet, with: [depth]}}, in: {depth: n}, out: o, run: x}", []string{`"depth" names both an input and a value of the matrix`, "with: {other: depth}"}},
		{"a file of a lone output", "s: {out: o/, run: x}\n  t: {matrix: raw, in: {f: 's.part[sample]'}, out: o, run: x}", []string{`s has a single output and no entry "part"`, "(write s.out[sample])"}},
		{"too long", "t: {matrix: {s: long}, out: o, run: x}\n  long: {out: long.txt, run: x}", []string{"would be 150 bytes long, and 128 is the most"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := manifest.Parse("e3.yaml", []byte(head+rawInput+"tasks:\n  "+test.tasks+"\n"))
			if err == nil {
				if d, err = d.Expand(manifest.Lists{"raw": raw, "sheet": sheet, "long": values(strings.Repeat("x", 150))}); err == nil {
					err = d.Faults()
				}
			}
			if err == nil {
				t.Fatalf("taken: %s", tasksOf(d))
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message is\n%v\nwant %q in it", err, want)
				}
			}
		})
	}
}
