package appliance

import (
	"runtime"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Status is the node's view of itself. It reads pointers only.
func (n *Node) Status() wire.Status {
	phase, _ := n.cell.Load()
	r := n.board.Report("", "")
	out := wire.Status{
		Version: n.build.Version, Phase: phase.String(), URL: n.server.URL(), Socket: n.server.SocketPath(),
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

// head is HEAD as the registry last published it, nil before genesis and without a registry.
func (n *Node) head() *wire.Head {
	if n.registry == nil {
		return nil
	}
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
	out := wire.StoreStatus{File: n.store.Path(), MaxBytes: n.maxBytes()}
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

// maxBytes is what the file may grow to.
func (n *Node) maxBytes() int64 {
	if n.boot.Amnesia.Enabled {
		return n.boot.Amnesia.MaxBytes.Bytes()
	}
	return n.boot.Store.MaxBytes.Bytes()
}

// registrySchema is the form of what the registry says and takes.
const registrySchema = record.SchemaVersion

// Version says what runs here on which file.
func (n *Node) Version() wire.VersionInfo {
	out := wire.VersionInfo{
		Version: n.build.Version, Commit: n.build.Commit, Go: runtime.Version(), Schema: store.Schema,
		Services: map[string]string{serviceRegistry: onOff(n.registry != nil), serviceWallet: onOff(n.wallet != nil), serviceLedger: onOff(true)},
		Schemas:  map[string]string{"registry": registrySchema}, Formats: map[string]uint64{serviceLedger: tables.Format}, Deprecations: []string{},
	}
	if info := n.store.Info(); info != nil {
		out.NodeID, out.Incarnation, out.Schema = info.NodeID, info.Incarnation, info.Schema
	}
	return out
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// Drain begins the shutdown and returns at once.
func (n *Node) Drain(by engines.Actor, corrID, reason string) {
	if reason == "" {
		reason = "asked"
	}
	n.drain.askBy(by, corrID, reason)
}
