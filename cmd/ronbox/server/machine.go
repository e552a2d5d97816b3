package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/httpapi/front"
	"ronbox/store"
)

// noSwap is the value of host for a control group that forbids swap.
const noSwap = -1

// errSwap is returned when memory could be written to a disk.
var errSwap = errors.New("memory may be swapped out to a disk")

// describeAmnesia registers the metrics of amnesia mode.
func (n *Node) describeAmnesia() {
	on := map[bool]float64{true: 1}
	n.metrics.Set("amnesia_mode", ownService, "status", "on")(on[n.boot.Amnesia.Enabled])
	n.metrics.Set("amnesia_mode", ownService, "status", "off")(on[!n.boot.Amnesia.Enabled])
	for _, s := range services() {
		if s.cache != "" {
			n.metrics.Counter("amnesia_purge_total", ownService, "kind", s.cache)
		}
	}
}

// forgetful ensures, in amnesia mode, that no memory of the process can reach a disk. It must run
// before the process holds data.
func (n *Node) forgetful() error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	if err := host.NoDump(); err != nil {
		return fmt.Errorf("core dumps: %w", err)
	}
	return unswappable(n.boot.Amnesia.AllowSwap, host.ReadSwap, host.ReadLimits, host.LockMemory)
}

// unswappable returns nil if there is no swap, the control group forbids it, memory can be locked,
// or swapping is allowed.
func unswappable(
	allowed bool, areas func() ([]host.SwapArea, error), limits func() (host.Limits, error), lock func() error,
) error {
	if allowed {
		return nil
	}
	swaps, err := areas()
	if err == nil && !slices.ContainsFunc(swaps, func(a host.SwapArea) bool { return !a.Compressed() }) {
		return nil
	}
	if l, err := limits(); err == nil && l.Group.Swap == noSwap {
		return nil
	}
	if locked := lock(); locked != nil {
		return fmt.Errorf("%w: %w", errSwap, errors.Join(err, locked))
	}
	return nil
}

// onDisk returns ErrAmnesia in amnesia mode for an action that would write to a disk, and shows the
// attempt in the probe table.
func (n *Node) onDisk(what string) error {
	if !n.boot.Amnesia.Enabled {
		return nil
	}
	err := fmt.Errorf("%s: %w", what, store.ErrAmnesia)
	n.board.Set(ownService, keyAmnesia, err)
	return err
}

// CheckPort is the name of the finding about the address of the node.
const CheckPort = "port"

// Checkup checks the machine for a node with this configuration. If running is set, its port may be
// in use.
func Checkup(ctx context.Context, cfg *config.Config, running bool) []host.Finding {
	in := needs(cfg)
	in.Running = running
	if file, err := os.Stat(cfg.Path(DatabaseName)); err == nil {
		in.Held = file.Size()
	}
	found := host.Doctor(ctx, in)
	for i, f := range found {
		if f.Check == CheckPort && f.Level == host.Bad &&
			errors.Is(host.PortFree(ctx, cfg.Server.Bind), syscall.EADDRINUSE) {
			by := occupantOf(ctx, cfg)
			found[i].Seen, found[i].Advice = f.Seen+": "+by.seen, by.advice
		}
	}
	if front.Exposed(cfg.Server, cfg.TLS) {
		found = append(found, host.Finding{Check: "plaintext", Level: host.Warn,
			Seen:   cfg.Server.Bind + " is reachable from other hosts without TLS (server.plaintext)",
			Advice: "set tls.enabled with a certificate, or let only a proxy with TLS reach this port"})
	}
	if !in.Amnesia && in.Held > 0 && !running { // one that runs has the file, and has looked at its start
		found = append(found, checkSecret(ctx, cfg))
	}
	if in.Held > 0 {
		found = append(found, checkLogKey(ctx, cfg, running)...)
	}
	return found
}

// checkSecret looks at the node secret of a stopped node, as its start would.
func checkSecret(ctx context.Context, cfg *config.Config) host.Finding {
	f := host.Finding{Check: "node_key", Level: host.OK, Seen: "it is that of the database"}
	secret, err := tokens.ReadSecret(cfg.Path(SecretName))
	if err == nil {
		err = readOffline(ctx, cfg.Path(DatabaseName), func(r store.Reader, info store.Info) error {
			return tokens.CheckSecret(r, secret, info.AuthEpoch)
		})
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		f.Level, f.Seen, f.Advice = host.Warn, "it is missing", "put it back from its backup: a start without it "+
			"makes a new one, and voids all tokens"
	case errors.Is(err, tokens.ErrSecret), errors.Is(err, tokens.ErrExposed), errors.Is(err, store.ErrSchema):
		f.Level, f.Seen, f.Advice = host.Bad, err.Error(), classify(err).next
	default:
		f.Level, f.Seen, f.Advice = host.Warn, "cannot be told: "+err.Error(), "run doctor as the user of the node; "+
			"`ronbox db check` looks at the file"
	}
	return f
}

func readOffline(ctx context.Context, path string, read func(store.Reader, store.Info) error) error {
	file, err := store.OpenReader(path)
	if err != nil {
		return err
	}
	err = file.View(ctx, func(r store.Reader) error { return read(r, file.Info()) })
	return errors.Join(err, file.Close())
}

// needs are the demands of a node of this configuration on the machine.
func needs(cfg *config.Config) host.Inputs {
	in := host.Inputs{
		DataDir: cfg.Node.DataDir, Bind: cfg.Server.Bind, MaxBytes: cfg.Store.MaxBytes.Bytes(),
		MinFree: cfg.Store.MinFree.Bytes(), MaxConns: cfg.Server.MaxConns, Amnesia: cfg.Amnesia.Enabled,
		AllowSwap: cfg.Amnesia.AllowSwap, AllowNetwork: cfg.Store.AllowNetwork,
	}
	for _, name := range []string{DatabaseName, SecretName, TokenName, SignerName, PolicyKeyName} {
		in.Private = append(in.Private, cfg.Path(name))
	}
	in.Private = append(in.Private, registryFile(cfg, cfg.Registry.Checkpoint.LogKeyPath, LogKeyName))
	if in.Amnesia {
		in.MaxBytes = cfg.Amnesia.MaxBytes.Bytes()
	}
	return in
}

// limits raises the limits of the process, and warns of everything the machine lacks.
func (n *Node) limits() {
	l, err := host.ReadLimits()
	if err != nil {
		n.log.Warn("limits are not known", "reason", err.Error())
	}
	files, memory, err := host.Raise(l)
	if err != nil {
		n.log.Warn("limits were not raised", "reason", err.Error())
	}
	n.log.Debug("limits", "files", files, "memory_limit", memory, "cores", l.Cores)
	for _, f := range host.BootChecks(needs(n.boot)) {
		if f.Level != host.OK {
			n.log.Warn("host", "check", f.Check, "seen", f.Seen, "next", f.Advice)
		}
	}
}
