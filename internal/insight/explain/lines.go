package explain

// maxTable bounds the entries of the comparison table. Texts that would exceed it count as changed between their common
// beginning and end.
const maxTable = 1 << 20

// diffLines returns the removed and added lines, at most maxLines of them, and the number of lines left out.
func diffLines(a, b []string) ([]Line, int) {
	list, more := changedLines(a, b)
	for i := 0; i < len(list); i++ {
		if i+1 < len(list) && list[i].Op == "-" && list[i+1].Op == "+" { // replaced: cut both alike
			list[i].Text, list[i+1].Text = truncateBoth(list[i].Text, list[i+1].Text, maxText)
			i++
			continue
		}
		list[i].Text = truncate(list[i].Text, maxText)
	}
	return list, more
}

func changedLines(a, b []string) (list []Line, more int) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	add := func(op, text string) {
		if len(list) == maxLines {
			more++
			return
		}
		list = append(list, Line{Op: op, Text: text})
	}
	if (len(a)+1)*(len(b)+1) > maxTable {
		for _, s := range a {
			add("-", s)
		}
		for _, s := range b {
			add("+", s)
		}
		return list, more
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[(i+1)*width+j] >= common[i*width+j+1]:
			add("-", a[i])
			i++
		default:
			add("+", b[j])
			j++
		}
	}
	return list, more
}
