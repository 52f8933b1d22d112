package beast2

import (
	_ "embed"
	"sync"
)

// irHeader is the header of a file of East's intermediate representation, as the reference
// at beta.25 writes it.
//
//go:embed ir_beta25.beast2
var irHeader []byte

// The cases of IR that are allowed for the value of a function.
const (
	irAsyncFunction = 2
	irFunction      = 13
)

type irType struct {
	typ   Type
	shape *shape
}

// ir returns the type of the values of functions. Few files hold any, so it is read on demand.
var ir = sync.OnceValue(func() irType {
	in := NewReader(irHeader, 0)
	t := readHeader(in)
	if err := in.Done(); err != nil {
		panic(err)
	}
	return irType{t, shapeOf(t)}
})

// irCase returns the case of IR of the value of a function of this kind.
func irCase(k Kind) int {
	if k == KindAsyncFunction {
		return irAsyncFunction
	}
	return irFunction
}
