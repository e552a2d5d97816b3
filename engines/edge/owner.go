package edge

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tables"
)

// owner is the engine, as far as its parts need it.
type owner struct{ e *Engine }

func (o owner) Event(v asset.Event) { o.e.events.Publish(v) }

func (o owner) Damaged(kind, what string) { o.e.damaged(kind, what) }

func (o owner) Fault(err error) { o.e.d.Board.Set(service, keyStore, err) }

func (o owner) Draining() bool { return o.e.draining() }

func (o owner) Amnesia() bool { return o.e.d.Amnesia }

func (o owner) Shed() bool { return o.e.fills.Shed() }

func (o owner) Competing() bool { return len(o.e.Config().Allow)+o.e.near.Len() > 1 }

func (o owner) Received(node string, d b3.Digest, size int64, placed bool) {
	o.e.meter.Received(node, d, size, placed)
}

func (o owner) Allows(host string) bool { return o.e.origins.Load().Names(host) }

func (o owner) Ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	return o.e.get(ctx, host, r, take)
}

func (o owner) Rehash(ctx context.Context, each func(pack.Info, error)) error {
	return o.e.rehash(ctx, each)
}

// Refetch fetches a URL, or an object without one from the fleet, after it was set aside.
func (o owner) Refetch(ctx context.Context, row tables.Stored) error {
	if row.URL == row.Digest.String() {
		return o.e.near.Fetch(ctx, row.Digest, near.Hint{Placed: true})
	}
	t, path, err := asset.ParseURL(row.URL)
	if err == nil {
		_, err = o.e.fills.Get(ctx, t, path, fill.LongTry)
	}
	return err
}

// draining reports whether the node is shutting down, so that no work may begin.
func (e *Engine) draining() bool {
	phase, _ := e.d.Lifecycle.Load()
	return phase >= flow.Draining
}
