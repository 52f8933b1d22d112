package manifest

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Words that other tools use, with the words to write here. A word only leads to a hint, at an unknown key: it never
// has a meaning itself.

const (
	byWiring   = "what a task reads decides what runs before it: name the other task under in"
	underIn    = "declare files under inputs, as {file: data.csv}, and name them here under in"
	underOut   = "write out:"
	underRun   = "write run: with the command"
	noFolder   = "a command begins in an empty folder with copies of its inputs at their paths; to work elsewhere: cd in the command"
	noImage    = "write image: with the name of an image, oci:PATH or oci-archive:PATH"
	noConda    = "write environment: with the name of an entry of environments:, which says how to make it; or image:"
	noPorts    = "a command in an image has no ports; network: true gives it this machine's network"
	noInclude  = "a package is one file; what generates YAML or JSON can write it"
	noTemplate = "there are no templates: use a matrix, or an input with value: which the command finds as \"$name\""
	byMatrix   = "write matrix: {name: [items]}; the item is \"$name\" in the command"
	kindOf     = "write it under out, as {file: scores.json, kind: %s}"
	demand     = "write resources: {%s}"
	always     = "a task runs when its inputs or its command change; to run it anyway: e3 start --force --filter NAME"
	cleans     = "nothing is left from an earlier command: each begins in an empty folder"
)

var topWords = map[string]string{
	"stages": "write tasks:, or let e3 translate the file: e3 new --from dvc.yaml", "jobs": "write tasks:", "rules": "write tasks:", "rule": "write tasks:", "task": "write tasks:",
	"steps": "write tasks:", "targets": "write tasks:", "services": "write tasks:; services that go on running are not supported", "workflow": "write tasks:", "pipeline": "write tasks:", "nodes": "write tasks:", "process": "write tasks:",
	"input": "write inputs:", "data": "write inputs:, as {file: data.csv}", "deps": "write inputs:, and in: at the task that reads them", "sources": "write inputs:",
	"output": "write out: at the task that makes it", "outputs": "write out: at the task that makes it", "outs": "write out: at the task that makes it",
	"vars": noTemplate, "variables": noTemplate, "param": "write an input: inputs: {params: {params: params.yaml}}", "params": "write an input: inputs: {params: {params: params.yaml}}",
	"parameters": "write an input: inputs: {params: {params: params.yaml}}", "config": "write an input: inputs: {params: {params: config.yaml}}", "configfile": "write an input: inputs: {params: {params: config.yaml}}",
	"metrics": "mark the output at its task: " + fmt.Sprintf(kindOf, "metrics"), "plots": "mark the output at its task: " + fmt.Sprintf(kindOf, "plot"), "artifacts": "outputs are declared at their tasks, under out",
	"include": noInclude, "includes": noInclude, "import": noInclude, "extends": noInclude, "env": "write env: at each task that needs it", "environment": "write env: at each task that needs it", "dotenv": "write env: at each task that needs it, or pass_env",
	"defaults": "write the keys at each task; a YAML anchor (&name, *name) saves repeating them", "shell": "scripts run with bash -euo pipefail; for another, write run: as a list: [zsh, -c, …]", "container": noImage,
	"on": "nothing starts by itself: type e3 start", "schedule": "nothing starts by itself: call e3 start from cron", "matrix": "write matrix: at the task", "all": "all tasks run; e3 start --filter 'name*' runs some",
}

var taskWords = map[string]string{
	"deps": underIn, "dependencies": underIn, "depends_on": byWiring, "depends": byWiring, "needs": byWiring, "requires": byWiring, "after": byWiring, "dependsOn": byWiring, "prerequisites": underIn, "sources": underIn, "src": underIn,
	"input": underIn, "inputs": underIn, "reads": underIn, "srcs": underIn,
	"outs": underOut, "output": underOut, "outputs": underOut, "generates": underOut, "produces": underOut, "writes": underOut, "targets": underOut, "target": underOut, "publishDir": "write results: at the top of the file", "artifacts": underOut,
	"cmd": underRun, "cmds": underRun + "; several lines follow run: |", "command": underRun, "commands": underRun + "; several lines follow run: |", "script": underRun, "exec": underRun, "recipe": underRun, "entrypoint": underRun, "args": "write run: as a list: [program, argument]", "steps": "each step is a task of its own, or a line of run: |", "uses": underRun + "; actions of others are not supported",
	"shell": "scripts run with bash -euo pipefail; for another, write run: as a list: [zsh, -c, …]", "interpreter": "write it in run, as: python3 \"$program\"",
	"params": "name the values under in, as params.train.rate, of an input {params: params.yaml}", "vars": noTemplate, "with": noTemplate, "arguments": noTemplate,
	"metrics": fmt.Sprintf(kindOf, "metrics"), "plots": fmt.Sprintf(kindOf, "plot"), "report": fmt.Sprintf(kindOf, "report"),
	"container": noImage, "docker": noImage, "conda": noConda, "singularity": noImage, "apptainer": noImage, "services": "services that go on running are not supported", "volumes": "declare files under inputs, and name them under in", "ports": noPorts,
	"env_file": "write env: with the variables, or pass_env: with their names", "dotenv": "write env: with the variables, or pass_env: with their names", "environment": "write env:", "envs": "write env:", "env_vars": "write env:", "envvars": "write env:",
	"wdir": noFolder, "dir": noFolder, "cwd": noFolder, "workdir": noFolder, "working_dir": noFolder, "working-directory": noFolder, "chdir": noFolder,
	"threads": fmt.Sprintf(demand, "cpu: 4"), "cpus": fmt.Sprintf(demand, "cpu: 4"), "cpu": fmt.Sprintf(demand, "cpu: 4"), "cores": fmt.Sprintf(demand, "cpu: 4"), "mem": fmt.Sprintf(demand, "memory: 8GiB"), "memory": fmt.Sprintf(demand, "memory: 8GiB"), "mem_mb": fmt.Sprintf(demand, "memory: 8GiB"), "gpu": fmt.Sprintf(demand, "gpu: 1"), "gpus": fmt.Sprintf(demand, "gpu: 1"),
	"retry": "write retries: 2", "tries": "write retries: 2", "max_retries": "write retries: 2", "attempts": "write retries: 2", "time": "write timeout: 2h", "walltime": "write timeout: 2h", "timeout-minutes": "write timeout: 30m", "runtime": "write timeout: 2h",
	"foreach": byMatrix, "for_each": byMatrix, "for": byMatrix, "each": byMatrix, "expand": byMatrix, "strategy": byMatrix, "wildcards": byMatrix, "do": byMatrix,
	"frozen": "leave the task out, and declare its files under inputs", "always_changed": always, "always": always, "cache": always, "status": always, "method": always, "if": "a task has no condition: the command decides, and e3 start --filter chooses", "when": "a task has no condition: the command decides, and e3 start --filter chooses",
	"persist": cleans, "temp": cleans, "clean": cleans, "shadow": cleans,
	"continue-on-error": "write may_fail: true", "allow_failure": "write may_fail: true", "ignore_error": "write may_fail: true", "errorStrategy": "write may_fail: true or retries: 2",
	"runs-on": "write labels: [name] for workers that have it", "runner": "write labels: [name] for workers that have it", "tags": "write labels: [name] for workers that have it", "partition": "write queue: or labels:; see doc/executors.md", "label": "write labels: [name] for workers that have it", "executor": "type e3 start --executor, or e3 settings . executor",
	"desc": "write description:", "doc": "write description:", "summary": "write description:", "comment": "write a YAML comment: # …", "name": "the key of the task is its name; a text for people is description:", "log": "what a task prints is kept: e3 logs", "logs": "what a task prints is kept: e3 logs", "benchmark": "time and memory are kept: e3 history", "message": "write description:",
}

var inputWords = map[string]string{
	"path": "write file: or dir:", "files": "write glob: \"data/*.csv\"", "filename": "write file:", "data": "write file:", "directory": "write dir:", "folder": "write dir:", "pattern": "write glob:", "url": "let a task fetch it", "uri": "let a task fetch it", "type": "the kind is that of the value: {value: 0.1} is a number",
	"default": "write value:", "text": "write value:", "string": "write value:", "number": "write value:", "md5": "content is hashed at each start", "desc": "write description:", "exec": "write executable: true", "mode": "write executable: true",
}

var outputWords = map[string]string{
	"path": "write file: or dir:", "type": "write kind: metrics, plot or report", "plot": "write kind: plot, with x, y and title beside it", "report": "write kind: report, or reports: of a directory", "metric": "write kind: metrics, or metrics: of a directory", "columns": "write y: [loss, accuracy]", "xlabel": "write x_label:", "ylabel": "write y_label:", "cache": cleans, "persist": cleans, "temp": cleans, "desc": "outputs have no description; write one at the task", "description": "outputs have no description; write one at the task",
}

// elsewhere returns what to write in place of another tool's word in a mapping with the known keys; "" for other words.
func elsewhere(word string, known []string) string {
	var words [2]map[string]string
	switch {
	case slices.Contains(known, "tasks"):
		words = [2]map[string]string{topWords}
	case slices.Contains(known, "run"):
		words = [2]map[string]string{taskWords, itemTaskWords}
	case slices.Contains(known, "glob"):
		words = [2]map[string]string{inputWords}
	case slices.Contains(known, "need"):
		words = [2]map[string]string{itemWireWords}
	case slices.Contains(known, "kind"):
		words = [2]map[string]string{outputWords, itemOutputWords}
	case slices.Contains(known, "of"):
		words = [2]map[string]string{resultsWords}
	}
	lower := strings.ToLower(word)
	hint := cmp.Or(words[0][word], words[1][word], words[0][lower], words[1][lower])
	if strings.Contains(hint, "may_fail") && !slices.Contains(known, "may_fail") {
		return ""
	}
	return hint
}

// pathHint is the advice for a source that is the path of a file, "" if it does not look like one.
func pathHint(source string) string {
	ext := path.Ext(source)
	if strings.ContainsAny(source, "[]$") || !strings.Contains(source, "/") && (ext == "" || len(ext) > 6) {
		return ""
	}
	kind := "file"
	switch {
	case strings.ContainsAny(source, "*?"):
		kind = "glob"
	case strings.HasSuffix(source, "/"):
		kind = "dir"
	}
	return fmt.Sprintf("sources are names, not paths: declare it under inputs, as data: {%s: %q}, and write data here; what a task writes is named by the task", kind, truncate(source))
}
