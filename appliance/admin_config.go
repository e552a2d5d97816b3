package appliance

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/config"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Config shows every key in force, and where its value comes from.
func (n *Node) Config(context.Context) (wire.ConfigShow, error) {
	now, _ := n.config.Load()
	out := wire.ConfigShow{Version: now.version, Keys: make([]wire.ConfigKey, 0, len(now.entries))}
	for _, e := range now.entries {
		out.Keys = append(out.Keys, wire.ConfigKey(e))
	}
	return out, nil
}

// sourceFile is the file that a configuration was read from, "" for none.
func sourceFile(entries []config.Entry) string {
	for _, e := range entries {
		if e.Source != config.FromFile {
			continue
		}
		where := e.Where // file:line:column
		for range 2 {
			if i := strings.LastIndexByte(where, ':'); i >= 0 {
				where = where[:i]
			}
		}
		return where
	}
	return ""
}

// LogLevel is the level of the log lines of services without one of their own.
func (n *Node) LogLevel() wire.LogLevel { return wire.LogLevel{Level: n.levels.Level("")} }

// SetLogLevel holds until the next reload or restart: for one service, or for all.
func (n *Node) SetLogLevel(ctx context.Context, by engines.Actor, corrID string, l wire.LogLevel) (wire.LogLevel, error) {
	if l.Service != "" && !n.knowsService(l.Service) {
		return wire.LogLevel{}, &httpapi.BodyError{Field: "service", Reason: "is no service of this node"}
	}
	if hclog.LevelFromString(l.Level) == hclog.NoLevel {
		return wire.LogLevel{}, &httpapi.BodyError{Field: "level", Reason: "must be trace, debug, info, warn, error or off"}
	}
	if err := n.levels.SetLevel(l.Level, l.Service); err != nil {
		return wire.LogLevel{}, err
	}
	n.note(context.WithoutCancel(ctx), auditEvent("log.level_set", by, corrID, map[string]string{"level": l.Level, "service": l.Service}))
	return l, nil
}

// noteWithin bounds an audit row of what is in force without it: a stuck disk must not keep an operator from looking.
const noteWithin = 2 * time.Second

// note puts what was done outside the file on the audit chain. A store that cannot take it does not undo it.
func (n *Node) note(ctx context.Context, e store.Event) {
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if _, err := store.Commit(ctx, n.store, store.Control, auditNote{e}); err != nil {
		n.log.Warn("not on the audit chain", "what", e.Event, "reason", err.Error())
	}
}

// knowsService tells whether anything of that name runs here.
func (n *Node) knowsService(service string) bool {
	for _, t := range n.catalog.Tasks() {
		if t.Service == service {
			return true
		}
	}
	return false
}
