// Package namestest models the names of the index as registers, for tests that nodes answer as if
// they executed one request after the other.
//
// # Invariants
//
//  1. A request whose answer is unknown may take effect until the end of the history, or never.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package namestest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"

	"github.com/anishathalye/porcupine"

	"ronbox/httpapi/wire"
	indexapi "ronbox/httpapi/wire/index"
)

// Keys is the number of names of a history. They are few, so that clients contend for them.
const Keys = 3

// Op is an operation on a name.
type Op int

// The operations.
const (
	Put Op = iota
	Get
	Delete
)

// In is a request for a name. Value is the manifest that a Put writes.
type In struct {
	Op    Op
	Key   int
	Value string
}

// Out is its answer: the value that a Get reads, or whether a Delete found a value. Open marks an
// operation that may take effect until the end of the history.
type Out struct {
	Value string
	Found bool
	Open  bool
}

// Draw returns a random request: six of ten are reads. A Put writes value.
func Draw(d *rand.Rand, value string) In {
	in := In{Op: Get, Key: d.IntN(Keys)}
	switch d.IntN(10) {
	case 0, 1, 2:
		in.Op, in.Value = Put, value
	case 3:
		in.Op = Delete
	}
	return in
}

// Ask sends a request for the name called name. That the name does not exist is an answer, and no
// error.
func Ask(ctx context.Context, c indexapi.Client, name string, in In) (out Out, err error) {
	switch in.Op {
	case Put:
		_, err = c.Put(ctx, name, in.Value)
	case Get:
		var r indexapi.Resolved
		r, err = c.Resolve(ctx, name, false)
		out.Value = r.Manifest
	case Delete:
		err = c.Delete(ctx, name)
		out.Found = err == nil
	}
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Status == http.StatusNotFound {
		err = nil
	}
	return out, err
}

// Model returns the model of a history, which checks each name on its own.
func Model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: step,
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			out := make([][]porcupine.Operation, Keys)
			for _, op := range all {
				k := op.Input.(In).Key
				out[k] = append(out[k], op)
			}
			return out
		},
	}
}

// step is the next state of a register that can be empty.
func step(state, input, output any) (bool, any) {
	s, in, out := state.(string), input.(In), output.(Out)
	switch in.Op {
	case Put:
		return true, in.Value
	case Get:
		return out.Value == s, s
	case Delete:
		return out.Open || out.Found == (s != ""), ""
	}
	return false, s
}
