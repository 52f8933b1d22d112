package explain_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"e3/internal/insight/explain"
)

// A reason is the expected explanation for a task whose key has changed.
type reason struct {
	kind          explain.Kind
	subject, path string // path: one of several, with | between them; "": not looked at
	says          string
	more          bool // one change shows as several differences
}

// A change of one thing. It returns the expected reasons of the tasks whose keys it changes, by the index of their
// declarations; false if the project has nothing of the kind that it changes.
type change struct {
	name string
	do   func(d *declaration, r *rand.Rand) (map[int]reason, bool)
}

// ofTask is a change of a random task among those to which the change applies.
func ofTask(name string, do func(t *declaredTask, r *rand.Rand) (reason, bool)) change {
	return change{name, func(d *declaration, r *rand.Rand) (map[int]reason, bool) {
		for _, i := range r.Perm(len(d.tasks)) {
			t := d.clone().tasks[i]
			if why, ok := do(&t, r); ok {
				d.tasks[i] = t
				return map[int]reason{i: why}, true
			}
		}
		return nil, false
	}}
}

// ofOutputs is ofTask for a task whose output nothing reads, because readers depend on the declaration of the output.
func ofOutputs(name string, do func(t *declaredTask) bool) change {
	return change{name, func(d *declaration, r *rand.Rand) (map[int]reason, bool) {
		for _, i := range r.Perm(len(d.tasks)) {
			t := d.clone().tasks[i]
			read := slices.ContainsFunc(d.tasks, func(o declaredTask) bool {
				return slices.ContainsFunc(o.in, func(w declaredWire) bool { return w.source == t.name || strings.HasPrefix(w.source, t.name+".") })
			})
			if !read && do(&t) {
				d.tasks[i] = t
				return map[int]reason{i: {kind: explain.Output, more: true}}, true
			}
		}
		return nil, false
	}}
}

// ofInput is a change of an input, or of the files that it links to. The subject of the reason is the input, or the
// task's name for it.
func ofInput(name, input string, why reason, do func(d *declaration, in *declaredInput)) change {
	return change{name, func(d *declaration, r *rand.Rand) (map[int]reason, bool) {
		whys := map[int]reason{}
		for i := range d.tasks {
			for _, w := range d.tasks[i].in {
				if w.source != input {
					continue
				}
				one := why
				if one.subject = input; why.kind != explain.Input {
					one.subject = w.name
				}
				whys[i] = one
			}
		}
		k := slices.IndexFunc(d.inputs, func(in declaredInput) bool { return in.name == input })
		do(d, &d.inputs[k])
		return whys, len(whys) > 0
	}}
}

// ofVariable is a change of a variable of the environment.
func ofVariable(name, variable, says string, do func(env map[string]string)) change {
	return change{name, func(d *declaration, r *rand.Rand) (map[int]reason, bool) {
		whys := map[int]reason{}
		for i := range d.tasks {
			if slices.Contains(d.tasks[i].keyed, variable) {
				whys[i] = reason{kind: explain.Input, subject: "$" + variable, says: "environment variable " + variable + " changed from " + says}
			}
		}
		do(d.env)
		return whys, len(whys) > 0
	}}
}

// ofEnvironment is a change of the environment, or of the files that define it.
func ofEnvironment(name string, why reason, do func(d *declaration)) change {
	return change{name, func(d *declaration, r *rand.Rand) (map[int]reason, bool) {
		whys := map[int]reason{}
		for i := range d.tasks {
			if d.tasks[i].inEnvironment {
				whys[i] = why
			}
		}
		do(d)
		return whys, len(whys) > 0
	}}
}

// setKey gives a key of the environment another value; "" removes it.
func setKey(name, value string) func(d *declaration) {
	return func(d *declaration) {
		i := slices.IndexFunc(d.environment, func(w declaredWire) bool { return w.name == name })
		if d.environment[i].source = value; value == "" {
			d.environment = slices.Delete(d.environment, i, i+1)
		}
	}
}

func file(path string, to func(f *declaredFile)) func(d *declaration, in *declaredInput) {
	return func(d *declaration, _ *declaredInput) {
		f := d.files[path]
		to(&f)
		d.files[path] = f
	}
}

func otherByte(f *declaredFile) { f.text = string(f.text[0]^1) + f.text[1:] }

func longer(f *declaredFile) { f.text += "." }

func mode(f *declaredFile) { f.executable = !f.executable }

func renamed(from, to string) func(d *declaration, in *declaredInput) {
	return func(d *declaration, _ *declaredInput) {
		d.files[to] = d.files[from]
		delete(d.files, from)
	}
}

// without removes one of a list of names.
func without(list *[]string, name string) bool {
	i := slices.Index(*list, name)
	if i >= 0 {
		*list = slices.Delete(*list, i, i+1)
	}
	return i >= 0
}

func variable(name, says string) reason {
	return reason{kind: explain.Environment, subject: name, says: "environment variable " + name + " " + says}
}

// deciding are the changes that affect results, each of one thing.
var deciding = slices.Concat(decidingEnvironment, decidingTask, decidingWiring, decidingOutputs, decidingInputs)

var decidingEnvironment = []change{
	ofEnvironment("file of the environment", reason{kind: explain.Input, subject: "@py", path: "lock.txt", says: "environment py: lock.txt changed"}, func(d *declaration) {
		file("lock.txt", otherByte)(d, nil)
	}),
	ofEnvironment("file in a folder of the environment", reason{kind: explain.Input, subject: "@py", path: "wheels/b.whl", says: "environment py: wheels/b.whl was added"}, func(d *declaration) {
		d.files["wheels/b.whl"] = declaredFile{text: "b"}
	}),
	ofEnvironment("command of the environment", reason{kind: explain.Programs, subject: "run", says: "the command that makes its environment changed"}, setKey("run", "make anew")),
	ofEnvironment("folder of the environment", reason{kind: explain.Programs, subject: "path", says: "its environment: path changed from bin to lib/bin"}, setKey("path", "lib/bin")),
	ofEnvironment("variable of the environment", reason{kind: explain.Programs, subject: "env A", says: "its environment: env A changed from b to c"}, setKey("env", "{A: c}")),
	ofTask("environment added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		had := t.inEnvironment
		t.inEnvironment = true
		return reason{kind: explain.Programs, subject: "name", says: "it uses the environment py now"}, !had
	}),
	ofTask("environment removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		had := t.inEnvironment
		t.inEnvironment = false
		return reason{kind: explain.Programs, subject: "name", says: "it uses no environment now"}, had
	}),
}

var decidingTask = []change{
	ofTask("script", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.script += "x"
		return reason{kind: explain.Command, says: "the command changed"}, t.argv == nil
	}),
	ofTask("argument", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		if t.argv == nil {
			return reason{}, false
		}
		t.argv[r.IntN(len(t.argv))] += "x"
		return reason{kind: explain.Command}, true
	}),
	ofTask("argument added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		if t.argv == nil {
			return reason{}, false
		}
		t.argv = append(t.argv, "")
		return reason{kind: explain.Command}, true
	}),
	ofTask("list to script", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		if t.argv == nil {
			return reason{}, false
		}
		t.script, t.argv = strings.Join(t.argv, " "), nil
		return reason{kind: explain.Command, says: "from a list to a script"}, true
	}),
	ofTask("env value", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		if len(t.env) == 0 {
			return reason{}, false
		}
		t.env[0].source += "x"
		return variable("SET0", "changed from "), true
	}),
	ofTask("env added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.env = append(t.env, declaredWire{"FURTHER", ""})
		return variable("FURTHER", `was added: ""`), true
	}),
	ofTask("env removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		if len(t.env) == 0 {
			return reason{}, false
		}
		t.env = t.env[1:]
		return variable("SET0", "was removed"), true
	}),
	ofTask("env in another order", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		slices.Reverse(t.env)
		return reason{kind: explain.Definition, subject: "order"}, len(t.env) > 1
	}),
	ofTask("pass_env added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.pass = append(t.pass, "FURTHER")
		return variable("FURTHER", "was added: passed on by pass_env"), true
	}),
	ofTask("pass_env removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		return variable("PASSED", "was removed; it was passed on by pass_env"), without(&t.pass, "PASSED")
	}),
	ofTask("secret added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.secrets = append(t.secrets, "STRAY")
		return variable("STRAY", "was added: passed on as a secret"), true
	}),
	ofTask("secret removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		return variable("TOKEN", "was removed"), without(&t.secrets, "TOKEN")
	}),
	ofTask("passed variable made a secret", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.secrets = append(t.secrets, "PASSED")
		return variable("PASSED", "changed from passed on by pass_env to passed on as a secret"), without(&t.pass, "PASSED")
	}),
	ofTask("passed variable keyed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.keyed = append(t.keyed, "PASSED")
		return variable("PASSED", "changed from passed on by pass_env to taken by key_env"), without(&t.pass, "PASSED")
	}),
	ofTask("key_env added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.keyed = append(t.keyed, "FURTHER")
		return variable("FURTHER", "was added: taken by key_env"), true
	}),
	ofTask("key_env removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		return variable("MODE", "was removed; it was taken by key_env"), without(&t.keyed, "MODE")
	}),
	ofTask("version", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		t.version += "x"
		return reason{kind: explain.Version, says: "the version "}, true
	}),
	ofTask("version removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		had := t.version != ""
		t.version = ""
		return reason{kind: explain.Version, says: "the version was removed"}, had
	}),
	ofTask("dimension renamed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		had := t.dimension != ""
		if had {
			t.dimension = "other"
		}
		return reason{kind: explain.Environment, subject: "other", more: true}, had
	}),
}

var decidingWiring = []change{
	ofTask("input added", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		has := slices.ContainsFunc(t.in, func(w declaredWire) bool { return w.source == "list" })
		t.in = append(t.in, declaredWire{"further", "list"})
		return reason{kind: explain.InputAdded, subject: "further"}, !has
	}),
	ofTask("input removed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		if len(t.in) == 0 {
			return reason{}, false
		}
		why := reason{kind: explain.InputRemoved, subject: t.in[0].name}
		t.in = t.in[1:]
		return why, true
	}),
	ofTask("input renamed", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		i := slices.IndexFunc(t.in, func(w declaredWire) bool { return w.source == "data" || w.source == "number" })
		if i < 0 {
			return reason{}, false
		}
		why := reason{kind: explain.InputRenamed, subject: "another", says: fmt.Sprintf("input %s is named another now", t.in[i].name)}
		t.in[i].name = "another"
		return why, true
	}),
	ofTask("inputs in another order", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		slices.Reverse(t.in)
		return reason{kind: explain.Definition, subject: "order"}, len(t.in) > 1
	}),
	ofTask("input from elsewhere", func(t *declaredTask, r *rand.Rand) (reason, bool) {
		i := slices.IndexFunc(t.in, func(w declaredWire) bool { return w.source == "number" })
		if i < 0 {
			return reason{}, false
		}
		t.in[i].source = "text"
		return reason{kind: explain.InputSource, subject: t.in[i].name, says: "comes from input text now, not from input number"}, true
	}),
}

var decidingOutputs = []change{
	ofOutputs("output path", func(t *declaredTask) bool {
		t.out[0].path += "x"
		return true
	}),
	ofOutputs("output kind", func(t *declaredTask) bool {
		t.out[0].dir = !t.out[0].dir
		return true
	}),
	ofOutputs("executable output", func(t *declaredTask) bool {
		t.out[0].executable = !t.out[0].dir
		return !t.out[0].dir
	}),
	ofOutputs("output added", func(t *declaredTask) bool {
		t.out = append(t.out, declaredOutput{name: "out_further", path: "made/further"})
		return t.several
	}),
	ofOutputs("output removed", func(t *declaredTask) bool {
		t.out = t.out[1:]
		return t.several
	}),
	ofOutputs("output renamed", func(t *declaredTask) bool {
		t.out[0].name = "out_other"
		return t.several
	}),
	ofOutputs("one output named", func(t *declaredTask) bool {
		t.out[0].name = "out_one"
		was := t.several
		t.several = true
		return !was
	}),
}

var (
	content    = reason{kind: explain.Input}
	executable = reason{kind: explain.InputKind, says: "staged as an executable file now, not as a file"}
)

func at(path string) reason { return reason{kind: explain.Input, path: path} }

var decidingInputs = []change{
	ofInput("bytes of a file", "data", content, file("data.txt", otherByte)),
	ofInput("length of a file", "data", content, file("data.txt", longer)),
	ofInput("executable bit of a file", "data", executable, file("data.txt", mode)),
	ofInput("file declared executable", "data", executable, func(_ *declaration, in *declaredInput) { in.executable = "true" }),
	ofInput("file moved", "data", reason{kind: explain.InputPath, says: "staged at moved.txt now, not at data.txt"}, func(d *declaration, in *declaredInput) {
		in.location = "moved.txt"
		renamed("data.txt", "moved.txt")(d, in)
	}),
	ofInput("bytes deep in a directory", "tree", at("deep/b"), file("tree/deep/b", otherByte)),
	ofInput("executable bit in a directory", "tree", at("a"), file("tree/a", mode)),
	ofInput("file name in a directory", "tree", at("deep/b|deep/c"), renamed("tree/deep/b", "tree/deep/c")),
	ofInput("file moved within a directory", "tree", at("c|deep"), renamed("tree/deep/b", "tree/c")),
	ofInput("file added to a directory", "tree", at("deep/new"), file("tree/deep/new", func(*declaredFile) {})),
	ofInput("empty folder in a directory", "tree", at("deep/empty"), func(d *declaration, _ *declaredInput) { d.folders = append(d.folders, "tree/deep/empty") }),
	ofInput("target of a link", "tree", at("link"), func(d *declaration, _ *declaredInput) { d.links["tree/link"] = "deep/b" }),
	ofInput("link made a file", "tree", at("link"), func(d *declaration, in *declaredInput) {
		delete(d.links, "tree/link")
		d.files["tree/link"] = d.files["tree/a"]
	}),
	ofInput("bytes of a glob", "logs", at("one.log"), file("logs/one.log", otherByte)),
	ofInput("glob gains a file", "logs", at("three.log"), file("logs/three.log", longer)),
	ofInput("glob loses a file", "logs", at("two.log"), renamed("logs/two.log", "logs/two.txt")),
	ofInput("pattern of a glob", "logs", at("none.txt"), func(_ *declaration, in *declaredInput) { in.location = "logs/*" }),
	ofInput("number", "number", content, func(_ *declaration, in *declaredInput) { in.value += "1" }),
	ofInput("number made a float", "number", content, func(_ *declaration, in *declaredInput) { in.value += ".0" }),
	ofInput("number made a text", "number", content, func(_ *declaration, in *declaredInput) { in.value = quotedText(in.value) }),
	ofInput("number made null", "number", content, func(_ *declaration, in *declaredInput) { in.value = "null" }),
	ofInput("text made empty", "text", content, func(_ *declaration, in *declaredInput) { in.value = `""` }),
	ofInput("list", "list", content, func(_ *declaration, in *declaredInput) { in.value = strings.Replace(in.value, "[", "[0, ", 1) }),
	ofInput("list made a mapping", "list", content, func(_ *declaration, in *declaredInput) { in.value = "{a: 1}" }),
	ofVariable("keyed variable", "MODE", `"`, func(env map[string]string) { env["MODE"] += "x" }),
	ofVariable("keyed variable unset", "MODE", `"`, func(env map[string]string) { delete(env, "MODE") }),
	ofVariable("empty keyed variable unset", "EMPTY", `"" to unset`, func(env map[string]string) { delete(env, "EMPTY") }),
	ofVariable("unset keyed variable set empty", "UNSET", `unset to ""`, func(env map[string]string) { env["UNSET"] = "" }),
}

// neutral is a change that affects no result.
func neutral(name string, do func(d *declaration, r *rand.Rand)) change {
	return change{name, func(d *declaration, r *rand.Rand) (map[int]reason, bool) {
		do(d, r)
		return nil, true
	}}
}

// policy sets a key of a task's policy.
func policy(key, value string) change {
	return neutral(key, func(d *declaration, r *rand.Rand) { d.tasks[r.IntN(len(d.tasks))].policy[key] = value })
}

// neutrals are the changes that affect no result.
var neutrals = []change{
	neutral("comments", func(d *declaration, r *rand.Rand) { d.comments = true }),
	neutral("order", func(d *declaration, r *rand.Rand) { d.order = 1 + r.Uint64N(1<<40) }),
	policy("timeout", "5s"), policy("retries", "2"), policy("retries", "{max: 1, backoff: 1s, on: [timeout]}"), policy("priority", "7"),
	policy("resources", "{cpu: 0.5, memory: 1MiB, licence: 1}"), policy("labels", "[big]"), policy("queue", "other"), policy("approve", "true"),
	neutral("on_oom", func(d *declaration, r *rand.Rand) {
		p := d.tasks[0].policy
		p["resources"], p["retries"], p["on_oom"] = "{memory: 1MiB}", "1", "{memory: x2}"
	}),
	policy("suspend", "75"), policy("on_lost", "kill"), policy("description", "what it does"),
	neutral("description of the package", func(d *declaration, r *rand.Rand) { d.description = "what it is about" }),
	neutral("version of the package", func(d *declaration, r *rand.Rand) { d.version = "1.2.3" }),
	neutral("description of an input", func(d *declaration, r *rand.Rand) { d.inputs[r.IntN(len(d.inputs))].description = "what it holds" }),
	neutral("input kept out of exports", func(d *declaration, r *rand.Rand) { d.inputs[r.IntN(len(d.inputs))].private = true }),
	neutral("role of an output", func(d *declaration, r *rand.Rand) { d.tasks[r.IntN(len(d.tasks))].out[0].role = "metrics" }),
	neutral("task renamed", func(d *declaration, r *rand.Rand) { d.rename(&d.tasks[r.IntN(len(d.tasks))].name) }),
	neutral("input renamed", func(d *declaration, r *rand.Rand) { d.rename(&d.inputs[r.IntN(len(d.inputs))].name) }),
	neutral("input that no task reads", func(d *declaration, r *rand.Rand) {
		d.inputs = append(d.inputs, declaredInput{name: "unread", source: "value", value: "1"})
	}),
	neutral("task that reads others", func(d *declaration, r *rand.Rand) {
		t := declaredTask{name: "last", script: "last", out: []declaredOutput{{name: "out", path: "last"}}, in: []declaredWire{{"r", "data"}}}
		d.tasks = append(d.tasks, t)
	}),
	neutral("file written again", func(d *declaration, r *rand.Rand) { file("data.txt", func(f *declaredFile) { f.written++ })(d, nil) }),
	neutral("file beside a glob", func(d *declaration, r *rand.Rand) { file("logs/none.txt", otherByte)(d, nil) }),
	neutral("variable that no task names", func(d *declaration, r *rand.Rand) { d.env["NOBODYS"] = "x" }),
	neutral("value of a passed variable", func(d *declaration, r *rand.Rand) { d.env["PASSED"] += "x" }),
	neutral("passed variable set", func(d *declaration, r *rand.Rand) { d.env["ABSENT"] = "x" }),
	neutral("value of a secret", func(d *declaration, r *rand.Rand) { d.env["TOKEN"] += "x" }),
	neutral("secret unset", func(d *declaration, r *rand.Rand) { delete(d.env, "TOKEN") }),
}

// rename gives a task or an input of the package another name, by which other tasks refer to it; their own names for it
// stay.
func (d *declaration) rename(name *string) {
	was := *name
	*name = "renamed"
	for i := range d.tasks {
		for k := range d.tasks[i].in {
			source := &d.tasks[i].in[k].source
			if head, entry, more := strings.Cut(*source, "."); head == was {
				if *source = *name; more {
					*source += "." + entry
				}
			}
		}
	}
}
