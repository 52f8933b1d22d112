package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// movingWidth is how many files the moved pipeline has: each passes three tasks, and one gathers all.
const movingWidth = 20

// A mover is a program that runs the moved pipeline: the file that describes it, what prepares a folder, and what runs it.
type mover struct {
	name, file string
	write      func(w *bufio.Writer)
	prepare    []string
	argv       []string
}

// movers are e3 and those of its peers that are installed.
func (b *bench) movers() []mover {
	cores := strconv.Itoa(runtime.NumCPU())
	all := []mover{{"e3", "e3.yaml", movingE3, nil, []string{b.e3, "start", "-f", "e3.yaml", "--progress", "none"}}}
	for _, m := range []mover{
		{"dvc", "dvc.yaml", movingDVC, []string{"dvc", "init", "--no-scm", "--quiet"}, []string{"dvc", "repro", "--keep-going"}},
		{"snakemake", "Snakefile", movingSnakemake, nil, []string{"snakemake", "--cores", cores, "--keep-going", "--quiet", "all"}},
		{"make", "Makefile", movingMake, nil, []string{"make", "-s", "-k", "-j", cores}},
	} {
		if have(m.name) {
			all = append(all, m)
		}
	}
	return all
}

// moving measures the processor time of one pipeline in the forms of e3, DVC, Snakemake and make, in the situations of a
// day. Its commands take no time. After each step all programs must have the same result.
func (b *bench) moving() error {
	if !b.wants("moving") {
		return nil
	}
	movers := b.movers()
	steps := []struct {
		name  string
		fails bool
		edit  map[string]string
	}{
		{"cold", false, nil},
		{"unchanged", false, nil},
		{"one file edited", false, map[string]string{"data/03.txt": "edited\n"}},
		{"one value edited", false, map[string]string{"params.yaml": "rate: 0.2\n"}},
		{"back to the old value", false, map[string]string{"params.yaml": "rate: 0.1\n"}},
		{"a failure", true, map[string]string{"data/07.txt": "bad\n"}},
		{"after a failure", false, map[string]string{"data/07.txt": "good\n"}},
	}
	times := map[string][]time.Duration{} // by step and mover
	for r := range b.rounds {
		dirs := map[string]string{}
		for _, m := range movers {
			dirs[m.name] = filepath.Join(b.dir, "moving", fmt.Sprintf("%s-%d", m.name, r))
			if err := m.project(dirs[m.name]); err != nil {
				return err
			}
		}
		for _, step := range steps {
			for _, m := range movers {
				dir := dirs[m.name]
				for name, text := range step.edit {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
						return err
					}
				}
				took, out, err := busy(dir, m.argv...)
				if (err != nil) != step.fails {
					return fmt.Errorf("%s, %s: %v\n%s", m.name, step.name, err, out)
				}
				key := step.name + " " + m.name
				times[key] = append(times[key], took)
				got, err := os.ReadFile(filepath.Join(dir, "all.txt"))
				want, wrong := os.ReadFile(filepath.Join(dirs["e3"], "all.txt"))
				if !step.fails && (err != nil || wrong != nil || string(got) != string(want)) {
					return fmt.Errorf("%s, %s: all.txt is %q, %v; that of e3 %q, %v", m.name, step.name, got, err, want, wrong)
				}
			}
		}
	}
	for _, step := range steps {
		if step.fails {
			continue
		}
		for _, m := range movers[1:] {
			target := 0.2
			if m.name == "make" {
				target = 0 // it keeps no results
			}
			e3, peer := median(times[step.name+" e3"]), median(times[step.name+" "+m.name])
			row("moving, "+step.name, e3, peer, target, "processor time; peer: "+m.name)
		}
	}
	return nil
}

// project makes a folder with the pipeline and its files.
func (m mover) project(dir string) error {
	for _, folder := range []string{"data", "a", "b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o777); err != nil {
			return err
		}
	}
	for i := range movingWidth {
		path := filepath.Join(dir, fmt.Sprintf("data/%02d.txt", i))
		if err := os.WriteFile(path, fmt.Appendf(nil, "file %d\n", i), 0o666); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "params.yaml"), []byte("rate: 0.1\n"), 0o666); err != nil {
		return err
	}
	if err := create(filepath.Join(dir, m.file), m.write); err != nil || m.prepare == nil {
		return err
	}
	_, out, err := busy(dir, m.prepare...)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(m.prepare, " "), err, out)
	}
	return nil
}

// busy runs a command and returns the processor time of it and of all that it started.
func busy(dir string, argv ...string) (time.Duration, []byte, error) {
	before := processorsOfChildren()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DVC_NO_ANALYTICS=1", "E3_REPO=")
	out, err := cmd.CombinedOutput()
	reapOrphans()
	return processorsOfChildren() - before, out, err
}

func movingE3(w *bufio.Writer) {
	fmt.Fprint(w, `e3: 1
name: moving
results: .
inputs:
  params: {params: params.yaml}
  data:   {files: "data/{i}.txt"}
tasks:
  a: {matrix: data, in: {from: "data[i]"}, out: "a/{i}.txt", run: [cp, "{from}", "{out}"]}
  b: {matrix: data, in: {from: "a[i]", rate: params.rate}, out: "b/{i}.txt", run: '(cat "$from"; echo "$rate") > "$out"'}
  c: {matrix: data, in: {from: "b[i]"}, out: "c/{i}.txt", run: '! grep -q bad "$from" && cp "$from" "$out"'}
  all: {in: {c: "c[*]"}, out: all.txt, run: cat "$c"/* > "$out"}
`)
}

func movingDVC(w *bufio.Writer) {
	fmt.Fprint(w, "stages:\n")
	var all []string
	for i := range movingWidth {
		fmt.Fprintf(w, "  a%02d: {cmd: 'cp data/%02[1]d.txt a/%02[1]d.txt', deps: [data/%02[1]d.txt], outs: [a/%02[1]d.txt]}\n", i)
		fmt.Fprintf(w, "  b%02d: {cmd: '(cat a/%02[1]d.txt; echo ${rate}) > b/%02[1]d.txt', deps: [a/%02[1]d.txt], "+
			"params: [rate], outs: [b/%02[1]d.txt]}\n", i)
		fmt.Fprintf(w, "  c%02d: {cmd: '! grep -q bad b/%02[1]d.txt && cp b/%02[1]d.txt c/%02[1]d.txt', deps: [b/%02[1]d.txt], "+
			"outs: [c/%02[1]d.txt]}\n", i)
		all = append(all, fmt.Sprintf("c/%02d.txt", i))
	}
	fmt.Fprintf(w, "  all: {cmd: 'cat c/*.txt > all.txt', deps: [%s], outs: [all.txt]}\n", strings.Join(all, ", "))
}

func movingSnakemake(w *bufio.Writer) {
	fmt.Fprintf(w, `configfile: "params.yaml"
rule all:
    input: expand("c/{i}.txt", i=["%%02d" %% i for i in range(%d)])
    output: "all.txt"
    shell: "cat {input} > {output}"
rule a:
    input: "data/{i}.txt"
    output: "a/{i}.txt"
    shell: "cp {input} {output}"
rule b:
    input: "a/{i}.txt"
    output: "b/{i}.txt"
    params: rate=config["rate"]
    shell: "(cat {input}; echo {params.rate}) > {output}"
rule c:
    input: "b/{i}.txt"
    output: "c/{i}.txt"
    shell: "! grep -q bad {input} && cp {input} {output}"
`, movingWidth)
}

func movingMake(w *bufio.Writer) {
	w.WriteString(`RATE := $(shell sed 's/rate: //' params.yaml)
all.txt: $(patsubst data/%,c/%,$(sort $(wildcard data/*.txt)))
	cat $^ > $@
a/%.txt: data/%.txt
	cp $< $@
b/%.txt: a/%.txt params.yaml
	(cat $<; echo $(RATE)) > $@
c/%.txt: b/%.txt
	! grep -q bad $< && cp $< $@
.SECONDARY:
`)
}
