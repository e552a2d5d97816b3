package front

import (
	"context"
	"errors"
)

// Prepare does all of a reload that can fail: it binds new addresses and reads the certificate. Then exactly one of swap
// and undo is to be called; neither waits. After swap new connections meet the new settings, and those in hand are
// finished by the old ones: each is closed with its next answer. One reload runs at a time.
func (f *Front) Prepare(ctx context.Context, cfg Config, tls TLSConfig, uds UDSConfig) (swap, undo func(), err error) {
	all := change{nothing, nothing}
	for _, part := range []func() (change, error){
		func() (change, error) { return f.prepareTLS(tls) },
		func() (change, error) { return f.tcp.prepare(ctx, cfg.settings(tls), access{}) },
		func() (change, error) { return f.prepareSocket(ctx, cfg, uds) },
	} {
		c, err := part()
		if err != nil {
			all.undo()
			return nil, nil, err
		}
		all = all.then(c)
	}
	return func() {
		f.live.Store(newLive(cfg))
		f.tcp.book.set(cfg.limits())
		all.swap()
		f.cfg, f.tls, f.uds = cfg, tls, uds
	}, all.undo, nil
}

// prepareTLS reads the certificate, also when only its content may have changed.
func (f *Front) prepareTLS(tls TLSConfig) (change, error) {
	if !tls.Enabled {
		return change{nothing, nothing}, nil // the old generation goes on with what it has
	}
	p, err := readPair(tls)
	if err != nil {
		return change{}, err
	}
	return change{func() { f.certs.put(p) }, nothing}, nil
}

var errSocket = errors.New("uds.path: the admin socket can be moved, but neither taken away nor added, while the node runs")

func (f *Front) prepareSocket(ctx context.Context, cfg Config, uds UDSConfig) (change, error) {
	if (f.admin == nil) != (uds.Path == "") {
		return change{}, errSocket
	}
	if f.admin == nil {
		return change{nothing, nothing}, nil
	}
	moved, err := f.admin.prepare(ctx, cfg.socketSettings(uds), uds.access())
	if err != nil {
		return change{}, err
	}
	opened, err := f.admin.prepareAccess(uds.Path, uds.access())
	if err != nil {
		moved.undo()
		return change{}, err
	}
	f.warnReach(uds)
	return moved.then(opened), nil
}
