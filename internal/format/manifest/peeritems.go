package manifest

// Words that other tools use for many tasks of one kind, for gathering them, and for results.

const (
	grouped  = "a task for each group: matrix: {sample: raw.sample}, and in: {parts: \"fit[sample, *]\"}"
	counted  = "write matrix: {i: [1, 2, 3]}, or let a task write the list: matrix: {i: numbers}"
	partly   = "write need: 95%, a number like 3, or any"
	suffixed = "entries have the suffix of the output, unless there is suffix: false"
	made     = "any output can be a list of items: matrix: {item: split} where split writes split.txt, .csv or .json"
)

// itemTaskWords are further words at a task, itemWireWords those at a source under in, itemOutputWords at an output.
var (
	itemTaskWords = map[string]string{
		"loop": byMatrix, "loops": byMatrix, "items": byMatrix, "with_items": byMatrix, "map": byMatrix, "scatter": byMatrix, "sweep": byMatrix, "grid": byMatrix,
		"samples": byMatrix, "group_by": grouped, "groupby": grouped, "groupTuple": grouped, "range": counted, "array": counted, "count": counted,
		"checkpoint": made, "dynamic": made, "collect": "write in: {parts: \"fit[*]\"}", "gather": "write in: {parts: \"fit[*]\"}",
		"need": "write it at the source: in: {parts: {from: \"fit[*]\", need: 95%}}", "manifest": "write it at the source: in: {parts: {from: \"fit[*]\", manifest: true}}",
		"zip": "write it under matrix: {zip: {a: [1, 2], b: [x, y]}}", "exclude": "write it under matrix", "include": "write it under matrix",
		"config":  "name the values under in, as params.train.rate, of an input {params: config.yaml}",
		"results": "write results: at the top of the file",
	}
	itemWireWords = map[string]string{
		"min": partly, "minimum": partly, "at_least": partly, "allow_missing": partly, "allow_failed": partly, "optional": partly, "required": partly,
		"ignore_missing": partly, "missing_ok": partly, "list": "write manifest: true", "index": "write manifest: true", "ext": suffixed,
		"extension": suffixed, "items": "write from: \"fit[*]\"", "each": "write from: \"fit[name]\"",
	}
	itemOutputWords = map[string]string{
		"dynamic": made, "checkpoint": made, "optional": "each output must be written: an empty file says that there is nothing", "glob": "write dir: with the folder",
		"publish": "write results: at the top of the file", "report": "write kind: report", "plots": "write kind: plot",
	}
	resultsWords = map[string]string{
		"to": "write dir:", "folder": "write dir:", "path": "write dir:", "outputs": "write of:", "tasks": "write of:", "only": "write of:",
	}
)
