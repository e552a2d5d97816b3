package index_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"ronbox/appliance/b3"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// nameOp is an operation on a key: a put of a manifest, a deletion, or a read.
type nameOp struct {
	key, do  string
	manifest b3.Digest
}

// nameResult is the result of a nameOp.
type nameResult struct {
	manifest b3.Digest // of a read; zero: not found
	found    bool      // of a deletion
}

// namesModel is a key at a time: a cell that a manifest is put in, and taken out of.
var namesModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			k := op.Input.(nameOp).key
			by[k] = append(by[k], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return b3.Digest{} },
	Step: func(state, input, output any) (bool, any) {
		has, in, out := state.(b3.Digest), input.(nameOp), output.(nameResult)
		switch in.do {
		case "put":
			return true, in.manifest
		case "delete":
			return out.found == !has.IsZero(), b3.Digest{}
		}
		return out.manifest == has, has
	},
}

// Eight clients put, read and delete names, with the cache, all kinds of answers, and reopenings of
// the file. The history is linearizable.
func TestNamesAreLinearizable(t *testing.T) {
	rounds, opsEach := 6, 150
	if testing.Short() {
		rounds = 2
	}
	four := setting(func(c *index.Config) { c.Resolver.Workers, c.DHT.DeadlineMS = 4, 5000 })
	r := newRig(t, all(onDisk(t), four)).start()
	var clock atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	for round := range rounds {
		r.e.Reload(func() index.Config { c := r.cfg; c.InlineHits = round%2 == 0; return c }())
		var group sync.WaitGroup
		for client := range 8 {
			draw := rand.New(rand.NewPCG(uint64(round), uint64(client)))
			group.Go(func() {
				for i := range opsEach {
					in := nameOp{key: fmt.Sprintf("name:k%d.example", draw.IntN(4)), do: "read"}
					switch draw.IntN(10) {
					case 0, 1:
						in.do, in.manifest = "put", digest("%d %d %d", round, client, i)
					case 2:
						in.do = "delete"
					}
					call := clock.Add(1)
					out, counts := r.linear(in, draw.IntN(8) == 0)
					if back := clock.Add(1); counts {
						mu.Lock()
						history = append(
							history,
							porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: back},
						)
						mu.Unlock()
					}
				}
			})
		}
		group.Wait()
		if round%2 == 1 {
			r.stop()
			r.open()
			r.start()
		}
	}
	if result := porcupine.CheckOperationsTimeout(namesModel, history, time.Minute); result != porcupine.Ok {
		t.Errorf("%d operations: %s", len(history), result)
	}
	if len(history) < rounds*8*opsEach*9/10 {
		t.Errorf("only %d operations count", len(history))
	}
}

// linear runs one operation. counts is false if its outcome is unknown.
func (r *rig) linear(in nameOp, fresh bool) (out nameResult, counts bool) {
	var err error
	switch in.do {
	case "put":
		_, _, err = r.e.PutName(r.ctx(), alice, key(in.key), in.manifest, "c")
	case "delete":
		err = r.e.DeleteName(r.ctx(), alice, key(in.key), "c")
		out.found = err == nil
	default:
		var a name.Answer
		a, err = r.e.Resolve(r.ctx(), key(in.key), name.ResolveOptions{Fresh: fresh})
		out.manifest = a.Manifest
	}
	if err != nil && !errors.Is(err, name.ErrNotFound) {
		r.t.Errorf("%+v: %v", in, err)
	}
	return out, err == nil || errors.Is(err, name.ErrNotFound)
}
