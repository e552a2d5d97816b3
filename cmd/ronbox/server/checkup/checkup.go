package checkup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/httpapi/front"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Port is the name of the finding about the address of the node.
const Port = "port"

// Of checks the machine for a node with this configuration, of a program whose commit was made at
// that time. If running is set, its port may be in use.
func Of(ctx context.Context, cfg *config.Config, made time.Time, running bool) []host.Finding {
	in := needs(cfg)
	in.Running = running
	found := checkup(ctx, cfg, in)
	if running || in.Amnesia {
		return found
	}
	c := clock.New(clock.Options{Built: made, Config: cfg.Node.Clock()})
	if err := readOffline(ctx, cfg.Path(config.DatabaseName), func(_ store.Reader, info store.Info) error {
		c.Begin(time.Unix(0, max(info.At, info.CreatedAt)))
		return nil
	}); err != nil {
		return found // there is no file, or checkSecret says what it is
	}
	return append(found, Clock(c.Status()))
}

// Within checks the machine for the running node that asks. It writes nothing.
func Within(ctx context.Context, cfg *config.Config) []host.Finding {
	in := needs(cfg)
	in.Running, in.Bind, in.ReadOnly = true, "", true // the node has its port
	return checkup(ctx, cfg, in)
}

func checkup(ctx context.Context, cfg *config.Config, in host.Inputs) []host.Finding {
	if file, err := os.Stat(cfg.Path(config.DatabaseName)); err == nil {
		in.Held = file.Size()
	}
	found := append(host.Doctor(ctx, in), checkServices(cfg))
	found = append(found, checkArchive(cfg)...)
	for i, f := range found {
		if f.Check == Port && f.Level == host.Bad &&
			errors.Is(host.PortFree(ctx, cfg.Server.Bind), syscall.EADDRINUSE) {
			by := process.OccupantOf(ctx, cfg)
			found[i].Seen, found[i].Advice = f.Seen+": "+by.Seen, by.Advice
		}
	}
	if front.Exposed(cfg.Server, cfg.TLS) {
		found = append(found, host.Finding{Check: "plaintext", Level: host.Warn,
			Seen:   cfg.Server.Bind + " is reachable from other hosts without TLS (server.plaintext)",
			Advice: "set tls.enabled with a certificate, or let only a proxy with TLS reach this port"})
	}
	if !in.Amnesia && in.Held > 0 && !in.Running { // one that runs has the file, and has looked at its start
		found = append(found, checkSecret(ctx, cfg))
	}
	if in.Held > 0 {
		found = append(found, checkLogKey(ctx, cfg, in.Running)...)
	}
	return found
}

// Answer returns the findings of a time as the node answers them.
func Answer(at time.Time, found []host.Finding) nodeapi.Checkup {
	states := map[host.Level]string{host.OK: "ok", host.Warn: "warn", host.Bad: "fail"}
	out := nodeapi.Checkup{CheckedAt: at.UTC(), Findings: []nodeapi.NodeFinding{}}
	for _, f := range found {
		out.Findings = append(out.Findings,
			nodeapi.NodeFinding{Check: f.Check, State: states[f.Level], Message: f.Seen, Next: f.Advice})
	}
	return out
}

// checkSecret looks at the node secret of a stopped node, as its start would.
func checkSecret(ctx context.Context, cfg *config.Config) host.Finding {
	f := host.Finding{Check: "node_key", Level: host.OK, Seen: "it is that of the database"}
	secret, err := tokens.ReadSecret(cfg.Path(config.SecretName))
	if err == nil {
		err = readOffline(ctx, cfg.Path(config.DatabaseName), func(r store.Reader, info store.Info) error {
			return tokens.CheckSecret(r, secret, info.AuthEpoch)
		})
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		f.Level, f.Seen, f.Advice = host.Warn, "it is missing", "put it back from its backup: a start without it "+
			"makes a new one, and voids all tokens"
	case errors.Is(err, tokens.ErrSecret), errors.Is(err, tokens.ErrExposed), errors.Is(err, store.ErrSchema):
		f.Level, f.Seen, f.Advice = host.Bad, err.Error(), wiring.OutcomeOf(err).Next
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
	for _, name := range []string{
		config.DatabaseName, config.SecretName, config.TokenName, config.SignerName, config.PolicyKeyName,
	} {
		in.Private = append(in.Private, cfg.Path(name))
	}
	in.Private = append(in.Private, cfg.LogKeyPath())
	usable := host.UsableMemory()
	in.Heap, in.Rows = cfg.HeapBytes(usable), cfg.CacheBytes(usable)
	if in.Amnesia {
		in.MaxBytes = cfg.Amnesia.MaxBytes.Bytes()
	}
	return in
}

// checkServices names the services that run.
func checkServices(cfg *config.Config) host.Finding {
	on, off := config.Chosen(cfg)
	f := host.Finding{Check: "services", Level: host.OK, Seen: "on: " + strings.Join(on, ", ")}
	if on == nil {
		f.Seen = "all are off but the ledger"
	} else if off != nil {
		f.Seen += "; off: " + strings.Join(off, ", ")
	}
	return f
}

// checkLogKey reports a missing log key. The key is not needed if the signer set admits no log key.
// If the node is running, only the key file is checked.
func checkLogKey(ctx context.Context, cfg *config.Config, running bool) []host.Finding {
	path := cfg.LogKeyPath()
	if path == "" || !cfg.Registry.Enabled || cfg.Registry.Follow.URL != "" {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // present, or reported by the check of private files
	}
	needless := false
	if !running {
		// other checks report a file that cannot be read
		_ = readOffline(ctx, cfg.Path(config.DatabaseName), func(r store.Reader, _ store.Info) error {
			set, err := rverify.SignersInForce(tables.NewSource(r))
			needless = err == nil && set != nil && len(set.LogKeys) == 0
			return err
		})
	}
	if needless {
		return nil
	}
	return []host.Finding{
		{
			Check: "log_key",
			Level: host.Bad,
			Seen:  path + " is missing: the registry commits, and signs no checkpoint",
			Advice: "put it back from its backup; if it is lost, have the signers admit another one: " +
				"`ronbox registry log key`, then `registry signers propose --log-key`",
		},
	}
}
