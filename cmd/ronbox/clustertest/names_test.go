package clustertest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/anishathalye/porcupine"

	"ronbox/appliance/b3"
)

// nameKeys is the number of names of a round, few so that clients contend for them.
const nameKeys = 3

type nameOp int

const (
	opPut nameOp = iota
	opGet
	opDelete
)

// nameIn is an operation on a name. value is the manifest that a put writes.
type nameIn struct {
	op    nameOp
	key   int
	value string
}

// nameOut is its answer: the value that a get reads, or whether a removal found a value. open marks
// an operation that may take effect until the end of the history.
type nameOut struct {
	value string
	found bool
	open  bool
}

// nameStep is the model of a register that can be empty.
func nameStep(state, input, output any) (bool, any) {
	s, in, out := state.(string), input.(nameIn), output.(nameOut)
	switch in.op {
	case opPut:
		return true, in.value
	case opGet:
		return out.value == s, s
	case opDelete:
		return out.open || out.found == (s != ""), ""
	}
	return false, s
}

// nameModel checks each name on its own.
func nameModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" }, Step: nameStep,
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			out := make([][]porcupine.Operation, nameKeys)
			for _, op := range all {
				k := op.Input.(nameIn).key
				out[k] = append(out[k], op)
			}
			return out
		},
	}
}

// names is the load of one round on the index. Each round has names of its own, so that a late
// write of a round does not disturb the next one.
type names struct {
	loud
	svc   service
	round int
}

// run is one client. A write with an unknown outcome stays open, because the client goes on with
// another one.
func (l *names) run(ctx context.Context, h *history, id int, d *rand.Rand, pause time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		in := nameIn{op: opGet, key: d.IntN(nameKeys)}
		switch d.IntN(10) {
		case 0, 1, 2:
			in.op, in.value = opPut, b3.Sum(fmt.Appendf(nil, "%d %d %d", l.round, id, n)).String()
		case 3:
			in.op = opDelete
		}
		l.do(ctx, h, id, in, d)
		shortPause(ctx, d, pause)
	}
}

func (l *names) do(ctx context.Context, h *history, id int, in nameIn, d *rand.Rand) {
	key, call := fmt.Sprintf("name:r%d-%d.example", l.round, in.key), h.now()
	out, v, err := l.svc.name(ctx, d.IntN(l.svc.places()), key, in)
	back := h.now()
	switch {
	case v == fault:
		l.fault("%s: %w", key, err)
		return
	case v == nothing, v == unclear && in.op == opGet:
		return
	case v == unclear:
		out.open, back = true, math.MaxInt64
	}
	h.add(id, in, call, out, back)
}
