package server

import (
	"context"
	"net/http"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/console"
)

// Rates of the console's own routes. A page makes up to a dozen calls of other services, which
// count there too.
const (
	consoleWrites   = 20  // a second
	consoleReads    = 100 // a second
	consoleInflight = 32
)

func consoleService() service {
	return service{
		name:  "console",
		guest: true,
		on:    func(c *config.Config) bool { return c.Console.Enabled },
		build: func(n *Node, c *config.Config) engine { return n.newConsole(c) },
		api:   func(n *Node) httpapi.Service { return engineOf[consoleEngine](n).Service() },
		limits: func(*config.Config) httpapi.Limits {
			return httpapi.Limits{
				RPS: consoleWrites, Burst: consoleWrites, ReadRPS: consoleReads, Inflight: consoleInflight,
			}
		},
	}
}

// newConsole wires the console to the node's own router, which is made after it.
func (n *Node) newConsole(c *config.Config) consoleEngine {
	e, err := console.New(c.Console, console.Deps{
		Catalog:   n.catalog,
		Node:      func() http.Handler { return n.server.Handler() },
		Info:      n.Version,
		URL:       func() string { return n.server.URL() },
		Now:       n.wall,
		Certified: func(host string) bool { return n.server.Certified(host) },
		Note: func(ctx context.Context, event string, by engines.Actor, corrID string, detail map[string]string) {
			n.note(ctx, tokens.AuditEvent(event, by, corrID, detail))
		},
	})
	if err != nil {
		panic("server: the console's own client: " + err.Error())
	}
	return consoleEngine{e}
}

// consoleEngine is the console as the node runs it: it has no tasks and no rows.
type consoleEngine struct{ *console.Console }

func (consoleEngine) Tasks() []flow.Task            { return nil }
func (consoleEngine) Recover(context.Context) error { return nil }
func (consoleEngine) Purge()                        {}
func (consoleEngine) Close(context.Context) error   { return nil }
func (e consoleEngine) Reload(c *config.Config)     { e.Console.Reload(c.Console) }
