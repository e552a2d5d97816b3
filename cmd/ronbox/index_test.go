package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/anishathalye/porcupine"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/namestest"
	"ronbox/httpapi/client"
	indexapi "ronbox/httpapi/wire/index"
)

// Bounds of the histories of TestNamesAreLinearizable.
const (
	nameClients = 8
	nameOps     = 60 // of one client in one life of the node
	nameLives   = 3
)

// nameHistory records the operations of a test.
type nameHistory struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation // guarded by mu
}

// do performs one operation and records it, unless the operation certainly had no effect. It
// reports whether the node still answers.
func (h *nameHistory) do(ctx context.Context, c indexapi.Client, id int, in namestest.In) bool {
	call := h.clock.Add(1)
	out, err := namestest.Ask(ctx, c, fmt.Sprintf("name:n%d.example", in.Key), in)
	back := h.clock.Add(1)
	if err != nil {
		if in.Op == namestest.Get || errors.Is(err, client.ErrNotReachable) {
			return false
		}
		out.Open, back = true, math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Call: call, Output: out, Return: back})
	return !out.Open
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
					in := namestest.Draw(d, b3.Sum(fmt.Appendf(nil, "%d %d", id, n)).String())
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
	if len(h.ops) < nameClients*nameOps {
		t.Errorf("only %d operations were done", len(h.ops))
	}
	if got := porcupine.CheckOperationsTimeout(namestest.Model(), h.ops, patience); got != porcupine.Ok {
		t.Errorf("%d operations on %d names: %s", len(h.ops), namestest.Keys, got)
	}
}
