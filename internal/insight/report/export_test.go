package report

// MetricsTable reads a file of metrics and returns the lines of its table, and its note.
func MetricsTable(data []byte) (lines [][]string, note string) {
	m := &metricSource{file: file{task: "t", name: "m"}, values: map[string]Cell{}}
	m.read(data)
	o := &outputs{metrics: []*metricSource{m}, page: &Contents{}}
	t := o.tables()[0]
	if len(t.Head) > 0 {
		lines = append(lines, t.Head)
	}
	for _, row := range t.Rows {
		var line []string
		for _, c := range row {
			line = append(line, c.Text)
		}
		lines = append(lines, line)
	}
	return lines, t.Note
}
