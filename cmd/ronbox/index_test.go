package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anishathalye/porcupine"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/httpapi/client"
	indexapi "ronbox/httpapi/index"
	"ronbox/httpapi/wire"
)

// Bounds of the histories of TestNamesAreLinearizable. The names are few, so that clients contend
// for them.
const (
	nameClients = 8
	nameKeys    = 3
	nameOps     = 60 // of one client in one life of the node
	nameLives   = 3
)

type nameOp int

const (
	opPut nameOp = iota
	opGet
	opDelete
)

// nameIn is one operation on a name. value is the manifest that a put writes.
type nameIn struct {
	op    nameOp
	key   int
	value string
}

// nameOut is the outcome of an operation: value is the value read, found reports whether a removal
// found a value, and open is set if the outcome is unknown.
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

// nameHistory records the operations of a test.
type nameHistory struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation // guarded by mu
}

// do performs one operation and records it, unless the operation certainly had no effect. It
// reports whether the node still answers.
func (h *nameHistory) do(ctx context.Context, c indexapi.Client, id int, in nameIn) bool {
	key, call := fmt.Sprintf("name:n%d.example", in.key), h.clock.Add(1)
	var out nameOut
	var err error
	switch in.op {
	case opPut:
		_, err = c.Put(ctx, key, in.value)
	case opGet:
		var r indexapi.Resolved
		r, err = c.Resolve(ctx, key, false)
		out.value = r.Manifest
	case opDelete:
		err = c.Delete(ctx, key)
		out.found = err == nil
	}
	back := h.clock.Add(1)
	if p, ok := errors.AsType[*wire.Problem](err); ok && p.Status == http.StatusNotFound {
		err = nil
	}
	if err != nil {
		if in.op == opGet || errors.Is(err, client.ErrNotReachable) {
			return false
		}
		out.open, back = true, math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: back})
	return !out.open
}

// Operations on names are linearizable, although reads use the cache and kills interrupt writes:
// after a write is answered, no read returns an older value.
func TestNamesAreLinearizable(t *testing.T) {
	t.Parallel()
	skipRaceOnly(t)
	b := newBox(t)
	h := &nameHistory{}
	d := rand.New(rand.NewPCG(hosttest.Seed(t, "INDEX_SEED"), 0))
	for life := range nameLives {
		p := b.start(t)
		seeds := d.Uint64()
		var clients sync.WaitGroup
		for i := range nameClients {
			c := indexapi.NewClient(b.client(t).Client)
			id := life*nameClients + i // an interrupted client gets a new id in the next life
			clients.Go(func() {
				d := rand.New(rand.NewPCG(seeds, uint64(i)))
				for n := range nameOps {
					in := nameIn{op: opGet, key: d.IntN(nameKeys)}
					switch d.IntN(10) {
					case 0, 1, 2:
						in.op, in.value = opPut, b3.Sum(fmt.Appendf(nil, "%d %d", id, n)).String()
					case 3:
						in.op = opDelete
					}
					if !h.do(t.Context(), c, id, in) {
						return
					}
					if life < nameLives-1 && i == 0 && n == nameOps/2 {
						_ = p.cmd.Process.Signal(syscall.SIGKILL)
					}
				}
			})
		}
		clients.Wait()
		_ = p.cmd.Process.Signal(syscall.SIGKILL)
		p.await(t, "kill -9")
	}
	model := porcupine.Model{
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
	if len(h.ops) < nameClients*nameOps {
		t.Errorf("only %d operations were done", len(h.ops))
	}
	if got := porcupine.CheckOperationsTimeout(model, h.ops, patience); got != porcupine.Ok {
		t.Errorf("%d operations on %d names: %s", len(h.ops), nameKeys, got)
	}
}
