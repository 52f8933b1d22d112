package newfile

import (
	"path"
	"strings"
)

// peerOf returns the program whose pipeline a file is, by its name; "" for DVC and all else. Such a pipeline is not
// translated: to read it is to run it.
func peerOf(file string) string {
	name := strings.ToLower(path.Base(file))
	stem, _, _ := strings.Cut(name, ".")
	switch ext := path.Ext(name); {
	case stem == "snakefile" || ext == ".smk":
		return "Snakemake"
	case stem == "makefile" || stem == "gnumakefile" || ext == ".mk":
		return "make"
	case ext == ".nf" || name == "nextflow.config":
		return "Nextflow"
	case name == "dodo.py":
		return "doit"
	case name == "_targets.r":
		return "targets"
	case ext == ".cwl":
		return "CWL"
	case stem == "taskfile":
		return "Task"
	case stem == "justfile":
		return "just"
	}
	return ""
}

// special reports whether a path of the project is that of a pipeline of another program, which a draft names.
func special(p string) bool {
	switch dir := path.Dir(p); {
	case dir == "workflow":
		return strings.EqualFold(path.Base(p), "snakefile")
	case dir != ".":
		return false
	case p == "dvc.yaml":
		return true
	}
	return peerOf(p) != "" && p != "nextflow.config"
}
