package human

import (
	"fmt"
	"strings"
)

// diffContext is the number of lines that a diff shows around a change.
const diffContext = 3

// Diff compares two texts as diff -u does, without the names of files at the top.
func Diff(before, after string) string {
	a, b := linesOf(before), linesOf(after)
	type line struct {
		mark byte
		text string
	}
	var all []line
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch k := ahead(a[i:], b[j:]); {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			all = append(all, line{' ', a[i]})
			i, j = i+1, j+1
		case k > 0: // lines of after up to where they agree again
			for range k {
				all = append(all, line{'+', b[j]})
				j++
			}
		case i < len(a):
			all = append(all, line{'-', a[i]})
			i++
			if j < len(b) && ahead(a[i:], b[j:]) == 0 && (i == len(a) || b[j] != a[i]) {
				all = append(all, line{'+', b[j]})
				j++
			}
		default:
			all = append(all, line{'+', b[j]})
			j++
		}
	}
	var out strings.Builder
	oldLine, newLine := 1, 1
	for i := 0; i < len(all); {
		if all[i].mark == ' ' {
			i, oldLine, newLine = i+1, oldLine+1, newLine+1
			continue
		}
		start := max(0, i-diffContext)
		end, last := i, i
		for end < len(all) && end <= last+2*diffContext {
			if all[end].mark != ' ' {
				last = end
			}
			end++
		}
		end = min(len(all), last+diffContext+1)
		var olds, news int
		for _, l := range all[start:end] {
			if l.mark != '+' {
				olds++
			}
			if l.mark != '-' {
				news++
			}
		}
		fmt.Fprintf(&out, "@@ -%d,%d +%d,%d @@\n", oldLine-(i-start), olds, newLine-(i-start), news)
		for _, l := range all[start:end] {
			out.WriteByte(l.mark)
			out.WriteString(strings.TrimRight(l.text, "\r\n"))
			out.WriteByte('\n')
			if !strings.HasSuffix(l.text, "\n") {
				out.WriteString("\\ No newline at end of file\n")
			}
		}
		for _, l := range all[i:end] {
			if l.mark != '+' {
				oldLine++
			}
			if l.mark != '-' {
				newLine++
			}
		}
		i = end
	}
	return out.String()
}

func linesOf(text string) []string {
	list := strings.SplitAfter(text, "\n")
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

// ahead is the number of lines of b before the first line of a; 0: that line is not among the next lines of b.
func ahead(a, b []string) int {
	const most = 64
	if len(a) == 0 {
		return 0
	}
	for k := 1; k < min(len(b), most); k++ {
		if b[k] == a[0] && (len(a) == 1 || k+1 >= len(b) || a[1] == b[k+1] || strings.TrimSpace(a[0]) != "") {
			return k
		}
	}
	return 0
}
