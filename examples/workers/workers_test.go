// Package workers_test holds the examples of workers to the schemas of the programs that read them, and to the program's flags.
package workers_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	_ "e3/internal/repo" // for the cache of go test: what the program is made of
	"e3/internal/testing/built"
)

// TestKubernetesJob validates the Job, and finds that the schema refuses what is wrong with one.
func TestKubernetesJob(t *testing.T) {
	schema := compile(t, "testdata/kubernetes-job.schema.json", "")
	if err := schema.Validate(load(t, "kubernetes-job.yaml")); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(job map[string]any){
		"a kind of another API":   func(job map[string]any) { job["apiVersion"] = "batch/v1beta1" },
		"a misspelled field":      func(job map[string]any) { at(job, "spec")["complations"] = 8.0 },
		"words for a number":      func(job map[string]any) { at(job, "spec")["parallelism"] = "eight" },
		"no template":             func(job map[string]any) { delete(at(job, "spec"), "template") },
		"a field one level lower": func(job map[string]any) { at(job, "spec", "template")["restartPolicy"] = "Never" },
		"no containers":           func(job map[string]any) { delete(at(job, "spec", "template", "spec"), "containers") },
	} {
		job := load(t, "kubernetes-job.yaml").(map[string]any)
		spoil(job)
		if schema.Validate(job) == nil {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

// TestBatchTemplate validates each resource of the template by its type.
func TestBatchTemplate(t *testing.T) {
	template := load(t, "aws-batch.yaml").(map[string]any)
	resources := at(template, "Resources")
	if len(resources) != 2 {
		t.Errorf("the template has %d resources, want the role and the job definition", len(resources))
	}
	for name := range resources {
		r := at(resources, name)
		schema := compile(t, "testdata/cloudformation.schema.json", r["Type"].(string))
		if err := schema.Validate(r["Properties"]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	schema := compile(t, "testdata/cloudformation.schema.json", "AWS::Batch::JobDefinition")
	for name, spoil := range map[string]func(worker map[string]any){
		"a misspelled field":  func(w map[string]any) { at(w, "ContainerProperties")["JobRole"] = "arn" },
		"no image":            func(w map[string]any) { delete(at(w, "ContainerProperties"), "Image") },
		"an unknown type":     func(w map[string]any) { w["Type"] = "pod" },
		"words for a number":  func(w map[string]any) { at(w, "Timeout")["AttemptDurationSeconds"] = "12h" },
		"an unknown resource": func(w map[string]any) { requirements(w)["Type"] = "CORES" },
	} {
		worker := at(load(t, "aws-batch.yaml").(map[string]any), "Resources", "Worker", "Properties")
		spoil(worker)
		if schema.Validate(worker) == nil {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

func requirements(worker map[string]any) map[string]any {
	return at(worker, "ContainerProperties")["ResourceRequirements"].([]any)[0].(map[string]any)
}

// TestCommandLines gives the program each of its command lines in the examples and in the document, with --help, which has it
// read the flags and nothing else.
func TestCommandLines(t *testing.T) {
	program := built.Program(t)
	if entry := `ENTRYPOINT ["tini", "--", "e3"]`; !slices.Contains(strings.Split(read(t, "Dockerfile"), "\n"), entry) {
		t.Errorf("the image does not run e3: Dockerfile has no line %s", entry)
	}
	container := at(load(t, "kubernetes-job.yaml").(map[string]any), "spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
	batch := at(load(t, "aws-batch.yaml").(map[string]any), "Resources", "Worker", "Properties")
	command := words(at(batch, "ContainerProperties")["Command"])
	for i, word := range command {
		if name, ok := strings.CutPrefix(word, "Ref::"); ok { // Batch fills it in
			value, ok := at(batch, "Parameters")[name].(string)
			if !ok {
				t.Errorf("the command of aws-batch.yaml has the parameter %s, which has no value", name)
			}
			command[i] = value
		}
	}
	lines := [][]string{words(container["args"]), command}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(read(t, "../../doc/workers.md"), -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "'", "")
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "e3" {
				lines = append(lines, fields[1:])
			}
		}
	}
	if len(lines) < 5 {
		t.Errorf("found %d command lines, want more", len(lines))
	}
	for _, args := range lines {
		out, err := exec.Command(program, append(args, "--help")...).CombinedOutput()
		if usage := "e3 " + args[0]; err != nil || !strings.Contains(string(out), usage) {
			t.Errorf("e3 %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func compile(t *testing.T, file, def string) *jsonschema.Schema {
	t.Helper()
	if def != "" {
		file += "#/$defs/" + def
	}
	s, err := jsonschema.NewCompiler().Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// load reads a YAML file as what encoding/json makes of the same in JSON.
func load(t *testing.T, file string) any {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, file)), &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	resolve(&doc)
	var v any
	if err := doc.Decode(&v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return plain
}

// resolve puts values in place of CloudFormation's functions, as a stack would.
func resolve(n *yaml.Node) {
	values := map[string]string{
		"!Ref Image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/e3-worker:1", "!Ref Policy": "arn:aws:iam::123456789012:policy/e3-Use",
		"!Ref Repository": "dynamodb://acme/forecast?region=eu-west-1&bucket=acme-e3", "!GetAtt Role.Arn": "arn:aws:iam::123456789012:role/e3-worker",
	}
	if value, ok := values[n.Tag+" "+n.Value]; ok {
		n.Tag, n.Value = "!!str", value
	}
	for _, child := range n.Content {
		resolve(child)
	}
}

// at goes down into v by names.
func at(v map[string]any, path ...string) map[string]any {
	for _, name := range path {
		v, _ = v[name].(map[string]any)
	}
	return v
}

func words(v any) []string {
	list, _ := v.([]any)
	words := make([]string, len(list))
	for i, w := range list {
		words[i], _ = w.(string)
	}
	return words
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
