package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"ronbox/appliance/peer"
)

// RejoinWipe obtains a new id for a stopped node, removes its file and its log, and prepares it as
// Join does: the next boot fetches the file of the leader. It repairs a node whose log or file
// cannot be used. A member that the node knows issues the new certificate and removes the old id;
// if the old id was removed, or the cluster was recovered elsewhere, o names a URL and a token.
// Nothing is removed before the new identity and the bundle are there: until then the node may be
// served as it is. RejoinWipe needs the network, blocks until ctx ends, and may be repeated: after
// it has succeeded, it returns the same identity, with the address in o, until the node is served
// or the cluster has forgotten it.
func (d *Dir) RejoinWipe(ctx context.Context, o JoinOptions) (*peer.Identity, error) {
	unlock, err := d.lock()
	if err != nil {
		return nil, fmt.Errorf("rejoin: %w", err)
	}
	defer unlock()
	id, err := d.rejoinWipe(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("rejoin: %w", err)
	}
	return id, nil
}

// rejoinBegun is the content of the mark of a rejoin.
type rejoinBegun struct {
	Known     []string `json:"known"` // addresses of members
	Advertise string   `json:"advertise"`
	Wipes     bool     `json:"wipes,omitempty"` // things may have been removed
}

func (d *Dir) rejoinWipe(ctx context.Context, o JoinOptions) (*peer.Identity, error) {
	if err := errors.Join(d.idle(rejoinMark, joinMark), d.unlocked()); err != nil {
		return nil, err
	}
	begun, err := readMark[rejoinBegun](d, rejoinMark)
	if err != nil {
		return nil, err
	}
	if begun == nil {
		if id, err := d.waits(ctx, o); id != nil || err != nil {
			return id, err
		}
		if begun, err = d.beginRejoin(o.Advertise); err != nil {
			return nil, err
		}
	}
	begun.Advertise = cmp.Or(o.Advertise, begun.Advertise) // the first address may have been refused
	o.Advertise = begun.Advertise
	a := applicant{d: d, o: o, dir: d.file(freshDir), known: append(o.Peers, begun.Known...)}
	fresh, b, err := a.apply(ctx)
	if err == nil {
		fresh, err = fresh.WithAdvertise(o.Advertise)
	}
	if err != nil {
		return nil, err
	}
	begun.Wipes = true
	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"wipe", func() error { return d.writeMark(rejoinMark, begun) }},
		{"secrets", func() error { return d.writeSecrets(b, o.LogKey) }},
		{"file", func() error { return removeAll(d.Database(), d.InstallFile(), d.fetchFile()) }},
		{"log", func() error { return removeAll(d.file(raftDir)) }},
		{"swap", func() error { return fresh.Save(d.file(clusterDir)) }},
		{"ready", func() error { return d.ready(b) }},
		{"done", func() error { return d.removeMark(rejoinMark) }},
		{"leftovers", func() error { return removeAll(d.file(freshDir)) }},
	} {
		if err := d.do(step.name, step.change); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// waits returns the identity of a node that a rejoin or a join has prepared, that was not served,
// and that the cluster still expects, with the address in o. It returns nil for other nodes.
func (d *Dir) waits(ctx context.Context, o JoinOptions) (*peer.Identity, error) {
	joining, err := readMark[Joining](d, joinMark)
	if err != nil || joining == nil || !joining.Ready {
		return nil, err
	}
	for _, path := range []string{d.Database(), d.InstallFile(), d.file(raftDir)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, err // the node was served
		}
	}
	a := applicant{d: d, o: o}
	id, err := d.valid(a.now())
	if err != nil {
		return nil, err
	}
	if o.URL == "" {
		a.known = append(o.Peers, joining.Members...)
	}
	_, err = a.askBundle(ctx, id)
	switch {
	case errors.Is(err, ErrToken) || errors.Is(err, peer.ErrStranger):
		return nil, nil // forgotten, or o names another cluster
	case err != nil:
		return nil, err
	case o.Advertise == "" || o.Advertise == id.Advertise():
		return id, nil
	}
	if id, err = id.WithAdvertise(o.Advertise); err != nil {
		return nil, err
	}
	return id, d.do("address", func() error { return id.Save(d.file(clusterDir)) })
}

// beginRejoin writes the mark, with the addresses of members in the file, in the log and of
// SavePeers.
func (d *Dir) beginRejoin(advertise string) (*rejoinBegun, error) {
	old, err := d.Identity()
	switch {
	case err == nil && advertise == "":
		advertise = old.Advertise()
	case advertise == "":
		return nil, fmt.Errorf("%w; name the address of the peer port", err)
	}
	if err := peer.CheckAddress(advertise); err != nil {
		return nil, err
	}
	begun := &rejoinBegun{Known: d.savedPeers(), Advertise: advertise}
	self := ""
	if old != nil {
		self = old.ServerID()
	}
	// file and log may be damaged: each counts only if it can be read
	if servers, _, err := d.fileConfiguration(); err == nil {
		begun.Known = append(addresses(servers, self), begun.Known...)
	}
	if servers, err := logConfiguration(d.file(raftDir), 0); err == nil {
		begun.Known = append(addresses(servers, self), begun.Known...)
	}
	slices.Sort(begun.Known)
	begun.Known = slices.Compact(begun.Known)
	if err := d.do("leftovers", func() error { return removeAll(d.file(freshDir)) }); err != nil {
		return nil, err
	}
	return begun, d.do("mark", func() error { return d.writeMark(rejoinMark, begun) })
}
