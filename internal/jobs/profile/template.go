package profile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/format/pattern"
	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
)

// A template is a text with placeholders: a command, or what one reads.
type template string

// A placeholder is ${name} or ${name:format}; $${ is none.
var placeholder = pattern.Of(`\$\$\{|\$\{([a-z_0-9.]*)(?::([^}]*))?\}`)

// Placeholders that are several words, and those whose line stands once for each label or resource.
var (
	several  = []string{"args", "ids"}
	repeated = []string{"label", "resource", "amount"}
	repeat   = pattern.Of(`\$\{(label|resource|amount)(:json)?\}`)
)

// names lists the placeholders of a text, with their units.
func (t template) names() (list []string) {
	for _, m := range placeholder().FindAllStringSubmatch(string(t), -1) {
		switch {
		case m[0] == "$${":
		case m[2] == "" || m[2] == "json" || m[1] == "labels" || m[1] == "resources":
			list = append(list, m[1])
		default:
			list = append(list, m[1]+":"+m[2])
		}
	}
	return list
}

func (t template) has(name string) bool { return slices.Contains(t.names(), name) }

// chosen is the text without the lines whose placeholders have no value, and with a line for each label or resource.
func (t template) chosen(v *values) string {
	var lines []string
	for line := range strings.SplitSeq(string(t), "\n") {
		n := 1
		for _, name := range template(line).names() {
			switch {
			case name == "label":
				n = len(v.labels)
			case name == "resource" || name == "amount":
				n = len(v.resources)
			case !slices.Contains(several, name) && v.of[name] == "":
				n = 0
			}
		}
		for i := range n {
			lines = append(lines, repeat().ReplaceAllString(line, fmt.Sprintf("$${$1.%d$2}", i)))
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), "\n\\", "") // such a line continues a word
}

// text fills the template in.
func (t template) text(v *values) string { return v.fill(t.chosen(v)) }

// words is a command: the template is split into words before it is filled in, so that no value is ever split, or read
// by a shell.
func (t template) words(v *values) ([]string, error) {
	split, err := cluster.Words(t.chosen(v))
	var words []string
	for _, word := range split {
		if list, ok := v.lists[word]; ok {
			words = append(words, list...)
		} else {
			words = append(words, v.fill(word))
		}
	}
	return words, err
}

// values are those of placeholders.
type values struct {
	of        map[string]string   // by name and unit; of label.0, resource.0 and so on, too
	lists     map[string][]string // by ${name}
	labels    []string
	resources []record.Amount
}

// Placeholders that may have any characters; what names from package files may have; and units of memory.
var (
	free  = []string{"name", "script"}
	plain = pattern.Of(`^[A-Za-z0-9_][A-Za-z0-9_.:=/@-]*$`)
	units = map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

// Needs of the worker itself, in addition to the command's.
const (
	extraMemory = 64 << 20
	extraTime   = 5 * time.Minute
	bytesPerSec = 20 << 20 // a safe lower bound of the rate at which inputs arrive
)

// count rounds up, within what schedulers accept; "" is nothing.
func count(f float64) string {
	if f <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", min(math.Ceil(f), math.MaxInt32))
}

// values are those of placeholders for a batch.
func (o *Options) values(p *Profile, b *cluster.Batch) *values {
	j := &b.Jobs[0]
	cores, memory, limit := max(1, math.Ceil(j.Policy.CPU)), float64(j.Policy.Memory), j.Policy.Timeout
	if memory > 0 {
		memory += extraMemory
	}
	if limit > 0 {
		limit = max(limit, limit+extraTime+time.Duration(j.InputBytes/bytesPerSec)*time.Second) // the sum may overflow
	}
	seconds := int64(math.Ceil(limit.Seconds()))
	v := &values{lists: map[string][]string{"${args}": o.Args}, labels: slices.Compact(slices.Sorted(slices.Values(j.Labels))), of: map[string]string{
		"token": b.Token, "name": b.Name, "script": b.Script,
		"script_file": cluster.ScriptFile(b.Logs, b.Token), "queue": cmp.Or(j.Policy.Queue, o.Queue), "last": count(float64(len(b.Jobs) - 1)),
		"user": os.Getenv("USER"), "uid": strconv.Itoa(os.Getuid()), "cores": count(cores), "labels": "", "resources": "",
		"time:s": count(limit.Seconds()), "time:m": count(limit.Minutes()), "time:hm": "", "time:hms": "",
	}}
	if u, err := user.Current(); err == nil {
		v.of["user"] = u.Username
	}
	for unit, size := range units {
		v.of["memory:"+unit], v.of["core_memory:"+unit] = count(memory/size), count(memory/size/cores)
	}
	if seconds > 0 {
		minutes := (seconds + 59) / 60
		v.of["time:hm"] = fmt.Sprintf("%d:%02d", minutes/60, minutes%60)
		v.of["time:hms"] = fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	byName := func(a, b record.Amount) int { return cmp.Compare(a.Name, b.Name) }
	for _, r := range slices.SortedFunc(slices.Values(j.Policy.Resources), byName) {
		if called, ok := o.Resources[r.Name]; ok {
			r.Name = called
		}
		if i := fmt.Sprint(len(v.resources)); r.Name != "" {
			v.resources = append(v.resources, r)
			v.of["resource."+i], v.of["amount."+i], v.of["resources"] = r.Name, count(r.Value), r.Name
		}
	}
	for i, label := range v.labels {
		v.of[fmt.Sprint("label.", i)], v.of["labels"] = label, label
	}
	for name, text := range p.own {
		v.of[name] = cmp.Or(v.of[name], text)
	}
	return v
}

func (v *values) fill(text string) string {
	return placeholder().ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder().FindStringSubmatch(found)
		name, format := m[1], m[2]
		switch {
		case found == "$${":
			return "${"
		case format == "json":
			quoted, _ := json.Marshal(v.of[name])
			return string(quoted)
		case name == "labels":
			return strings.Join(v.labels, format)
		case name == "resources" && format != "":
			var all []string
			for _, r := range v.resources {
				all = append(all, r.Name+format[:1]+count(r.Value))
			}
			return strings.Join(all, format[1:])
		case format != "":
			name += ":" + format
		}
		return v.of[name]
	})
}
