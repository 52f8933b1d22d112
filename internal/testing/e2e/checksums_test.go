//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The sums of records, as doc/format.md describes them and not as the program computes them.

// summed is what a file is the record, or the field, of; ok is false where it has no trailer.
func summed(path string) (partition, sort, field string, ok bool) {
	parts := strings.Split(path, "/")
	last := parts[len(parts)-1]
	name := strings.TrimSuffix(last, ".rec")
	switch parts[0] {
	case "executions":
		own := slices.Contains([]string{"detail.beast2", "rejected.beast2", "metadata.beast2", "provenance.beast2", "job"}, last)
		return "EXECUTION/" + parts[1] + "/" + parts[2], parts[3], last, own
	case "dataflows":
		if len(parts) < 4 {
			return "DATAFLOW/" + parts[1], strings.TrimSuffix(last, ".beast2"), "", false
		}
		return "DATAFLOW/" + parts[1], strings.TrimSuffix(parts[2], ".beast2~"), last, true
	case "workspaces":
		return "WORKSPACE", strings.TrimSuffix(last, ".beast2"), "", false
	case "packages":
		return "PACKAGE", parts[1] + "/" + last, "", false
	case "settings":
		return "SETTINGS", strings.TrimSuffix(last, ".json"), "", true
	case "approvals":
		return "APPROVAL/" + parts[1], strings.ReplaceAll(name, "%2F", "/"), "", true
	case "index":
		return "INDEX/" + strings.Join(parts[1:len(parts)-1], "/"), name, "", true
	}
	kinds := map[string]string{"tombstones": "TOMBSTONE", "pins": "PIN", "cancels": "CANCEL"}
	return kinds[parts[0]], name, "", kinds[parts[0]] != ""
}

func crc(partition, sort, field string, content ...[]byte) string {
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", partition, sort, field)
	for _, b := range content {
		h.Write(b)
	}
	return fmt.Sprintf("%08x", h.Sum32())
}

// parts are the status and the side fields of an execution by their names. The file ends in a line that names the fields
// and their lengths.
func parts(status []byte) (map[string][]byte, error) {
	all := map[string][]byte{}
	at := bytes.LastIndex(status, []byte("\ne3with"))
	if at < 0 { // torn: without its detail, which the checks demand
		return map[string][]byte{"status.beast2": status}, nil
	}
	entries, rest := strings.Fields(string(status[at+len("\ne3with"):])), status[:at]
	for _, e := range slices.Backward(entries) {
		name, length, _ := strings.Cut(e, "=")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(rest) {
			return nil, fmt.Errorf("it ends in %q", status[at:])
		}
		all[name], rest = rest[len(rest)-n:], rest[:len(rest)-n]
	}
	all["status.beast2"] = rest
	return all, nil
}

// readPart reads a file of the repository, or a side field of an execution as if it were a file.
func readPart(root, path string) ([]byte, error) {
	dir, name := filepath.Split(path)
	if strings.HasPrefix(dir, "executions/") && !strings.HasSuffix(name, ".txt") {
		status, err := os.ReadFile(filepath.Join(root, dir, "status.beast2"))
		if err != nil {
			return nil, err
		}
		all, err := parts(status)
		if data, ok := all[name]; ok || err != nil {
			return data, err
		}
	}
	return os.ReadFile(filepath.Join(root, path))
}

// withoutSum takes the trailer off a file of a record of ours, and checks it. entries are what it says beside the sum.
func (c *checker) withoutSum(path string, data []byte) (content []byte, entries []string) {
	partition, sort, field, ok := summed(path)
	if !ok {
		return data, nil
	}
	content, entries, ok = cutSum(partition, sort, field, data)
	if !ok {
		if !c.torn {
			c.fault("%s does not have its sum", path)
		}
		return data, nil
	}
	return content, entries
}

func cutSum(partition, sort, field string, data []byte) (content []byte, entries []string, ok bool) {
	at := bytes.LastIndex(data, []byte("\ne3sum "))
	if at < 0 || !bytes.HasSuffix(data, []byte("\n")) {
		return nil, nil, false
	}
	content, line := data[:at], data[at+len("\ne3sum"):len(data)-1]
	end := bytes.LastIndexByte(line, ' ')
	ok = string(line[end+1:]) == crc(partition, sort, field, content, line[:end])
	return content, strings.Fields(string(line[:end])), ok
}

// bare tells whether a detail is there for its sums only.
func (c *checker) bare(path string) bool {
	data, err := readPart(c.root, path)
	if err != nil {
		return false
	}
	_, entries := c.withoutSum(path, data)
	return slices.Contains(entries, "-")
}

// allows tells whether entries name a sum for a file, "" being the value.
func allows(entries []string, name, sum string) bool {
	return slices.ContainsFunc(entries, func(e string) bool {
		sums, ok := strings.CutPrefix(e, name+"=")
		return ok && slices.Contains(strings.Split(sums, ","), sum)
	})
}

// sealed demands that the detail of an execution has the sums of what lies beside it.
func (c *checker) sealed(rel string, has map[string]bool) {
	if c.torn {
		return
	}
	path := "executions/" + rel + "/detail.beast2"
	data, err := readPart(c.root, path)
	if err != nil {
		c.fault("%v", err)
		return
	}
	_, entries := c.withoutSum(path, data)
	partition, sort, _, _ := summed(path)
	for file, field := range map[string]string{"status.beast2": "", "output": "output"} {
		if !has[file] {
			continue
		}
		if sum := crc(partition, sort, field, c.readFile("executions", rel+"/"+file)); !allows(entries, field, sum) {
			c.fault("%s has the sums %q, and %s has %s", path, entries, file, sum)
		}
	}
	for _, own := range []string{"rejected.beast2", "metadata.beast2", "provenance.beast2", "job"} {
		if has[own] != slices.Contains(entries, "+"+own) {
			c.fault("%s has the entries %q, and %s is there: %v", path, entries, own, has[own])
		}
	}
}

// sumBeside demands that the sum beside a file is that of the file. One that is torn says nothing.
func (c *checker) sumBeside(path string) {
	value, err := os.ReadFile(filepath.Join(c.root, path))
	if err != nil {
		c.fault("%s has a sum: %v", path, err)
		return
	}
	data, err := os.ReadFile(filepath.Join(c.root, path+"~sum"))
	partition, sort, _, _ := summed(path)
	_, entries, ok := cutSum(partition, sort, "sum", data)
	if err != nil {
		c.fault("%v", err)
		return
	}
	if sum := crc(partition, sort, "", value); ok && !allows(entries, "", sum) && !c.torn {
		c.fault("%s~sum has %q, and the file has %s", path, entries, sum)
	}
}
