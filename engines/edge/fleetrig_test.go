package edge_test

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet"
)

// inFleet lets a rig be a node of a fleet, over plain HTTP on this host.
func inFleet(more ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.cfg.Ingress.TimeoutSecs = 30 // for a busy machine
		r.fleet = &edge.FleetConfig{}
		for _, f := range more {
			f(r)
		}
	}
}

// plainRule is the rule of a node whose own endpoint is plain HTTP.
func plainRule(*fleet.View) upstream.NodeRule { return upstream.NodeRule{Plain: true} }

// setFleet makes v the view of the node. Like the node, it sets the pool of lines first.
func (r *rig) setFleet(v *fleet.View) { r.e.SetFleet(r.pool.Set(v)) }

// fetch fetches an object and returns its bytes.
func (r *rig) fetch(d b3.Digest, h near.Hint) (string, error) {
	if err := r.e.Fetch(context.Background(), d, h); err != nil {
		return "", err
	}
	body, _, err := r.read(asset.PathOf(d))
	return body, err
}

// stores installs an object under a pseudo URL, as a put does.
func (r *rig) stores(body string) b3.Digest {
	r.t.Helper()
	temp, err := r.e.Content().Dir().Create()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := temp.Write([]byte(body)); err != nil {
		r.t.Fatal(err)
	}
	d, size := temp.Sum()
	if err := temp.Seal(); err != nil {
		r.t.Fatal(err)
	}
	row := tables.RowOf(d, size, "text/plain")
	if _, err := r.e.Content().Install(context.Background(), row, temp); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// barrier waits until the writer has finished what was sent before.
func (r *rig) barrier() error {
	_, err := r.e.KeepKeys(context.Background(), asset.Unpin, []string{"none"})
	return err
}

// written waits until the writer has counted what it has committed.
func (r *rig) written() {
	r.t.Helper()
	if err := r.barrier(); err != nil {
		r.t.Fatal(err)
	}
}
