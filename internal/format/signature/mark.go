package signature

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"strconv"
)

// A Mark is a key's signature of a record of a repository. It does not hold the record.
type Mark struct {
	Key   PublicKey
	Bytes [ed25519.SignatureSize]byte
}

// A Statement is the content that a [Mark] signs.
type Statement struct{ message []byte }

// Domains of marks. A message begins with its domain, so that a signature of one kind is invalid for another kind. The
// number is the version of the fields that follow.
const (
	executionDomain = "e3 execution 1\n"
	proofDomain     = "e3 proof 1\n"
)

// Execution is the statement that an execution under a key ended with this status and this output. status is the
// execution's record (format.md, ExecutionStatus), with its id, state, output and times; size is the size of the
// output, in bytes.
func Execution(task, inputs string, status []byte, size int64) Statement {
	return statement(executionDomain, []byte(task), []byte(inputs), status, strconv.AppendInt(nil, size, 10))
}

// Proof is the statement that a run has found these outputs, and counted only executions that the demand admits. The
// outputs are a node, for a package and a node of inputs, under a generation. Those of open tasks are not the run's; partial says
// that there are such tasks.
func Proof(demand [32]byte, pkg, inputs, tasks, generation string, partial bool, open []string) Statement {
	fields := [][]byte{demand[:], []byte(pkg), []byte(inputs), []byte(tasks), []byte(generation), strconv.AppendBool(nil, partial)}
	for _, task := range open {
		fields = append(fields, []byte(task))
	}
	return statement(proofDomain, fields...)
}

// statement joins fields. Each follows its length, in 8 bytes, big-endian: so no two lists of fields have the same
// message.
func statement(domain string, fields ...[]byte) Statement {
	b := []byte(domain)
	for _, f := range fields {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(f))), f...)
	}
	return Statement{b}
}

// Mark signs a statement.
func (k *Key) Mark(s Statement) *Mark {
	private := ed25519.NewKeyFromSeed(k.seed[:])
	m := &Mark{Key: PublicKey(private.Public().(ed25519.PublicKey))}
	copy(m.Bytes[:], ed25519.Sign(private, s.message))
	return m
}

// Verify returns an [ErrBadSignature] if m.Key has not signed the statement.
func (m *Mark) Verify(s Statement) error {
	if !ed25519.Verify(m.Key[:], s.message, m.Bytes[:]) {
		return fmt.Errorf("%w: the key %s has not signed this", ErrBadSignature, m.Key)
	}
	return nil
}
