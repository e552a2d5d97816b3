package appliance

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Status is the node's view of itself. It reads pointers only.
func (n *Node) Status() wire.Status {
	phase, _ := n.cell.Load()
	r := n.board.Report("", "")
	out := wire.Status{
		Version: n.build.Version, Phase: phase.String(), URL: n.url(), Socket: n.server.SocketPath(),
		UptimeSeconds: int64(n.uptime() / time.Second), Ready: r.Ready, WriteReady: r.WriteReady, ReadReady: r.ReadReady,
		Degraded: r.Degraded, Missing: r.Missing, Causes: r.Causes, Services: map[string]wire.ServiceReady{},
		Head: n.head(), Store: n.storeStatus(),
	}
	for name, s := range r.Services {
		out.Services[name] = wire.ServiceReady(s)
	}
	if info := n.store.Info(); info != nil {
		out.NodeID, out.Incarnation = info.NodeID, info.Incarnation
	}
	return out
}

// head is HEAD as the registry last published it, nil before genesis.
func (n *Node) head() *wire.Head {
	v := n.registry.Head()
	if v.Head.Version == 0 {
		return nil
	}
	return &wire.Head{
		Version: v.Head.Version, PayloadB3: v.Head.PayloadB3.String(), CommittedAt: v.Head.CommittedAt, Hash: v.Head.Hash.String(),
		Epoch: v.Head.Epoch, Expiry: v.Expiry, MinVersion: v.MinVersion, Incarnation: v.Incarnation,
	}
}

func (n *Node) storeStatus() wire.StoreStatus {
	out := wire.StoreStatus{File: n.store.Path(), MaxBytes: n.cfg.Store.MaxBytes.Bytes()}
	info := n.store.Info()
	if info == nil {
		return out
	}
	out.Bytes, out.Seq, out.Restored, out.RestoredFrom = n.store.Bytes(), info.Seq, info.Restored, info.RestoredFrom
	if err := n.store.Health(); err != nil {
		out.Health = err.Error()
	}
	return out
}

// Version says what runs here on which file.
func (n *Node) Version() wire.VersionInfo {
	out := wire.VersionInfo{
		Version: n.build.Version, Commit: n.build.Commit, Go: runtime.Version(), Schema: store.Schema,
		Services: map[string]string{"registry": "on"}, Schemas: map[string]string{"registry": "1.0.0"}, Deprecations: []string{},
	}
	if info := n.store.Info(); info != nil {
		out.NodeID, out.Incarnation, out.Schema = info.NodeID, info.Incarnation, info.Schema
	}
	return out
}

// Drain begins the shutdown and returns at once.
func (n *Node) Drain(by engines.Actor, corrID, reason string) {
	if reason == "" {
		reason = "asked"
	}
	n.drain.askBy(by, corrID, reason)
}

// DBInfo is what the open file says of itself.
func (n *Node) DBInfo(context.Context) (wire.DBInfo, error) {
	info := n.store.Info()
	if info == nil {
		return wire.DBInfo{}, errNotOpen
	}
	return wire.DBInfo{
		File: n.store.Path(), NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema, Seq: info.Seq, Clean: info.Clean,
		Restored: info.Restored, RestoredFrom: info.RestoredFrom, AuthEpoch: info.AuthEpoch, PageSize: store.PageSize,
		Bytes: n.store.Bytes(), MaxBytes: n.cfg.Store.MaxBytes.Bytes(),
	}, nil
}

// Snapshot copies the state of this moment into dir while writes go on, and puts it on the audit chain.
func (n *Node) Snapshot(ctx context.Context, by engines.Actor, corrID, dir string, progress func(done, total int64)) (wire.Snapshot, error) {
	m, err := n.store.Snapshot(ctx, dir, progress)
	if err != nil {
		return wire.Snapshot{}, err
	}
	e := auditEvent("db.snapshot", by, corrID, map[string]string{
		"file": m.Path, "b3": m.B3.String(), "seq": strconv.FormatUint(m.Seq, 10),
	})
	if _, err := store.Commit(ctx, n.store, store.Control, auditNote{e}); err != nil {
		return wire.Snapshot{}, fmt.Errorf("audit snapshot %s: %w", m.Path, err)
	}
	return wire.Snapshot{File: m.Path, Manifest: m.ManifestPath, B3: m.B3.String(), Seq: m.Seq}, nil
}

// AcceptRestore lets a restored node write again. On a node that is not restored it changes nothing.
func (n *Node) AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error {
	if err := n.store.AcceptRestore(ctx, auditEvent("db.accept_restore", by, corrID, nil)); err != nil {
		return fmt.Errorf("accept restore: %w", err)
	}
	n.board.Set(ownService, "accept_restore", nil)
	return nil
}

// Mint makes a token. It is on the audit chain before it is handed out.
func (n *Node) Mint(ctx context.Context, by engines.Actor, corrID string, m wire.MintRequest) (wire.Token, error) {
	var ttl unit.Duration
	if m.TTL != "" {
		var err error
		if ttl, err = unit.ParseDuration(m.TTL); err != nil {
			return wire.Token{}, fmt.Errorf("%w: ttl %q: must be a duration such as 1h or 30d", auth.ErrSpec, m.TTL)
		}
	}
	if m.Sub == "" {
		m.Sub = by.Principal
	}
	return n.mint(ctx, by, corrID, auth.MintSpec{
		Sub: m.Sub, Tenant: m.Tenant, Scopes: m.Scopes, TTL: ttl.D(), Path: m.Path, Methods: m.Methods, Now: n.now(),
	})
}

func (n *Node) mint(ctx context.Context, by engines.Actor, corrID string, spec auth.MintSpec) (wire.Token, error) {
	if spec.TTL == 0 {
		spec.TTL = n.cfg.Auth.DefaultTTL.D()
	}
	token, id, err := n.auth.Mint(spec)
	if err != nil {
		return wire.Token{}, err
	}
	expires := spec.Now.Add(spec.TTL).UTC().Truncate(time.Second)
	e := auditEvent("auth.token_minted", by, corrID, map[string]string{
		"tid": id.TID, "kid": id.Kid, "sub": id.Sub, "scopes": strings.Join(spec.Scopes, ","), "expires_at": expires.Format(time.RFC3339),
	})
	if _, err := store.Commit(ctx, n.store, store.Control, auditNote{e}); err != nil {
		return wire.Token{}, fmt.Errorf("audit token: %w", err)
	}
	return wire.Token{Token: token, TID: id.TID, ExpiresAt: expires}, nil
}
