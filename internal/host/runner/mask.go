package runner

import "io"

// maskText stands for a run of masked bytes.
const maskText = "***"

// MaskWriter copies its input and replaces occurrences of secret values by "***", even if an occurrence is split across
// writes. Occurrences that overlap or touch become one "***", so that no part of a secret is left.
//
// It holds back only the bytes that may be the beginning of a secret; Flush writes them. It is not safe for
// concurrent use.
type MaskWriter struct {
	w     io.Writer
	nodes []maskNode // an Aho-Corasick automaton; node 0 is the root
	first [256]int32 // the root's children by byte; 0 for none
	state int32

	// held are the last bytes of the input, as many as the state is deep: no incomplete secret begins before them.
	// covered are the parts of held that belong to a secret, as ascending disjoint offsets.
	held    []byte
	covered []span
	masking bool // the last output was a mask
	out     []byte
	err     error
}

// maskNode is a prefix of one or more secrets.
type maskNode struct {
	b              byte
	child, sibling int32
	fail           int32 // the longest proper suffix that begins a secret
	depth          int32
	match          int32 // length of the longest secret that ends here, or 0
}

type span struct{ from, to int }

// NewMaskWriter returns a writer that masks the secrets; empty ones are ignored.
func NewMaskWriter(w io.Writer, secrets ...string) *MaskWriter {
	m := &MaskWriter{w: w, nodes: make([]maskNode, 1)}
	for _, secret := range secrets {
		m.add(secret)
	}
	m.link()
	return m
}

func (m *MaskWriter) add(secret string) {
	var at int32
	for i := range len(secret) {
		next := m.child(at, secret[i])
		if next == 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, maskNode{b: secret[i], sibling: m.nodes[at].child, depth: int32(i + 1)})
			m.nodes[at].child = next
			if at == 0 {
				m.first[secret[i]] = next
			}
		}
		at = next
	}
	m.nodes[at].match = m.nodes[at].depth // the root keeps 0
}

// link sets the failure links, shortest prefixes first.
func (m *MaskWriter) link() {
	queue := make([]int32, 1, len(m.nodes))
	for i := 0; i < len(queue); i++ {
		parent := queue[i]
		for at := m.nodes[parent].child; at != 0; at = m.nodes[at].sibling {
			if parent != 0 {
				fail := m.next(m.nodes[parent].fail, m.nodes[at].b)
				m.nodes[at].fail = fail
				m.nodes[at].match = max(m.nodes[at].match, m.nodes[fail].match)
			}
			queue = append(queue, at)
		}
	}
}

func (m *MaskWriter) child(at int32, b byte) int32 {
	if at == 0 {
		return m.first[b]
	}
	for at = m.nodes[at].child; at != 0 && m.nodes[at].b != b; {
		at = m.nodes[at].sibling
	}
	return at
}

// next is the state after b: the longest suffix of the input that is a prefix of a secret.
func (m *MaskWriter) next(at int32, b byte) int32 {
	for {
		if child := m.child(at, b); child != 0 || at == 0 {
			return child
		}
		at = m.nodes[at].fail
	}
}

// Write implements io.Writer. After an error of the underlying writer it accepts no more.
func (m *MaskWriter) Write(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	m.out = m.out[:0]
	for i := 0; i < len(p); {
		if m.state == 0 {
			start := i
			for i < len(p) && m.first[p[i]] == 0 {
				i++
			}
			if i > start {
				m.masking = false
				m.out = append(m.out, p[start:i]...)
				continue
			}
		}
		m.step(p[i])
		i++
	}
	if err := m.emit(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// step takes one byte and writes the held bytes that are now decided.
func (m *MaskWriter) step(b byte) {
	m.held = append(m.held, b)
	m.state = m.next(m.state, b)
	node := &m.nodes[m.state]
	if node.match > 0 {
		m.cover(len(m.held)-int(node.match), len(m.held))
	}
	m.release(len(m.held) - int(node.depth))
}

// cover marks held[from:to] as secret; to is the end of held.
func (m *MaskWriter) cover(from, to int) {
	for n := len(m.covered); n > 0 && m.covered[n-1].to >= from; n-- {
		from = min(from, m.covered[n-1].from)
		m.covered = m.covered[:n-1]
	}
	m.covered = append(m.covered, span{from, to})
}

// release writes the first n held bytes.
func (m *MaskWriter) release(n int) {
	if n == 0 {
		return
	}
	at := 0
	for at < n {
		if len(m.covered) > 0 && m.covered[0].from <= at {
			if !m.masking {
				m.out = append(m.out, maskText...)
				m.masking = true
			}
			at = min(n, m.covered[0].to)
			if at == m.covered[0].to {
				m.covered = append(m.covered[:0], m.covered[1:]...)
			}
			continue
		}
		end := n
		if len(m.covered) > 0 {
			end = min(n, m.covered[0].from)
		}
		m.out = append(m.out, m.held[at:end]...)
		m.masking = false
		at = end
	}
	m.held = append(m.held[:0], m.held[n:]...)
	for i := range m.covered {
		m.covered[i].from = max(0, m.covered[i].from-n)
		m.covered[i].to -= n
	}
}

// Flush writes the held bytes. Call it once, after the last Write: a secret that continues after a Flush is not masked.
func (m *MaskWriter) Flush() error {
	if m.err != nil {
		return m.err
	}
	m.out = m.out[:0]
	m.release(len(m.held))
	m.state = 0
	return m.emit()
}

func (m *MaskWriter) emit() error {
	if len(m.out) > 0 {
		_, m.err = m.w.Write(m.out)
	}
	return m.err
}
