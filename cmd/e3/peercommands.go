package main

// peerVerbs are words of other tools for subcommands, with ours. They only serve as hints, as peerCommands do.
var peerVerbs = map[string]string{
	"rm": "remove", "delete": "remove", "del": "remove", "ls": "list", "show": "status", "new": "create", "add": "create", "make": "create", "init": "create", "up": "deploy", "apply": "deploy", "save": "export", "load": "import",
}

// peerCommands are commands of other tools, with ours. They only serve as hints for unknown commands.
var peerCommands = map[string]string{
	"ws": "e3 workspace", "task": "e3 status, e3 logs for one", "tasks": "e3 status, e3 logs for one", "job": "e3 queue", "restart": "e3 start", "pipeline": "e3 list", "unpin": "e3 pin remove", "ignore": "except: of an input",
	"repro": "e3 start", "exec": "e3 start", "execute": "e3 start", "make": "e3 start", "up": "e3 start", "go": "e3 start", "submit": "e3 start", "resume": "e3 start", "retry": "e3 start, which repeats what failed",
	"build": "e3 start, or e3 package build to keep a package", "apply": "e3 start", "watch": "e3 start --watch",
	"rerun": "e3 start --force", "cache": "e3 plan says what is cached, e3 prune removes old results", "docker": "image: in the package file, and e3 image", "container": "image: in the package file, and e3 image",
	"s3": "e3 init --help", "dynamodb": "e3 init --help", "slurm": "e3 start --executor slurm", "json": "--json, which every command has",
	"yaml": "e3 help package-file", "schema": "e3 help package-file", "exit": "e3 help exit-codes", "exit-code": "e3 help exit-codes", "tutorial": "e3 new, then e3 start -f e3.yaml", "quickstart": "e3 new, then e3 start -f e3.yaml",
	"dry-run": "e3 plan", "dryrun": "e3 plan", "check": "e3 plan, or e3 verify for the repository", "validate": "e3 plan, which reports all mistakes of the package file",
	"ls": "e3 list", "ps": "e3 status", "jobs": "e3 queue", "top": "e3 status", "info": "e3 status",
	"log": "e3 logs for what a task printed, e3 history for runs", "show": "e3 get for a dataset, e3 run for a run", "cat": "e3 get", "dag": "e3 graph", "tree": "e3 graph", "report": "e3 run --report run.html", "metrics": "e3 diff for changes, e3 compare for a table", "params": "e3 list for values, e3 diff for changes", "plots": "e3 run --report run.html, e3 compare --plots plots.html", "exp": "e3 start --as exp1 --set name=value for a variant, e3 compare for a table of them",
	"clean": "e3 gc removes what nothing refers to, e3 prune old results", "rm": "e3 workspace remove", "remove": "e3 workspace remove", "delete": "e3 workspace remove", "stop": "e3 cancel", "kill": "e3 cancel", "unlock": "e3 start: no lock outlives its process",
	"add": "inputs of the package file name files; nothing is added", "commit": "e3 start keeps all results by itself", "checkout": "e3 get -o", "pull": "e3 start takes what colleagues have from a shared repository (e3 init --help)", "push": "e3 start shares what it makes in a shared repository (e3 init --help)", "fetch": "e3 get", "remote": "e3 init --help says how a repository is shared", "config": "e3 settings", "create": "e3 new", "explain": "e3 why", "reason": "e3 why", "tag": "e3 pin", "undo": "e3 unset, or e3 reject for a result",
}
