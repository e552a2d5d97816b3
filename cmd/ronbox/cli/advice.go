package cli

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"ronbox/appliance/unit"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	nodeapi "ronbox/httpapi/wire/node"
)

// advise returns v with advice that depends on the command line.
func (a *App) advise(err error, v Outcome) Outcome {
	p, refused := errors.AsType[*wire.Problem](err)
	by := a.stopping.Load()
	switch {
	case refused && p.Status == http.StatusUnauthorized && a.Flags.TokenFile != "":
		v.Next = fmt.Sprintf("`ronbox token inspect %s` shows whose token it is and when it expires; "+
			"`ronbox token verify` at the node shows why it is refused.", unit.Shell(a.Flags.TokenFile))
	case v.Code != ExitUnreachable || v.Reason != notReachable || a.URLs() != nil: // of a node
	case by != nil:
		v.Next = fmt.Sprintf("the node is stopping (process %d): once it has ended, start it with `ronbox serve`",
			by.PID)
	case a.Flags.Socket == "":
		if socket, err := a.socketPath(); err == nil && !Exists(filepath.Dir(socket)) {
			v.Next = fmt.Sprintf("there is no folder %s: correct --data-dir, or make a node there with `ronbox init`",
				filepath.Dir(socket))
		}
	}
	return v
}

// hiddenError is the refusal of a verb of the operator over TCP, where its routes are hidden.
type hiddenError struct {
	*wire.Problem
	urls []string
}

func (e *hiddenError) Error() string {
	return fmt.Sprintf("%s does not offer this verb: it is for the operator of the node", strings.Join(e.urls, ", "))
}

func (e *hiddenError) Unwrap() error { return e.Problem }

// hidden returns err, or a *hiddenError if a client of the operator's routes met no route over TCP.
func (a *App) hidden(asked any, err error) error {
	switch asked.(type) {
	case nodeapi.Client, clusterapi.Client:
	default:
		return err
	}
	p, refused := errors.AsType[*wire.Problem](err)
	if !refused || p.Details["cause"] != causeNoRoute || a.URLs() == nil {
		return err
	}
	return &Failure{
		Outcome: Outcome{Next: "run it at the node with --data-dir, or set server.admin_on_tcp = true there"},
		Err:     &hiddenError{p, a.URLs()},
	}
}
