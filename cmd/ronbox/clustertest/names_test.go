package clustertest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/namestest"
)

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
		in := namestest.Draw(d, b3.Sum(fmt.Appendf(nil, "%d %d %d", l.round, id, n)).String())
		l.do(ctx, h, id, in, d)
		shortPause(ctx, d, pause)
	}
}

func (l *names) do(ctx context.Context, h *history, id int, in namestest.In, d *rand.Rand) {
	key, call := fmt.Sprintf("name:r%d-%d.example", l.round, in.Key), h.now()
	out, v, err := l.svc.name(ctx, d.IntN(l.svc.places()), key, in)
	back := h.now()
	switch {
	case v == fault:
		l.fault("%s: %w", key, err)
		return
	case v == nothing, v == unclear && in.Op == namestest.Get:
		return
	case v == unclear:
		out.Open, back = true, math.MaxInt64
	}
	h.add(id, in, call, out, back)
}
