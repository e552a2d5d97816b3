package wiring

import (
	"context"
	"net/http"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/manual"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/console"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
)

// Rates of the console's own routes. A page makes up to a dozen calls of other services, which
// count there too.
const (
	consoleWrites   = 20  // a second
	consoleReads    = 100 // a second
	consoleInflight = 32
)

func consoleService() Service {
	return Service{
		Name:  "console",
		Guest: true,
		on:    func(c *config.Config) bool { return c.Console.Enabled },
		build: func(n *Set, c *config.Config) Engine { return n.newConsole(c) },
		API:   func(n *Set) httpapi.Service { return engineOf[consoleEngine](n).Service() },
		Limits: func(*config.Config) httpapi.Limits {
			return httpapi.Limits{
				RPS: consoleWrites, Burst: consoleWrites, ReadRPS: consoleReads, Inflight: consoleInflight,
			}
		},
	}
}

// newConsole wires the console to the node's own router, which is made after it.
func (n *Set) newConsole(c *config.Config) consoleEngine {
	e, err := console.New(c.Console, console.Deps{
		Catalog:   n.Catalog,
		Node:      func() http.Handler { return n.front.Handler() },
		Info:      n.Version,
		URL:       func() string { return n.front.URL() },
		Now:       n.Wall,
		Manual:    manual.FS,
		Certified: func(host string) bool { return n.front.Certified(host) },
		Note: func(ctx context.Context, event string, by engines.Actor, corrID string, detail map[string]string) {
			n.Note(ctx, tokens.AuditEvent(event, by, corrID, detail))
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

// console returns the console. It returns a *ConflictError if the console is off.
func (n *Set) console() (consoleEngine, error) {
	e := engineOf[consoleEngine](n)
	if e.Console == nil {
		return e, &nodehttp.ConflictError{Reason: "the console is off: set console.enabled and restart the node"}
	}
	return e, nil
}

// Sessions returns the open sessions of the console, oldest first.
func (n *Set) Sessions() (nodeapi.SessionList, error) {
	e, err := n.console()
	if err != nil {
		return nodeapi.SessionList{}, err
	}
	return nodeapi.SessionList{Sessions: e.Sessions()}, nil
}

// EndSession ends a session of the console. It returns ErrNoSuch if there is no such session.
func (n *Set) EndSession(ctx context.Context, by engines.Actor, corrID, id string) error {
	e, err := n.console()
	if err != nil {
		return err
	}
	if !e.EndSession(id) {
		return httpapi.ErrNoSuch
	}
	n.Note(context.WithoutCancel(ctx), tokens.AuditEvent("console.ended", by, corrID, map[string]string{"session": id}))
	return nil
}

// Asked returns the number of requests that pages of the console have made of the node.
func (n *Set) Asked() float64 {
	if pages := engineOf[consoleEngine](n); pages.Console != nil {
		return float64(pages.Asked())
	}
	return 0
}
