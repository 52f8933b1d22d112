package main

import "strings"

// packageFileHelp is the page of help about the package file: an example, then each key with a line.
const packageFileHelp = `The package file, e3.yaml, names inputs and tasks, and wires tasks by these names. "e3 new" writes a first one;
"e3 lint" and "e3 plan" report its mistakes. doc/package-file.md of the source code has each key in full, with examples.

  e3: 1
  name: shop
  inputs:
    orders: {file: orders.csv}
    tax:    {value: 0.2}
  tasks:
    total:
      in:  [orders, tax]
      out: total.txt
      run: sum.py "$orders" "$tax" > "$out"
    report:
      in:  [total]
      out: report.md
      run: [render, "{total}", "{out}"]

Keys of the package:

  e3             1, the number of the format
  name           of the package; the workspace of "start -f" has the same
  version        of the package
  description    for people, here as in inputs and tasks
  inputs, tasks  by name
  results        a folder that each start fills with outputs: {dir: results/, of: [report]};
                 . leaves each at the path that its task writes, {dir: ., gitignore: true} also tells git
  room, image, limits   for all tasks that do not say
  environments   programs that each machine makes from files of the project, by name:
                 {py: {from: [pyproject.toml, uv.lock], run: uv sync --frozen, path: .venv/bin}}; also env and tools

An input is one of

  file, dir      a path, relative to the package file
  glob           the files of a pattern: "raw/**/*.csv"
  paths          of a file with a list: the columns that hold paths, as in: sheet[sample].fq1
  except         of dir, glob and files: patterns to leave out, as in .gitignore
  files          the same with names: "raw/{sample}_{lane}.fq"; a matrix makes a task for each
  url            a file of a server: https://host/x.csv or s3://bucket/key
  value          anything that e3 set can change
  params         a YAML or JSON file; a task depends on the values that it names, as params.train.rate

and may have

  sha256, at     of a url: the only content that is used, and where commands find it
  executable     whether a file is executable
  export         false: exports with --no-data leave its content out

A task has

  in             what it reads: [orders, clean.table] or {name: source}; "fit[*]" are all items of a matrix
  out            what it writes: a path (dir/ is a folder), or {model: m.pkl, log: log/}. The long form has file or dir,
                 kind (metrics, plot, report) and executable; metrics, plots and reports name files of a dir

  metrics, plots, reports   of a dir: the files in it that people look at
  x, y, title, x_label, y_label, template   how a plot is drawn

  run            a script for bash, which has each name as a variable; or a list of arguments, with {name}
  matrix         a task for each item: {depth: [4, 8]}, or of an input or output that is a list
  env            variables with their values
  pass_env       variables that are passed on; their values are not in the cache key
  key_env        variables whose values are in the key
  secrets        variables that are passed on, and masked in logs
  tools          programs whose bytes are in the key
  environment    the name of one of the environments of the package
  version        change it to have the task run again
  timeout        30s, 5m, 2h
  retries        {max: 2, backoff: 10s, on: [oom, exit, 75], lost: 3}
  on_oom         {memory: x2, max: 16GiB}: ask for more memory when it ran out
  resources      {cpu: 4, memory: 8GiB}, or names of your own
  limits         true: resources are limits
  priority       greater runs first
  may_fail       true: its failure does not fail the run
  approve        true: a person must approve it first (e3 approve)
  suspend        the exit code by which it asks for approval
  batch          so many items go to one command
  room           closed: the command sees what it declares, and the system's programs
  network, devices   what a closed room has of the machine
  image          the image that the command runs in
  queue, labels  which workers may run it
  on_lost        whether its command goes on when its worker is lost

A source in "in" or "matrix" has in its long form

  from           the input or output
  only, at       the values of a file of parameters that the program reads itself, and where
  need           how many tasks of a fan-in must succeed: 95%, 10, any
  manifest       true: a JSON file of what the fan-in has
  suffix         whether its entries keep the suffix of the output
  by, column, with     which column names an item, groups them or has its file, or becomes a variable
  files          of a folder: a file name with the dimension in braces, {part}.txt
  zip            dimensions side by side, or columns that name a row together
  include, exclude     further items; items that are left out`

// packageKey reports whether a word is a key of the package file.
func packageKey(word string) bool {
	_, keys, _ := strings.Cut(packageFileHelp, "Keys of the package:")
	for line := range strings.Lines(keys) {
		if !strings.HasPrefix(line, "  ") || word == "" {
			continue
		}
		head, _, _ := strings.Cut(strings.TrimPrefix(line, "  "), "  ")
		for key := range strings.SplitSeq(strings.TrimSpace(head), ", ") {
			if key == word {
				return true
			}
		}
	}
	return false
}
